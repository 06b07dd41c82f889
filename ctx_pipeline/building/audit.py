"""Look at what a build has staged, before it is served, by ways of its own: what one code wrote,
another one counts.

Each function is pure over Arrow tables and returns a `Finding`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.building.checks import (
    AUTHORITY_IS_WITHIN_POLICY,
    EVERY_ROW_HAS_A_SCOPE,
    LABELS_ARE_WITHIN_SCOPE,
    ONE_ROW_PER_VERSION,
    ONLY_CURRENT_VERSIONS_ARE_LIVE,
    ROWS_MATCH_THE_STORE,
    TOKEN_COUNTS_ARE_EXACT,
    VECTORS_ARE_OF_ONE_MODEL,
    WITHDRAWN_ROWS_STAY_OUT,
    Finding,
)
from ctx_pipeline.config.settings import VERIFIED_MEMORY_AUTHORITY
from ctx_pipeline.contracts import ContextItem, Rendition, SourceKind
from ctx_pipeline.index.labels import labels_of
from ctx_pipeline.security.visibility import (
    NEVER,
    STATE_FORGOTTEN,
    STATE_LIVE,
    STATE_QUARANTINED,
    ScopeLabel,
    is_within,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.ledger import OverlayEntry

SAMPLES = 5
"""Ids that a finding names."""
VECTOR_ROWS = 64
"""Vectors compared with those of the store."""
LABEL_ROWS = 24
"""Rows whose label is compared with their item; reading one takes some 5 ms in a store of 100,000.
"""
TOKEN_ROWS = 96
"""Rows whose tokens are counted again, in every vocabulary and rendition."""
UNIT_TOLERANCE = 1e-3
"""How far from 1 the length of a vector may be; float32 sums of 1,024 numbers stay within 1e-5."""

_SEPARATOR = "\x1f"
_NUMBERED = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,3})(?:\+[0-9a-f]{8})?")

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The store's rows up to a sequence: every item version once, as last recorded."""

    keys: Any
    """Composite of tenant, item id and version."""
    sequences: Ints
    sources: Any
    hashes: Any
    """Keys of the vectors."""

    @classmethod
    def of(cls, scanned: pa.Table, until: int) -> Recorded:
        """Take the rows of `Store.scan_keys`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = scanned.filter(pc.less_equal(scanned.column("seq"), until))
        encoded = version_keys(table).combine_chunks().dictionary_encode()
        codes, order = (
            encoded.indices.to_numpy(),
            np.argsort(table.column("seq").to_numpy(), kind="stable"),
        )
        last = np.zeros(len(encoded.dictionary), np.int64)
        last[codes[order]] = order
        picked = table.take(pa.array(last))
        return cls(
            encoded.dictionary,
            picked.column("seq").to_numpy(),
            picked.column("source").combine_chunks(),
            picked.column("embed_hash").combine_chunks(),
        )

    def places(self, keys: Any) -> Ints:
        """Return where each key is recorded; -1 where it is not."""
        import pyarrow.compute as pc

        found = pc.index_in(keys, value_set=self.keys)
        return pc.fill_null(found, -1).to_numpy().astype(np.int64)


def item_keys(table: pa.Table) -> Any:
    """Return tenant and item id of each row as one text."""
    return _joined(table, ("tenant", "item_id"))


def version_keys(table: pa.Table) -> Any:
    """Return tenant, item id and version of each row as one text."""
    return _joined(table, ("tenant", "item_id", "version"))


def _joined(table: pa.Table, names: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [pc.cast(table.column(name), pa.large_string()) for name in names]
    return pc.binary_join_element_wise(*columns, pa.scalar(_SEPARATOR, pa.large_string()))


def _named(keys: Any, failed: Flags) -> tuple[str, ...]:
    import pyarrow as pa

    first = np.flatnonzero(failed)[:SAMPLES]
    return tuple(
        "@".join(key.split(_SEPARATOR)[1:]) for key in keys.take(pa.array(first)).to_pylist()
    )


# --- discovered


def one_row_per_version(discovered: pa.Table) -> Finding:
    """Every item version of a tenant is there once."""
    keys = version_keys(discovered).combine_chunks()
    codes = keys.dictionary_encode().indices.to_numpy()
    repeated = np.bincount(codes, minlength=1)[codes] > 1 if len(codes) else np.zeros(0, np.bool_)
    doubled = int(repeated.sum())
    return ONE_ROW_PER_VERSION.found(not doubled, {"doubled_rows": doubled}, _named(keys, repeated))


def rows_match_the_store(
    discovered: pa.Table, recorded: Recorded, entries: Sequence[OverlayEntry]
) -> Finding:
    """The rows are the store's item versions less what was forgotten, no more and no fewer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gone = [e for e in entries if e.code == "forgotten"]
    whole = pa.array(
        [_SEPARATOR.join((e.tenant, e.item_id)) for e in gone if e.version is None],
        pa.large_string(),
    )
    single = pa.array(
        [_SEPARATOR.join((e.tenant, e.item_id, e.version)) for e in gone if e.version is not None],
        pa.large_string(),
    )
    items = pc.replace_substring_regex(
        recorded.keys, pattern=f"{_SEPARATOR}[^{_SEPARATOR}]*$", replacement=""
    )
    forgotten = pc.or_(pc.is_in(items, value_set=whole), pc.is_in(recorded.keys, value_set=single))
    expected = recorded.keys.filter(pc.invert(forgotten))
    actual = version_keys(discovered).combine_chunks()
    missing = pc.invert(pc.is_in(expected, value_set=actual)).to_numpy(zero_copy_only=False)
    extra = pc.invert(pc.is_in(actual, value_set=expected)).to_numpy(zero_copy_only=False)
    counts = {
        "rows": len(actual),
        "missing_rows": int(missing.sum()),
        "extra_rows": int(extra.sum()),
    }
    passed = not counts["missing_rows"] and not counts["extra_rows"]
    names = (*_named(expected, missing), *_named(actual, extra))[:SAMPLES]
    return ROWS_MATCH_THE_STORE.found(passed, counts, names)


