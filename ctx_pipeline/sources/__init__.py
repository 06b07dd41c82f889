"""Source adapters: each turns one kind of source into context items. Adapters translate; they
decide nothing.
"""

from __future__ import annotations

from ctx_pipeline.sources.read import read_source
from ctx_pipeline.sources.reading import SourceReading

__all__ = ["SourceReading", "read_source"]
