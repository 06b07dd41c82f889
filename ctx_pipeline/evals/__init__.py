"""Measuring: what a context holds beside what it should hold."""
