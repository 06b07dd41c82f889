"""The one reader of serving artifacts: memory-mapped columns, exact vectors, lexical search, under
one predicate.
"""

from __future__ import annotations

import copy
import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.contracts.codes import PERMISSION_CODES, Exclusion, Rendition
from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index.artifact import (
    FORMAT_VERSION,
    PARTS,
    SEAL,
    Layout,
    is_sealed,
    read_pointer,
    read_table,
)
from ctx_pipeline.index.columns import (
    RowFacts,
    Texts,
    bisect_texts,
    list_offsets,
    list_values,
    numbers,
    spans,
    state_of,
    unchanged_span,
    writable_state,
)
from ctx_pipeline.index.contested import Contested
from ctx_pipeline.index.forms import Forms
from ctx_pipeline.index.integrity import check_artifact
from ctx_pipeline.index.labels import TIME_COLUMNS, labels_of
from ctx_pipeline.index.lexical import Lexical, LexicalHits, Readership
from ctx_pipeline.index.overlay import Entry, apply_patch, fold, supersede_chain
from ctx_pipeline.index.quantised import Plan, Quantised, can_be_best, dot_rows
from ctx_pipeline.security.visibility import (
    UNNAMED_CODES,
    Clock,
    Codes,
    ScopeLabel,
    StateColumns,
    Viewer,
    code_of,
    joined_codes,
    label_codes,
    time_codes,
    visibility_codes,
)
from ctx_pipeline.tools.catalogue import rows_by_name, tool_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.contracts import PolicyDecision
    from ctx_pipeline.security.policy_service import PolicyGuard

Rows = NDArray[np.intp]
Floats = NDArray[np.float32]

STRINGS = ("item_id", "version", "title", "subject_name")
EXACT_ROWS = 1_024
"""Up to so many visible rows are compared with the query by their vectors alone; more, by their
small copies first."""
SLICE_CACHE = 32
"""Viewers whose visible rows are kept per view: a byte a row of the tenant each, and four or eight
a visible row where these do not lie side by side."""
TIME_CACHE = 16
"""Tenants, and times of `as_of`, for which what time says of each row is kept per view: a byte a
row."""
VIEWER_CACHE = 256
"""Viewers whose permission codes are kept per view."""


_LAPSED: NDArray[np.bool_] = np.array(
    [
        code_of(number) not in (None, Exclusion.SUPERSEDED, *UNNAMED_CODES)
        for number in range(len(Exclusion) + 1)
    ]
)
"""By code number: what may be named and is found by its own words. A replaced version is found by
its item."""


@dataclass(frozen=True, slots=True)
class SearchHits:
    """Visible rows that matched, with their raw scores, and how many rows
    permission rules removed.
    """

    dense_rows: Rows
    dense_scores: Floats
    lexical: LexicalHits
    lapsed: list[int]
    """The best by words of what time or an event rules out, other than by a later version; they
    weigh nothing."""
    denied: dict[Exclusion, int]


@dataclass(frozen=True, slots=True)
class _Slice:
    """What one viewer may see of a tenant's rows, between two moments."""

    codes: Codes
    visible: Rows
    """Places of the visible rows within the tenant's slice; empty where there is a plan."""
    plan: Plan | None
    readership: Readership
    lapsed: NDArray[np.bool_] | None
    """Places that may be named and are not visible, superseded ones aside; None where there are
    none."""
    denied: dict[Exclusion, int]
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class _Timed:
    """What time and events say of a tenant's rows, whoever looks, between two moments."""

    codes: Codes
    since: int
    until: int


