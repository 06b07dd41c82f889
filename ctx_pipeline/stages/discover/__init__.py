"""Discover: what might help."""
