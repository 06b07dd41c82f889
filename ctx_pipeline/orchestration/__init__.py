"""Where the library meets Dagster: build, backfill, publish, dev, doctor."""
