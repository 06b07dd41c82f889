"""What a source says of its readers bounds what its records say of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ctx_pipeline.config.settings import CONFIG_NAME
from ctx_pipeline.contracts import ContextItem, FileCode, FileError, FileStatus, SourceFile
from ctx_pipeline.security.narrowing import bounded, wider_keys
from ctx_pipeline.sources.origin import Origin

if TYPE_CHECKING:
    from ctx_pipeline.sources.reading import SourceReading


def within_source(reading: SourceReading, origin: Origin) -> SourceReading:
    """Return a reading whose items are open to nobody to whom the source is closed, with a finding
    for each that was.

    An item of a tenant that the source may not write for is left out. One that asks for readers
    that the source does not have, or for a lower sensitivity, keeps the source's; with `may_widen`
    it has what it asks for. What nobody may see is reported once for the source where it says too
    little, else once per file. A unit that says any of this is read again at the next reading, and
    reported again.
    """
    source = origin.source
    allowed = {origin.scope.tenant, *source.tenants}
    items: list[ContextItem] = []
    errors: dict[FileError, None] = {}
    changed: set[int] = set()
    refused: list[ContextItem] = []
    for item in reading.items:
        if item.scope.tenant not in allowed:
            refused.append(item)
            errors[_finding(item, "tenant", FileCode.WRONG_TENANT, _OTHER_TENANT, origin)] = None
            changed.add(id(item))
            continue
        as_source = item.scope is origin.scope and item.sensitivity == source.sensitivity
        keys = (
            ()
            if as_source or source.may_widen
            else wider_keys(item, origin.scope, source.sensitivity)
        )
        for key in keys:
            errors[_finding(item, key, FileCode.WIDER_THAN_SOURCE, _WIDER[key], origin)] = None
        items.append(bounded(item, origin.scope, source.sensitivity) if keys else item)
        if keys:
            changed.add(id(item))
    missing = list(_silent_source(reading, origin))
    unseen = [] if missing else [item for item in items if _is_unscoped(item)]
    changed.update(id(item) for item in unseen)
    units = {
        unit: said
        for unit, said in reading.units.items()
        if not any(id(one) in changed for one in said)
    }
    return replace(
        reading,
        items=tuple(items),
        errors=(*reading.errors, *errors, *_unscoped(unseen), *missing),
        files=_without(reading.files, refused),
        units=units,
    )


_OTHER_TENANT = (
    "tenant: is not the source's own, so this is left out: remove the key, or list "
    "the tenant in tenants of the source"
)
_READERS = (
    "asks for readers whom the source does not let in, and they stay out: remove them, or "
    "set may_widen = true"
)
_WIDER = {
    "groups": f"groups: {_READERS}",
    "principals": f"principals: {_READERS}",
    "sensitivity": (
        "sensitivity: is lower than the source's, which holds: remove the key, or set may_widen "
        "= true on the source"
    ),
}


def _finding(
    item: ContextItem, key: str, code: FileCode, message: str, origin: Origin
) -> FileError:
    where = item.provenance.locator
    line = origin.key_lines.get((item.item_id, item.version), {}).get(key, where.line_start)
    return FileError(
        path=where.path or item.provenance.source_id, line=line, code=code, message=message
    )


def _without(
    files: tuple[SourceFile, ...], refused: Iterable[ContextItem]
) -> tuple[SourceFile, ...]:
    """Return the files with what was left out of each no longer counted."""
    lost: dict[str | None, int] = {}
    for item in refused:
        path = item.provenance.locator.path
        lost[path] = lost.get(path, 0) + 1
    return tuple(_less(file, lost[file.path]) if file.path in lost else file for file in files)


def _less(file: SourceFile, lost: int) -> SourceFile:
    left = max(0, file.items - lost)
    if left:
        return file.model_copy(update={"items": left})
    update = {"items": 0, "status": FileStatus.FAILED, "reason": FileCode.WRONG_TENANT.value}
    return file.model_copy(update=update)


def _silent_source(reading: SourceReading, origin: Origin) -> Iterator[FileError]:
    """Yield what a source has to say before anybody sees anything of it."""
    source, lacks = origin.source, silence(origin)
    if not lacks or not reading.count:
        return
    message = (
        f"source {source.name!r} has no {' and no '.join(lacks)}, so nobody sees anything of it: "
        'for everyone of the tenant write groups = ["*"]'
    )
    yield FileError(
        path=CONFIG_NAME, code=FileCode.MISSING_SCOPE, message=message, items=reading.count
    )


def silence(origin: Origin) -> tuple[str, ...]:
    """Return what a source lacks without which nobody may see it, whatever its records say."""
    source = origin.source
    lacks: list[str] = []
    if not origin.scope.tenant and not source.tenants:
        lacks.append("tenant")
    if source.may_widen:
        return tuple(lacks)
    if not source.groups and not source.principals:
        lacks.append("groups or principals")
    if source.sensitivity is None:
        lacks.append("sensitivity")
    return tuple(lacks)


def _unscoped(items: Iterable[ContextItem]) -> Iterator[FileError]:
    by_path: dict[str, list[ContextItem]] = {}
    for item in items:
        by_path.setdefault(item.provenance.locator.path or item.provenance.source_id, []).append(
            item
        )
    for path, denied in by_path.items():
        message = (
            f"{len(denied)} items lack a tenant, a sensitivity, or both principals and groups, so "
            "nobody may see them: set them in the record, in the source or in [project]"
        )
        line = denied[0].provenance.locator.line_start
        yield FileError(path=path, line=line, code=FileCode.MISSING_SCOPE, message=message)


def _is_unscoped(item: ContextItem) -> bool:
    scope = item.scope
    return not scope.tenant or item.sensitivity is None or not (scope.principals or scope.groups)
