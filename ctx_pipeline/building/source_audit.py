"""Look at how a source has changed since it was last read: columns, types, what tools take, and how
much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ctx_pipeline.building.checks import (
    SCHEMA_IS_STABLE,
    TOOL_TEXTS_ARE_STABLE,
    TOOLS_ARE_SOUND,
    VOLUME_IS_USUAL,
    Finding,
)
from ctx_pipeline.building.source_record import Record, Stored, read_record
from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.tools import ToolDrift, diff, lint
from ctx_pipeline.tools.definition import read_content
from ctx_pipeline.tools.findings import LintTool
from ctx_pipeline.tools.linting import as_lint_tool

if TYPE_CHECKING:
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger

MAX_COMPARED = 200
"""Changed tables and tools whose definitions are compared in one reading; the counts say how many
there were.
"""
NAMED = 50
"""Tables, columns and tools that a finding names."""
FEW_READINGS = 3
"""With fewer earlier readings nobody knows what is usual."""
FEW_ITEMS = 20
SMALL_SHARE = 0.2
"""A change below both is small, whatever was usual."""
UNUSUAL_FACTOR = 5
"""Times the median change of the readings before."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A definition that this reading replaced."""

    tenant: str
    item_id: str
    before: str
    after: str


def schema_is_stable(store: Store, source: str, before: int) -> Finding:
    """No table of a source lost a column or changed a type, and calls of its tools that were right
    still are.

    `before` is the store's last sequence before the reading: what was recorded after it is compared
    with what came last until then. Whole tables that are gone are for `nothing_vanished`.
    """
    changes, names = _changed_definitions(store, source, before)
    lost: list[str] = []
    for change in changes[:MAX_COMPARED]:
        old, new = (
            store.read(change.tenant, change.item_id, change.before),
            store.read(change.tenant, change.item_id, change.after),
        )
        if old is not None and new is not None:
            texts = old.item().content or "", new.item().content or ""
            name = change.item_id.partition(":")[2].partition("/")[2]
            if old.kind == ItemKind.TOOL.value:
                lost.extend(_broken_calls(name, *texts))
            else:
                lost.extend(_changed_columns(name, *texts, names[(change.tenant, change.item_id)]))
    counts = {
        "changed": len(changes),
        "compared": min(len(changes), MAX_COMPARED),
        "drifted": len(lost),
    }
    return SCHEMA_IS_STABLE.found(not lost, counts, tuple(lost[:NAMED]))


def _changed_definitions(
    store: Store, source: str, before: int
) -> tuple[list[_Change], dict[tuple[str, str], list[str]]]:
    """Return the tables and tools with another content than before, and the column names of every
    table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = store.scan_keys()
    kinds = pc.is_in(
        table.column("kind"), value_set=pa.array([ItemKind.SCHEMA.value, ItemKind.TOOL.value])
    )
    table = table.filter(pc.and_(kinds, pc.equal(table.column("source"), source)))
    names = ("tenant", "item_id", "version", "seq", "content_hash")
    old: dict[tuple[str, str], tuple[str, str]] = {}
    new: dict[tuple[str, str], tuple[str, str]] = {}
    for tenant, item_id, version, seq, content in zip(
        *(table.column(n).to_pylist() for n in names), strict=True
    ):
        (new if seq > before else old)[(tenant, item_id)] = (version, content)
    columns: dict[tuple[str, str], list[str]] = defaultdict(list)
    for tenant, item_id in {**old, **new}:
        for parent, column in _parents(item_id):
            columns[(tenant, parent)].append(column)
    known = {*old, *new}
    changed = [
        _Change(*key, old[key][0], version)
        for key, (version, content) in new.items()
        if key in old
        and old[key][1] != content
        and not any((key[0], parent) in known for parent, _ in _parents(key[1]))
    ]
    return changed, columns


def _parents(item_id: str) -> Iterator[tuple[str, str]]:
    """Yield what an id may be a column of: `schema:db/orders.id` may be the column `id` of
    `schema:db/orders`.
    """
    if item_id.startswith(f"{ItemKind.SCHEMA.value}:"):
        first = item_id.find("/")
        yield from (
            (item_id[:at], item_id[at + 1 :])
            for at in range(first + 1, len(item_id))
            if item_id[at] == "."
        )


def _changed_columns(table: str, old: str, new: str, names: Sequence[str]) -> Iterator[str]:
    before, after = _columns(old, names), _columns(new, names)
    for column, kind in before.items():
        if column not in after:
            yield f"{table}.{column}: lost"
        elif after[column] != kind:
            yield f"{table}.{column}: {kind} became {after[column]}"


def _columns(text: str, names: Iterable[str]) -> dict[str, str]:
    """Return the types of a table's columns, from the text that shows it."""
    longest_first = sorted(names, key=len, reverse=True)
    found: dict[str, str] = {}
    for line in text.partition("\ncolumns:\n")[2].split("\n"):
        entry = line.removeprefix("- ").partition(" -- ")[0].removesuffix(" NOT NULL")
        name = next(
            (name for name in longest_first if entry.startswith(f"{name} ")),
            entry.partition(" ")[0],
        )
        if name:
            found[name] = entry[len(name) + 1 :]
    return found


