"""Code and its history."""
