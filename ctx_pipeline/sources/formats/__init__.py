"""Formats that several adapters read."""
