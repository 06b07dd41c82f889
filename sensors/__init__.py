"""Dagster sensors and schedules: they notice what is due, and ask for runs that do it."""