def vectors_are_of_one_model(
    discovered: pa.Table,
    vectors: pa.Table,
    dim: int,
    stored: Callable[[Ints], NDArray[np.float32]],
    seed: int,
) -> Finding:
    """Vectors have the model's length, are finite and of length 1, and are the store's own for
    their item.

    `stored` returns the store's vectors of some rows. A vector of zeros is that of a blank text:
    similar to nothing.
    """
    keys = version_keys(discovered).combine_chunks()
    column = vectors.column("vector").combine_chunks()
    width = vectors.schema.field("vector").type.list_size
    if width != dim:
        return VECTORS_ARE_OF_ONE_MODEL.found(False, {"length": width, "expected_length": dim})
    values = column.flatten().to_numpy().reshape(-1, dim)
    squares = np.einsum("ij,ij->i", values, values) if len(values) else np.zeros(0, np.float32)
    wrong = ~np.isfinite(squares) | (
        (np.abs(np.sqrt(np.abs(squares)) - 1) > UNIT_TOLERANCE) & (squares != 0)
    )
    rows = sample_rows(len(values), VECTOR_ROWS, seed)
    other = np.zeros(len(values), np.bool_)
    # Not `> 0`: a vector that the store does not have compares as NaN.
    other[rows] = ~(np.abs(values[rows] - stored(rows)).max(axis=1, initial=0.0) == 0)
    counts = {
        "not_unit": int(wrong.sum()),
        "blank": int((squares == 0).sum()),
        "not_of_the_store": int(other.sum()),
    }
    return VECTORS_ARE_OF_ONE_MODEL.found(
        not (wrong | other).any(),
        counts,
        _named(keys, wrong | other),
    )


def sample_rows(rows: int, size: int, seed: int) -> Ints:
    """Return up to `size` different row numbers, the same ones for the same seed, ascending."""
    if rows <= size:
        return np.arange(rows, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(rows, size, replace=False)).astype(np.int64)


# --- filtered


