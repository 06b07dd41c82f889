"""Definitions of metrics and terms."""
