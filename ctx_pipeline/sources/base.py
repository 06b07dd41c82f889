"""The one door to every source: find its files, hand them to the adapter of its kind, account for each file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ctx_pipeline.config import SourceConfig
from ctx_pipeline.contracts import ContextItem, FileError, SourceFile, SourceKind
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources.files import FoundFile, locate
from ctx_pipeline.sources.origin import Origin


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What one reading of a source gave. Every file found is in `files` once."""

    items: tuple[ContextItem, ...]
    errors: tuple[FileError, ...]
    files: tuple[SourceFile, ...]


Adapter = Callable[[tuple[FoundFile, ...], Origin], SourceBatch]
"""Reads the files of one source. It reports what is wrong with a file and never raises for its content."""


def read_source(source: SourceConfig, home: Path, *, tenant: str | None) -> SourceBatch:
    """Read every file of `source` and return its items in a stable order.

    A file that cannot be read or understood is an entry of `errors`, never an exception, and the other files are
    loaded. A path that does not exist gives one error of code `missing`.

    Args:
        source: The `[[sources]]` entry.
        home: Folder of `ctx.toml`; relative paths start there.
        tenant: The project's tenant, for records and sources that name none.

    Raises:
        ConfigError: there is no adapter for the source's kind, or the source names no path.
    """
    adapter = adapters().get(source.kind)
    where = f"ctx.toml, source {source.name!r}"
    if adapter is None:
        kinds = ", ".join(sorted(adapters()))
        raise ConfigError(
            f"no adapter reads sources of kind {source.kind.value!r}",
            where=where,
            fix=f"use one of the supported kinds: {kinds}",
            code="unsupported_source_kind",
        )
    if not source.path:
        raise ConfigError("the source has no path", where=where, fix="set path to a file, a folder or a glob")
    found = locate(source.path, home)
    batch = adapter(found.files, Origin.of(source, tenant=tenant))
    return SourceBatch(
        items=batch.items,
        errors=(*found.errors, *batch.errors),
        files=tuple(sorted((*found.skipped, *batch.files), key=lambda file: file.path)),
    )


@lru_cache(maxsize=1)
def adapters() -> dict[SourceKind, Adapter]:
    """Return the adapter of each supported kind."""
    from ctx_pipeline.sources.documents import read_documents
    from ctx_pipeline.sources.glossary import read_glossary
    from ctx_pipeline.sources.instructions import read_instructions
    from ctx_pipeline.sources.memories import read_memories
    from ctx_pipeline.sources.schema_metadata import read_schema_metadata
    from ctx_pipeline.sources.semantic_registry import read_semantic_registry
    from ctx_pipeline.sources.tools import read_tools

    return {
        SourceKind.DOCUMENTS: read_documents,
        SourceKind.GLOSSARY: read_glossary,
        SourceKind.INSTRUCTIONS: read_instructions,
        SourceKind.MEMORIES: read_memories,
        SourceKind.SCHEMA_METADATA: read_schema_metadata,
        SourceKind.SEMANTIC_REGISTRY: read_semantic_registry,
        SourceKind.TOOLS: read_tools,
    }