def _broken_calls(tool: str, old: str, new: str) -> Iterator[str]:
    for change in diff([read_content(old)], [read_content(new)]).changed:
        yield from (f"{tool}: {text}" for text in change.broken)


def live_tools(source: str, store: Store, ledger: Ledger) -> tuple[LintTool, ...]:
    """Return the tools of a source that are in use now, by item id; a server that they do not name
    is the source.
    """
    record = read_record(source, store, ledger)
    newest = {
        key: max(_in_force(record, key), key=lambda version: version.seq).seq
        for key in record.live()
    }
    items = store.read_seqs(sorted(newest.values()))
    found: list[LintTool] = []
    for key in sorted(newest):
        item = items.get(newest[key])
        if item is not None and item.kind is ItemKind.TOOL:
            origin = item.provenance.locator.path or item.item_id
            tool = as_lint_tool(read_content(item.content or ""), server=source, origin=origin)
            found += [tool] if isinstance(tool, LintTool) else []
    return tuple(found)


def _in_force(record: Record, key: tuple[str, str]) -> Sequence[Stored]:
    """Return the versions of an item that nothing has replaced or withdrawn; all of them where that
    leaves none.
    """
    versions = record.stored[key]
    patches = [record.patches.get((*key, version.version)) for version in versions]
    kept = [
        version
        for version, patch in zip(versions, patches, strict=True)
        if patch is None
        or (patch.marked_at is None and patch.superseded_at is None and patch.state is None)
    ]
    return kept or versions


def tools_are_sound(tools: Sequence[LintTool]) -> Finding:
    """No tool's definition has an error that `ctx tools lint` finds. Samples name tools and codes,
    errors first.
    """
    found = lint(tools)
    errors, warnings = (
        sum(finding.severity == level for finding in found) for level in ("error", "warn")
    )
    counts = {
        "tools": len(tools),
        "errors": errors,
        "warnings": warnings,
        "remarks": len(found) - errors - warnings,
    }
    samples = tuple(
        f"{finding.tool}: {finding.code}" for finding in found if finding.severity != "info"
    )
    return TOOLS_ARE_SOUND.found(not errors, counts, samples[:NAMED])


def tool_texts_are_stable(drift: ToolDrift) -> Finding:
    """No text that models read of a tool changed while what the tool takes did not."""
    reworded = [change.tool.rpartition("/")[2] for change in drift.changed if change.reworded]
    counts = {"changed": len(drift.changed), "reworded": len(reworded)}
    return TOOL_TEXTS_ARE_STABLE.found(not reworded, counts, tuple(reworded[:NAMED]))


def volume_is_usual(changed: int, items: int, past: Sequence[int]) -> Finding:
    """A reading has not added and lost far more items than the readings before.

    `changed` counts both, `items` is what the source has now, and `past` are the changes of earlier
    readings.
    """
    usual = median(past) if past else 0
    large = changed >= FEW_ITEMS and changed > SMALL_SHARE * items
    unusual = len(past) >= FEW_READINGS and large and changed > UNUSUAL_FACTOR * max(usual, 1)
    counts = {"changed": changed, "usually": round(usual), "readings": len(past)}
    return VOLUME_IS_USUAL.found(not unusual, counts)