def every_row_has_a_scope(discovered: pa.Table, filtered: pa.Table) -> Finding:
    """Every row has a tenant, a grant and a sensitivity; without them nobody sees it, which is
    safe.
    """
    labels = labels_of(filtered)
    closed = np.array(
        [not (x.tenant and (x.principals or x.groups) and x.sensitivity) for x in labels], np.bool_
    )
    hidden = closed[filtered.column("scope").to_numpy()] if len(labels) else np.zeros(0, np.bool_)
    count = int(hidden.sum())
    keys = version_keys(discovered).combine_chunks()
    return EVERY_ROW_HAS_A_SCOPE.found(
        not count,
        {"rows_without_scope": count},
        _named(keys, hidden),
    )


def withdrawn_rows_stay_out(
    discovered: pa.Table,
    filtered: pa.Table,
    recorded: Recorded,
    entries: Sequence[OverlayEntry],
    sources: Sequence[str],
) -> Finding:
    """A row is retired, set aside or forgotten exactly when the overlay's last word, or the
    settings, say so.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = version_keys(discovered).combine_chunks()
    retired, state = _last_words(discovered, keys, entries)
    known = pc.is_in(recorded.sources, value_set=pa.array(sources, recorded.sources.type))
    places = recorded.places(keys)
    orphaned = (
        ~known.to_numpy(zero_copy_only=False)[places] & (places >= 0)
        if len(recorded.sequences)
        else places > 0
    )
    is_retired = filtered.column("retired_at").to_numpy() < NEVER
    is_aside = filtered.column("state").to_numpy()
    served = ((retired | orphaned) & ~is_retired) | (
        (state != STATE_LIVE) & (is_aside == STATE_LIVE)
    )
    hidden = (~(retired | orphaned) & is_retired) | (
        (state == STATE_LIVE) & (is_aside != STATE_LIVE)
    )
    counts = {"withdrawn_but_live": int(served.sum()), "live_but_withdrawn": int(hidden.sum())}
    return WITHDRAWN_ROWS_STAY_OUT.found(
        not (served | hidden).any(),
        counts,
        _named(keys, served | hidden),
    )


def _last_words(
    discovered: pa.Table, keys: Any, entries: Sequence[OverlayEntry]
) -> tuple[Flags, NDArray[np.uint8]]:
    """Return whether each row is retired, and its state, from the last entry about it or its whole
    item.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    retired, state = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.uint8)
    words: dict[str, dict[str, tuple[int, str]]] = {}
    kinds = {"retired": "r", "restored": "r", "quarantined": "s", "released": "s", "forgotten": "f"}
    for number, entry in enumerate(entries):
        if entry.code in kinds:
            parts = (
                entry.tenant,
                entry.item_id,
                *(() if entry.version is None else (entry.version,)),
            )
            words.setdefault(_SEPARATOR.join(parts), {})[kinds[entry.code]] = (number, entry.code)
    mentioned = pa.array(
        {_SEPARATOR.join(name.split(_SEPARATOR)[:2]) for name in words}, pa.large_string()
    )
    items = item_keys(discovered).combine_chunks()
    rows = np.flatnonzero(pc.is_in(items, value_set=mentioned).to_numpy(zero_copy_only=False))
    picked = pa.array(rows)
    for row, key, item in zip(
        rows, keys.take(picked).to_pylist(), items.take(picked).to_pylist(), strict=True
    ):
        said = [words.get(name, {}) for name in (key, item)]
        last = {kind: max(each.get(kind, (-1, "")) for each in said)[1] for kind in "rsf"}
        retired[row] = last["r"] == "retired"
        state[row] = (
            STATE_FORGOTTEN
            if last["f"]
            else STATE_QUARANTINED
            if last["s"] == "quarantined"
            else STATE_LIVE
        )
    return retired, state