class ArtifactReader:
    """One published artifact. Immutable, safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            self.manifest: dict[str, Any] = json.loads(
                (directory / "manifest.json").read_text(encoding="utf-8")
            )
        except (OSError, ValueError) as cause:
            raise Corrupt(
                "the serving artifact has no readable manifest",
                where=directory.name,
                fix="run `ctx build`",
            ) from cause
        if not _MANIFEST_KEYS.issubset(self.manifest):
            raise Corrupt(
                "the serving artifact's manifest is not whole",
                where=directory.name,
                fix="run `ctx build`",
            )
        if SEAL in self.manifest and not is_sealed(self.manifest):
            raise Corrupt(
                "the serving artifact's manifest is not what was written",
                where=directory.name,
                fix="run `ctx build`",
            )
        if self.manifest["format"] != FORMAT_VERSION:
            raise Unavailable(
                (
                    f"the serving artifact has format {self.manifest['format']}, "
                    f"this version reads {FORMAT_VERSION}"
                ),
                where=directory.name,
                fix="run `ctx build`",
                code="index_format",
            )
        check_artifact(directory, self.manifest)
        tables = {name: read_table(directory / f"{name}.arrow") for name in PARTS}
        self._tables = tables
        self.content_hash: str = self.manifest["content_hash"]
        self.overlay_sequence: int = self.manifest["generation"]["overlay_sequence"]
        self.tenants: dict[str, tuple[int, int]] = {
            tenant: (first, last) for tenant, (first, last) in self.manifest["tenants"].items()
        }
        self._tenant_starts = sorted(
            (first, tenant) for tenant, (first, last) in self.tenants.items() if first < last
        )
        self.sources: list[dict[str, Any]] = self.manifest["sources"]
        self._read_columns(tables)
        self.contested = Contested(tables["claims"])
        self.lexical = Lexical(tables)

    def _read_columns(self, tables: dict[str, pa.Table]) -> None:
        found, ranked, filtered = tables["discovered"], tables["ranked"], tables["filtered"]
        self.rows: int = found.num_rows
        self.chain: Any = numbers(found, "chain")
        self.subject: Any = numbers(found, "subject")
        self._edge_starts: Any = list_offsets(found.column("edges"))
        self._edge_targets: Any = list_values(found.column("edges"))
        self._related_starts: Any = list_offsets(found.column("related"))
        self._related_targets: Any = list_values(found.column("related"))
        self.forms = Forms(found.column("forms"), self.tenants)
        self._subject_order: Any = np.argsort(self.subject, kind="stable")
        self._sorted_subject: Any = self.subject[self._subject_order]
        self.kind: Any = numbers(ranked, "kind")
        self.section: Any = numbers(ranked, "section")
        self.source: Any = numbers(ranked, "source")
        self.when: Any = numbers(ranked, "when_to_load")
        self.authority: Any = numbers(ranked, "authority")
        self.confidence: Any = numbers(ranked, "confidence")
        self.verified_at: Any = numbers(ranked, "verified_at")
        self.content_number: Any = numbers(ranked, "content_number")
        self.dated_at: Any = numbers(ranked, "dated_at")
        self._span_from: Any = numbers(ranked, "span_from")
        self._span_until: Any = numbers(ranked, "span_until")
        self.twins: Any = numbers(ranked, "twins")
        self._signature_starts: Any = list_offsets(ranked.column("signature"))
        self._signatures: Any = list_values(ranked.column("signature"))
        self.labels = labels_of(filtered)
        self.state = StateColumns(
            scope=numbers(filtered, "scope"),
            state=numbers(filtered, "state"),
            tied=numbers(filtered, "tied").view(np.bool_),
            **{name: numbers(filtered, name) for name in TIME_COLUMNS},
        )
        vectors = tables["vectors"].column("vector").chunk(0) if found.num_rows else None
        dim: int = self.manifest["generation"]["dim"]
        self.vectors: Floats = (
            np.zeros((0, dim), np.float32)
            if vectors is None
            else vectors.values.to_numpy(zero_copy_only=True).reshape(-1, dim)
        )
        self._rows_when: dict[tuple[str, int], Rows] = {}
        self.quantised = Quantised(tables["quantised"], dim)
        self._strings = {name: Texts(found, name) for name in STRINGS}
        self.tool_table = tables["tools"]
        self.tools = tool_rows(self.tool_table)
        self.tool_rows_by_name = rows_by_name(self.tools)
        blocks = tables["transformed"]
        self._blocks = {level: Texts(blocks, level.value) for level in Rendition}
        self.tokens: dict[str, Any] = {
            encoding: np.stack(
                [
                    numbers(tables["budgeted"], f"{rendition.value}_{encoding}")
                    for rendition in Rendition
                ],
                axis=1,
            )
            for encoding in self.manifest["encodings"]
        }

    def text(self, column: str, row: int) -> str:
        """Return `item_id`, `version`, `title` or `subject_name` of a row."""
        return self._strings[column][row]

    def block(self, row: int, rendition: Rendition) -> str:
        """Return the text of a rendition; the full one where a compact one
        would save too little.
        """
        return self._blocks[rendition][row] or self._blocks[Rendition.FULL][row]

    def tenant_of(self, row: int) -> str:
        """Return the tenant of a row."""
        return self._tenant_starts[
            bisect_right(self._tenant_starts, row, key=lambda start: start[0]) - 1
        ][1]

    def find(self, tenant: str, item_id: str) -> range:
        """Return the rows of an item's versions, oldest first; an empty range
        when there is none.
        """
        first, last = self.tenants.get(tenant, (0, 0))
        low = bisect_texts(self._strings["item_id"], item_id, first, last)
        high = low
        while high < last and self.text("item_id", high) == item_id:
            high += 1
        return range(low, high)

    def other_versions(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, other row) for every other version of the rows' items."""
        chains: Any = self.chain[np.asarray(rows, np.intp)]
        first, last = spans(self.chain, chains)
        return [
            (rows[at], other)
            for at in np.flatnonzero(last - first > 1).tolist()
            for other in range(int(first[at]), int(last[at]))
            if other != rows[at]
        ]

    def same_subject(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, other row) for everything else that is about the rows' subjects, by row."""
        subjects: Any = self.subject[np.asarray(rows, np.intp)]
        first, last = spans(self._sorted_subject, subjects)
        return [
            (rows[at], other)
            for at in np.flatnonzero(subjects >= 0).tolist()
            for other in self._subject_order[first[at] : last[at]].tolist()
            if other != rows[at]
        ]

    def dependencies(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, row it needs to be understood) for the rows, in order."""
        where = np.asarray(rows, np.intp)
        first, last = self._edge_starts[where], self._edge_starts[where + 1]
        return [
            (rows[at], target)
            for at in np.flatnonzero(last > first).tolist()
            for target in self._edge_targets[first[at] : last[at]].tolist()
        ]

    def related(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, row that might help beside it) for the rows, in order."""
        where = np.asarray(rows, np.intp)
        first, last = self._related_starts[where], self._related_starts[where + 1]
        return [
            (rows[at], target)
            for at in np.flatnonzero(last > first).tolist()
            for target in self._related_targets[first[at] : last[at]].tolist()
        ]

    def spans(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return the time that each row is about, in microseconds, half-open; empty for none."""
        where = np.asarray(rows, np.intp)
        return list(
            zip(self._span_from[where].tolist(), self._span_until[where].tolist(), strict=True)
        )

    def signature(self, row: int) -> NDArray[np.uint32]:
        """Return the MinHash signature of a row that has `twins`."""
        return self._signatures[self._signature_starts[row] : self._signature_starts[row + 1]]

    def facts(self, rows: Sequence[int], encoding: str) -> RowFacts:
        """Return what serving needs of some rows, column by column."""
        where = np.asarray(rows, np.intp)
        return RowFacts(
            item_ids=self._strings["item_id"].at(where),
            versions=self._strings["version"].at(where),
            titles=self._strings["title"].at(where),
            kinds=self.kind[where].tolist(),
            sections=self.section[where].tolist(),
            sources=self.source[where].tolist(),
            whens=self.when[where].tolist(),
            subjects=self.subject[where].tolist(),
            authorities=self.authority[where].tolist(),
            confidences=self.confidence[where].tolist(),
            verified_at=self.verified_at[where].tolist(),
            valid_from=self.state.valid_from[where].tolist(),
            dated_at=self.dated_at[where].tolist(),
            contents=self.content_number[where].tolist(),
            tokens=self.tokens[encoding][where].tolist(),
        )

    def always_rows(self, tenant: str, code: int) -> Rows:
        """Return the tenant's rows with a `when_to_load` code."""
        rows = self._rows_when.get((tenant, code))
        if rows is None:
            first, last = self.tenants.get(tenant, (0, 0))
            rows = np.flatnonzero(self.when[first:last] == code) + first
            if tenant in self.tenants:
                self._rows_when[(tenant, code)] = rows
        return rows


_MANIFEST_KEYS = frozenset(
    {"format", "parts", "content_hash", "generation", "tenants", "sources", "encodings"}
)


class ServingView:
    """An artifact as the overlay leaves it at one overlay sequence. Safe to
    share between threads.
    """

    def __init__(
        self, reader: ArtifactReader, overlay_sequence: int, entries: Iterable[Entry]
    ) -> None:
        self.reader = reader
        self.overlay_sequence = overlay_sequence
        self.labels: list[ScopeLabel] = reader.labels
        self.state = reader.state
        self._permissions: OrderedDict[Viewer, Codes] = OrderedDict()
        self._slices: OrderedDict[tuple[Viewer, int | None], _Slice] = OrderedDict()
        self._timed: OrderedDict[tuple[str, int | None], _Timed] = OrderedDict()
        self._label_rows: dict[str, NDArray[np.intp]] = {}
        self._guard: PolicyGuard | None = None
        self._decisions: dict[Viewer, PolicyDecision] = {}
        self._lock = threading.Lock()
        patches = fold(entries)
        if patches:
            self.labels = list(reader.labels)
            self.state = writable_state(reader.state)
            for (tenant, item_id, version), patch in patches.items():
                rows = [
                    row
                    for row in reader.find(tenant, item_id)
                    if version is None or reader.text("version", row) == version
                ]
                if rows:
                    apply_patch(self.state, self.labels, np.asarray(rows, np.intp), patch)
            for tenant, item_id in {key[:2] for key in patches}:
                versions = reader.find(tenant, item_id)
                supersede_chain(self.state, versions.start, versions.stop)

    def guarded(self, guard: PolicyGuard) -> ServingView:
        """Return this view for one operation, in which a policy service is asked once for each
        viewer.

        What time says of the rows is the same for every operation, and shared.
        """
        view = copy.copy(self)
        view._guard = guard
        view._decisions = {}
        view._permissions, view._slices = OrderedDict(), OrderedDict()
        view._lock = threading.Lock()
        return view

    def decision(self, viewer: Viewer) -> PolicyDecision | None:
        """Return what the policy service decided for a viewer; None without a service."""
        if self._guard is not None:
            self.permissions(viewer)
        return self._decisions.get(viewer)

    def permissions(self, viewer: Viewer) -> Codes:
        """Return the permission code of every label for a viewer, after the policy service where
        there is one.
        """
        with self._lock:
            known = self._permissions.get(viewer)
            if known is None:
                known = label_codes(self.labels, viewer)
                if self._guard is not None:
                    narrowed = self._guard.narrow(self.labels, viewer, known)
                    known, self._decisions[viewer] = narrowed.codes, narrowed.decision
                self._permissions[viewer] = known
                while len(self._permissions) > VIEWER_CACHE:
                    self._permissions.popitem(last=False)
            else:
                self._permissions.move_to_end(viewer)
            return known

    def codes(self, rows: Rows | slice, viewer: Viewer, clock: Clock) -> Codes:
        """Return the visibility code of some rows: 0 is visible."""
        if not isinstance(rows, slice):
            first, last = self.reader.tenants.get(viewer.tenant, (0, 0))
            known = self._known_slice(viewer, clock)
            if known is not None and rows.size and rows.min() >= first and rows.max() < last:
                return known.codes[rows - first]
        return visibility_codes(state_of(self.state, rows), self.permissions(viewer), clock)

    def search(
        self, text: str, vector: Floats | None, *, viewer: Viewer, clock: Clock, limit: int
    ) -> SearchHits:
        """Return the best visible rows by meaning and by words. Permission is part of the query.

        `vector` is the query's embedding, L2-normalised; None searches words only.
        """
        first, last = self.reader.tenants.get(viewer.tenant, (0, 0))
        if first == last:
            return SearchHits(
                np.empty(0, np.intp), np.empty(0, np.float32), LexicalHits([], []), [], {}
            )
        seen = self._slice(first, last, viewer, clock)
        rows, scores = self._dense(vector, seen, first, limit)
        words = self.reader.lexical
        lexical = words.search(text, seen.readership, limit=limit)
        lapsed = (
            []
            if seen.lapsed is None
            else words.search(text, seen.readership, limit=limit, among=seen.lapsed).rows
        )
        return SearchHits(rows, scores, lexical, lapsed, dict(seen.denied))

    def _known_slice(self, viewer: Viewer, clock: Clock) -> _Slice | None:
        key = (viewer, clock.as_of)
        with self._lock:
            known = self._slices.get(key)
            if known is None or not known.since <= clock.at < known.until:
                return None
            self._slices.move_to_end(key)
            return known

    def _slice(self, first: int, last: int, viewer: Viewer, clock: Clock) -> _Slice:
        """Return what a viewer may see of a tenant's rows; kept until the next moment that changes
        it.
        """
        known = self._known_slice(viewer, clock)
        if known is not None:
            return known
        permissions, timed = (
            self.permissions(viewer),
            self._at_time(viewer.tenant, first, last, clock),
        )
        codes = joined_codes(permissions[self.state.scope[first:last]], timed.codes)
        visible = codes == 0
        plan = None
        if np.count_nonzero(visible) > EXACT_ROWS:
            plan = self.reader.quantised.plan(viewer.tenant, first, visible)
        places = np.flatnonzero(visible) if plan is None else np.empty(0, np.intp)
        denied = self._denied(viewer.tenant, first, last, permissions)
        readership = self.reader.lexical.readership(first, visible)
        lapsed = _LAPSED[codes]
        made = _Slice(
            codes,
            places,
            plan,
            readership,
            lapsed if lapsed.any() else None,
            denied,
            timed.since,
            timed.until,
        )
        with self._lock:
            self._slices[(viewer, clock.as_of)] = made
            while len(self._slices) > SLICE_CACHE:
                self._slices.popitem(last=False)
        return made

    def _at_time(self, tenant: str, first: int, last: int, clock: Clock) -> _Timed:
        """Return what time says of a tenant's rows; kept until the next moment that changes it."""
        key = (tenant, clock.as_of)
        with self._lock:
            known = self._timed.get(key)
        if known is None or not known.since <= clock.at < known.until:
            columns = state_of(self.state, slice(first, last))
            known = _Timed(time_codes(columns, clock), *unchanged_span(columns, clock))
            with self._lock:
                self._timed[key] = known
                while len(self._timed) > TIME_CACHE:
                    self._timed.popitem(last=False)
        return known

    def _denied(
        self, tenant: str, first: int, last: int, permissions: Codes
    ) -> dict[Exclusion, int]:
        """Return how many of a tenant's rows each permission rule removes."""
        with self._lock:
            rows = self._label_rows.get(tenant)
        if rows is None:
            rows = np.bincount(self.state.scope[first:last], minlength=len(self.labels))
            with self._lock:
                self._label_rows[tenant] = rows
        return {
            code: number
            for at, code in enumerate(PERMISSION_CODES, start=1)
            if (number := int(rows[permissions == at].sum()))
        }

    def _dense(
        self, vector: Floats | None, seen: _Slice, first: int, limit: int
    ) -> tuple[Rows, Floats]:
        """Return the nearest visible rows and their similarity, best first, ties by row."""
        if vector is None:
            return np.empty(0, np.intp), np.empty(0, np.float32)
        plan = seen.plan
        rows = (
            seen.visible + first
            if plan is None
            else self.reader.quantised.candidates(plan, vector, limit)
        )
        if len(rows) > limit:
            rows = rows[
                can_be_best(dot_rows(self.reader.vectors, rows, vector), limit, len(vector))
            ]
        scores = self.similarity(rows, vector)
        order = np.lexsort((rows, -scores))[:limit]
        return rows[order], scores[order]

    def similarity(self, rows: Sequence[int] | Rows, vector: Floats | None) -> Floats:
        """Return the cosine similarity of rows to a query vector: of each row the same, whatever
        stands beside it.
        """
        if vector is None or not len(rows):
            return np.zeros(len(rows), np.float32)
        chosen = self.reader.vectors[np.asarray(rows, np.intp)]
        return (chosen.astype(np.float64) @ vector.astype(np.float64)).astype(np.float32)


def _opened(directory: Path, content_hash: str) -> ArtifactReader:
    reader = ArtifactReader(directory)
    if reader.content_hash != content_hash:
        raise Corrupt(
            "the index pointer names another content than the artifact has",
            where=directory.name,
            fix="delete .ctx/derived and run `ctx build`",
        )
    return reader


class ServingIndex:
    """Opens the published artifact and keeps up with its pointer and the overlay."""

    def __init__(
        self,
        home: Path,
        *,
        overlay_sequence: Callable[[], int],
        overlay_since: Callable[[int], Iterable[Entry]],
        guard: PolicyGuard | None = None,
    ) -> None:
        self._guard = guard
        self._layout = Layout(home)
        self._overlay_sequence = overlay_sequence
        self._overlay_since = overlay_since
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._view: ServingView | None = None
        self._pinned = False

    def view(self) -> ServingView:
        """Return the current artifact under the current overlay, for one operation: the next one
        asks again.

        Raises:
            Unavailable: nothing has been built yet.
        """
        with self._lock:
            stamp = self._pointer_stamp()
            if self._view is None or stamp != self._stamp:
                reader = self._open()
                # After the artifact: one that was published meanwhile knows entries that were not
                # there before.
                self._view = self._at(reader, self._overlay_sequence())
                self._stamp = stamp
            elif (sequence := self._overlay_sequence()) != self._view.overlay_sequence:
                self._view = self._at(self._view.reader, sequence)
            return self._view if self._guard is None else self._view.guarded(self._guard)

    def _at(self, reader: ArtifactReader, sequence: int) -> ServingView:
        if sequence < reader.overlay_sequence:
            raise Corrupt(
                (
                    f"the ledger is older than the index: it ends at {sequence}, the "
                    f"index knows {reader.overlay_sequence}"
                ),
                where=".ctx/state",
                fix="restore .ctx/state from a backup as a whole",
                code="ledger_behind",
            )
        entries = self._overlay_since(reader.overlay_sequence)
        if self._pinned:
            # Who goes back to an older artifact wants the versions that have been replaced since.
            entries = [entry for entry in entries if entry.code != "superseded"]
        return ServingView(reader, sequence, entries)

    def _pointer_stamp(self) -> tuple[int, int]:
        try:
            stat = self._layout.pointer.stat()
        except FileNotFoundError:
            raise Unavailable(
                "this project has no index yet",
                where=".ctx/derived",
                fix="run `ctx build`",
                code="no_index",
            ) from None
        return stat.st_mtime_ns, stat.st_ino

    def _open(self) -> ArtifactReader:
        for attempt in range(3):
            pointer = read_pointer(self._layout)
            if pointer is None:
                break
            directory = self._layout.artifacts / pointer["artifact"]
            self._pinned = "pin" in pointer
            if self._view is not None and self._view.reader.directory == directory:
                return self._view.reader
            try:
                return _opened(directory, pointer["content_hash"])
            except Corrupt:
                # The pointer may have moved on and the old artifact gone between the two reads.
                if attempt == 2:
                    raise
        raise Unavailable(
            "this project has no index yet",
            where=".ctx/derived",
            fix="run `ctx build`",
            code="no_index",
        )
