"""Dagster assets: one per source, one per stage, and the assembly op. They are thin and call the library."""