def only_current_versions_are_live(
    discovered: pa.Table, filtered: pa.Table, recorded: Recorded, now: int
) -> Finding:
    """Of each item one version is live at `now` (microseconds), the newest that has begun; equal
    ones may be several.

    Declared versions are compared as numbers, others by the order in which they were recorded.
    """
    times = {
        name: filtered.column(name).to_numpy()
        for name in ("valid_from", "valid_until", "superseded_at")
    }
    present = filtered.column("retired_at").to_numpy() == NEVER
    begun = present & (times["valid_from"] <= now)
    live = begun & (times["valid_until"] > now) & (times["superseded_at"] > now)
    live &= filtered.column("state").to_numpy() == STATE_LIVE
    codes = item_keys(discovered).combine_chunks().dictionary_encode().indices.to_numpy()
    several = np.bincount(codes[begun], minlength=int(codes.max(initial=-1)) + 1) > 1
    rows = np.flatnonzero(several[codes])
    rows = rows[np.argsort(codes[rows], kind="stable")]
    keys = version_keys(discovered).combine_chunks()
    wrong = np.zeros(len(codes), np.bool_)
    for versions in _chains(discovered, recorded, times["valid_from"], rows, codes):
        best = max((each for each in versions if begun[each.row]), key=lambda each: each.rank)
        wrong[
            [
                each.row
                for each in versions
                if live[each.row] and each is not best and not each.ties(best)
            ]
        ] = True
    counts = {"live_rows": int(live.sum()), "replaced_but_live": int(wrong.sum())}
    return ONLY_CURRENT_VERSIONS_ARE_LIVE.found(not wrong.any(), counts, _named(keys, wrong))


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of an item, for its order among the others."""

    row: int
    text: str
    rank: tuple[Any, ...]
    start: int

    def ties(self, other: _Version) -> bool:
        """Two declared versions of one number (`2` and `v2.0`) and beginning conflict: both are
        live.
        """
        mine, its = _declared(self.text), _declared(other.text)
        if (
            mine is None
            or its is None
            or "+" in self.text + other.text
            or self.start != other.start
        ):
            return False
        width = max(len(mine), len(its))
        return mine + (0,) * (width - len(mine)) == its + (0,) * (width - len(its))


def _chains(
    discovered: pa.Table, recorded: Recorded, starts: Ints, rows: Ints, codes: Ints
) -> Iterator[list[_Version]]:
    """Yield the versions of each item; `rows` are ordered by `codes`, the numbers of the items."""
    import pyarrow as pa

    picked = discovered.select(["tenant", "item_id", "version"]).take(pa.array(rows))
    texts: list[str] = picked.column("version").to_pylist()
    places = recorded.places(version_keys(picked).combine_chunks())
    sequences: list[int] = recorded.sequences[places].tolist() if len(rows) else []
    numbers_of, begins = cast("list[int]", rows.tolist()), cast("list[int]", starts[rows].tolist())
    versions = list(zip(numbers_of, texts, begins, sequences, strict=True))
    ends: list[int] = [*(np.flatnonzero(np.diff(codes[rows])) + 1).tolist(), len(rows)]
    first = 0
    for last in ends if len(rows) else []:
        numbers = [_declared(text) for _, text, _, _ in versions[first:last]]
        declared = all(number is not None for number in numbers)
        yield [
            _Version(row, text, (number, start, sequence) if declared else (sequence,), start)
            for (row, text, start, sequence), number in zip(
                versions[first:last], numbers, strict=True
            )
        ]
        first = last


def _declared(version: str) -> tuple[int, ...] | None:
    found = _NUMBERED.fullmatch(version)
    return None if found is None else tuple(int(part) for part in found.group(1).split("."))


def labels_are_within_scope(
    discovered: pa.Table,
    filtered: pa.Table,
    read: Callable[[str, str, str], ContextItem | None],
    seed: int,
) -> Finding:
    """No sampled row is open to anybody to whom its item is closed. `read` returns an item version
    of the store.

    The sample has a row of as many labels as fit into half of it, and others by chance.
    """
    import pyarrow as pa

    labels = labels_of(filtered)
    scopes = filtered.column("scope").to_numpy()
    _, firsts = np.unique(scopes, return_index=True)
    chosen = firsts[sample_rows(len(firsts), LABEL_ROWS // 2, seed)]
    rows = np.unique(
        np.concatenate((chosen, sample_rows(len(scopes), LABEL_ROWS - len(chosen), seed)))
    )
    wrong = np.zeros(len(scopes), np.bool_)
    picked = discovered.select(["tenant", "item_id", "version"]).take(pa.array(rows))
    for row, key in zip(rows, picked.to_pylist(), strict=True):
        item = read(key["tenant"], key["item_id"], key["version"])
        wrong[row] = item is None or not is_within(labels[int(scopes[row])], _own_scope(item))
    count = int(wrong.sum())
    keys = version_keys(discovered).combine_chunks()
    return LABELS_ARE_WITHIN_SCOPE.found(
        not count,
        {"rows": len(rows), "wider_rows": count},
        _named(keys, wrong),
    )


def _own_scope(item: ContextItem) -> ScopeLabel:
    return ScopeLabel(
        tenant=item.scope.tenant,
        principals=item.scope.principals,
        groups=item.scope.groups,
        sensitivity=None if item.sensitivity is None else item.sensitivity.value,
        environment=item.scope.environment,
        task_types=item.scope.task_types,
        agent_visibility=item.scope.agent_visibility,
        trust=item.trust.value,
    )


# --- ranked and budgeted


def authority_is_within_policy(
    discovered: pa.Table, ranked: pa.Table, recorded: Recorded, sources: Sequence[SourceConfig]
) -> Finding:
    """Authority is 0 to 100, which blocks, and the newest rows have no more than their source's,
    which warns.

    A source whose authority was lowered keeps its old items until it is read again. A verified
    memory may have `VERIFIED_MEMORY_AUTHORITY`.
    """
    import pyarrow.compute as pc

    keys = version_keys(discovered).combine_chunks()
    values = ranked.column("authority").to_numpy()
    outside = (values < 0) | (values > 100)
    limits = np.full(len(values), 100)
    places = recorded.places(keys)
    for source in sources:
        if source.authority is not None and len(recorded.sequences):
            lifted = VERIFIED_MEMORY_AUTHORITY if source.kind is SourceKind.MEMORIES else 0
            mine = pc.equal(recorded.sources, source.name).to_numpy(zero_copy_only=False)[places]
            limits[mine] = max(source.authority, lifted)
    codes = item_keys(discovered).combine_chunks().dictionary_encode().indices.to_numpy()
    sequences = recorded.sequences[places] if len(recorded.sequences) else places
    newest = np.zeros(max(codes, default=-1) + 1, np.int64)
    np.maximum.at(newest, codes, sequences)
    above = (values > limits) & (sequences == newest[codes])
    counts = {"outside_0_to_100": int(outside.sum()), "above_their_source": int(above.sum())}
    failed = outside | above
    return AUTHORITY_IS_WITHIN_POLICY.found(
        not failed.any(), counts, _named(keys, failed), only_warns=not outside.any()
    )


def token_counts_are_exact(
    discovered: pa.Table,
    transformed: pa.Table,
    budgeted: pa.Table,
    encodings: Sequence[str],
    count: Callable[[str, str], int],
    seed: int,
) -> Finding:
    """Sampled counts are what the tokenizer says of the rendition. `count` counts a text in an
    encoding.
    """
    import pyarrow as pa

    rows = sample_rows(discovered.num_rows, TOKEN_ROWS, seed)
    wrong = np.zeros(discovered.num_rows, np.bool_)
    texts, written = transformed.take(pa.array(rows)), budgeted.take(pa.array(rows))
    compared = 0
    for rendition in Rendition:
        blocks = texts.column(rendition.value).to_pylist()
        for encoding in encodings:
            numbers = written.column(f"{rendition.value}_{encoding}").to_pylist()
            for row, block, number in zip(rows, blocks, numbers, strict=True):
                compared += 1
                wrong[row] |= number != (0 if block is None else count(block, encoding))
    keys = version_keys(discovered).combine_chunks()
    counts = {"compared": compared, "wrong_rows": int(wrong.sum())}
    return TOKEN_COUNTS_ARE_EXACT.found(not wrong.any(), counts, _named(keys, wrong))
