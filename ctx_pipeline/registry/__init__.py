"""Semantic registries before they are published: what is wrong, what would change, and whom it
reaches.
"""
