"""Policies as files, looked at: lint, show, compare."""
