"""Dagster sensors: they notice what a schedule would notice too late."""
