"""The one door to every source: find its files, hand them to the adapter of its kind, account for
each file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.config.source_rules import unread_kind
from ctx_pipeline.contracts import FileCode, FileError, SourceKind
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources.ceilings import within_source
from ctx_pipeline.sources.files import FoundFile, Located, locate
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import SourceReading
from ctx_pipeline.sources.units import Units
from ctx_pipeline.sources.unseen import without_unseen

Adapter = Callable[[tuple[FoundFile, ...], Origin], SourceReading]
"""Reads the files of one source. It reports what is wrong with a file and never raises for its
content."""

Reader = Callable[[Origin, Path], SourceReading]
"""Finds and reads what a source holds that is not a folder of files; paths start in the project's
home."""


def read_source(
    source: SourceConfig,
    home: Path,
    *,
    tenant: str | None,
    units: Units | None = None,
    replaced: Sequence[FoundFile] = (),
) -> SourceReading:
    """Read every file of `source` and return its items in a stable order.

    A file that cannot be read or understood is an entry of `errors`, never an exception, and the
    other files are loaded. A path that does not exist gives one error of code `missing`, and so
    does a library that is not installed, of code `unreadable`. What records say of their readers
    holds within what the source says: see `within_source`. Characters that nobody sees are taken
    out: see `without_unseen`.

    Args:
        source: The `[[sources]]` entry.
        home: Folder of `ctx.toml`; relative paths start there.
        tenant: The project's tenant, for records and sources that name none.
        units: What is stored as it was read last. None: everything is parsed.
        replaced: Files to read in the place of those of the same path, or beside them.

    Raises:
        ConfigError: there is no adapter for the source's kind, or the source names no path.
    """
    origin = Origin.of(source, tenant=tenant, units=units)
    try:
        return without_unseen(within_source(_read(origin, home, replaced), origin))
    except ImportError as missing:
        if missing.name is not None and missing.name.startswith("ctx_pipeline"):
            raise
        return _without_library(source, missing.name)


def _without_library(source: SourceConfig, library: str | None) -> SourceReading:
    what = (
        "a library that cannot be loaded"
        if library is None
        else f"the package {library}, which is not installed"
    )
    message = f"kind {source.kind.value!r} needs {what}: pip install ctx-pipeline"
    return SourceReading(
        (),
        (FileError(path=source.path or source.name, code=FileCode.UNREADABLE, message=message),),
        (),
    )


def _read(origin: Origin, home: Path, replaced: Sequence[FoundFile]) -> SourceReading:
    source = origin.source
    if source.kind in READERS:
        reader: Reader = _load(READERS[source.kind])
        return reader(origin, home)
    where = f"ctx.toml, source {source.name!r}"
    if source.kind not in ADAPTERS:
        fault = unread_kind(source.kind)
        raise ConfigError(fault.message, where=where, fix=fault.fix, code=fault.code)
    addressed = source.kind is SourceKind.WEB and source.url is not None
    if not source.path and not addressed:
        raise ConfigError(
            "the source has no path", where=where, fix="set path to a file, a folder or a glob"
        )
    found = _with(locate_source(source, home), replaced)
    adapter: Adapter = _load(ADAPTERS[source.kind])
    batch = adapter(found.files, origin)
    return replace(
        batch,
        errors=(*found.errors, *batch.errors),
        files=tuple(sorted((*found.skipped, *batch.files), key=lambda file: file.path)),
    )


def locate_source(source: SourceConfig, home: Path) -> Located:
    """Return the files of a source that has a path; none where it has none."""
    if not source.path:
        return Located()
    if "://" not in source.path:
        return locate(source.path, home)
    from ctx_pipeline.sources.remote import locate_remote

    return locate_remote(source, home)


def _with(located: Located, replaced: Sequence[FoundFile]) -> Located:
    if not replaced:
        return located
    files = {file.shown: file for file in located.files} | {file.shown: file for file in replaced}
    errors = tuple(error for error in located.errors if error.code is not FileCode.MISSING)
    return Located(tuple(files.values()), located.skipped, errors)


READERS: dict[SourceKind, str] = {
    SourceKind.GIT: "code.git:read_git",
    SourceKind.SQL: "database.sql:read_sql",
}
"""Module and function that read each kind that finds its own content."""

ADAPTERS: dict[SourceKind, str] = {
    SourceKind.ARTIFACTS: "documents.artifacts:read_artifacts",
    SourceKind.CODE: "code.code:read_code",
    SourceKind.DOCUMENTS: "documents.documents:read_documents",
    SourceKind.GLOSSARY: "semantic.glossary:read_glossary",
    SourceKind.INSTRUCTIONS: "documents.instructions:read_instructions",
    SourceKind.MEMORIES: "documents.memories:read_memories",
    SourceKind.SCHEMA_METADATA: "database.schema_metadata:read_schema_metadata",
    SourceKind.SEMANTIC_REGISTRY: "semantic.semantic_registry:read_semantic_registry",
    SourceKind.SKILLS: "documents.skills:read_skills",
    SourceKind.TOOLS: "tools:read_tools",
    SourceKind.WEB: "web.web:read_web",
}
"""Module and function that read each other kind from found files. A module is imported when its
kind is read."""


def _load(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(import_module(f"ctx_pipeline.sources.{module}"), function)
