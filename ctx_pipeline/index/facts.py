"""What a build needs to know of an item version beside its text: columns that follow from the item
alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from ctx_pipeline.contracts.codes import ItemKind
from ctx_pipeline.security.visibility import ALWAYS, NEVER, ScopeLabel, micros

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.contracts import ContextItem

FACTS_VERSION: Final = "2"
"""Changes with the columns of `facts_table` and with what is in them."""

FACT_COLUMNS: Final = (
    "kind",
    "subject",
    "title",
    "source",
    "path",
    "authority",
    "trust",
    "confidence",
    "content_number",
    "verified_at",
    "valid_from",
    "valid_until",
    "dated_at",
    "depends_on",
    "supersedes",
    "forms",
    "mentions",
    "label",
)
"""Columns of `facts_table`, in the order in which `Row` takes them."""

MAX_MENTIONS: Final = 200
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_LABELS: TypeAdapter[ScopeLabel] = TypeAdapter(ScopeLabel)


def facts_table(items: Sequence[ContextItem]) -> pa.Table:
    """Return the facts of items, one row each; times are microseconds since
    1970, labels are JSON.
    """
    import pyarrow as pa

    text, number, names = pa.string(), pa.int64(), pa.list_(pa.field("item", pa.string()))
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "kind": ([item.kind.value for item in items], text),
        "subject": ([item.subject for item in items], text),
        "title": ([item.title for item in items], pa.large_string()),
        "source": ([item.provenance.source_id for item in items], text),
        "path": ([item.provenance.locator.path for item in items], text),
        "authority": ([item.authority for item in items], pa.int16()),
        "trust": ([item.trust.value for item in items], text),
        "confidence": ([item.confidence for item in items], pa.float64()),
        "content_number": ([int(item.content_hash[:15], 16) for item in items], number),
        "verified_at": ([_verified_at(item) for item in items], number),
        "valid_from": ([start_of(item) for item in items], number),
        "valid_until": (
            [NEVER if item.valid_until is None else micros(item.valid_until) for item in items],
            number,
        ),
        "dated_at": ([_dated_at(item) for item in items], number),
        "depends_on": ([item.depends_on for item in items], names),
        "supersedes": ([item.supersedes for item in items], names),
        "forms": ([_forms(item) for item in items], names),
        "mentions": ([_mentions(item) for item in items], names),
        "label": (_label_texts(items), text),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


def fact_values(table: pa.Table) -> list[list[Any]]:
    """Return the columns of `facts_table` as Python values: names as tuples, equal labels as one
    object.
    """
    values = {name: table.column(name).to_pylist() for name in FACT_COLUMNS}
    for name in ("depends_on", "supersedes", "forms", "mentions"):
        values[name] = _tuples(table.column(name))
    labels = {text: _LABELS.validate_json(text) for text in set(values["label"])}
    values["label"] = [labels[text] for text in values["label"]]
    return list(values.values())


def scope_label(item: ContextItem) -> ScopeLabel:
    """Return what permission rules look at."""
    return ScopeLabel(
        tenant=item.scope.tenant or None,
        principals=tuple(sorted(item.scope.principals)),
        groups=tuple(sorted(item.scope.groups)),
        sensitivity=None if item.sensitivity is None else item.sensitivity.value,
        environment=item.scope.environment,
        task_types=tuple(sorted(item.scope.task_types)),
        agent_visibility=tuple(sorted(item.scope.agent_visibility)),
        trust=item.trust.value,
    )


def start_of(item: ContextItem) -> int:
    """Return when a version begins to be valid, in microseconds; `ALWAYS` where it does not say."""
    return ALWAYS if item.valid_from is None else micros(item.valid_from)


def _label_texts(items: Sequence[ContextItem]) -> list[str]:
    texts: dict[ScopeLabel, str] = {}
    labels = [scope_label(item) for item in items]
    for label in labels:
        if label not in texts:
            texts[label] = json.dumps(asdict(label), ensure_ascii=False)
    return [texts[label] for label in labels]


def _verified_at(item: ContextItem) -> int:
    own = [moment for moment in (item.last_verified_at, item.observed_at) if moment is not None]
    return micros(max(own)) if own else ALWAYS


def _dated_at(item: ContextItem) -> int:
    """Return the newest of the times that an item tells of itself: made, observed, valid from."""
    own = [
        moment
        for moment in (item.created_at, item.observed_at, item.valid_from)
        if moment is not None
    ]
    return micros(max(own)) if own else ALWAYS


def _forms(item: ContextItem) -> tuple[str, ...]:
    """Return the names of a term, its own first, where it has more than one; a term goes by its
    names alone.
    """
    return tuple(dict.fromkeys((item.title, *item.synonyms))) if item.synonyms else ()


def _mentions(item: ContextItem) -> tuple[str, ...]:
    """Return the names in a metric's definition, which may be columns of its
    tables, in lower case.
    """
    if item.kind is not ItemKind.METRIC:
        return ()
    return tuple(sorted({name.lower() for name in _IDENTIFIER.findall(item.content or "")}))[
        :MAX_MENTIONS
    ]


def _tuples(column: pa.ChunkedArray) -> list[tuple[str, ...]]:
    """Return lists as tuples; the empty ones, which most are, cost nothing."""
    import pyarrow.compute as pc

    values: list[tuple[str, ...]] = [()] * len(column)
    for at in pc.indices_nonzero(pc.list_value_length(column)).to_pylist():
        values[at] = tuple(column[at].as_py())
    return values
