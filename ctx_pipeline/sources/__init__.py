"""Source adapters: each turns one kind of source into context items. Adapters translate; they decide nothing."""

from __future__ import annotations

from ctx_pipeline.sources.base import SourceBatch, read_source

__all__ = ["SourceBatch", "read_source"]
