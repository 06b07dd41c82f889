"""Rank: what matters most."""
