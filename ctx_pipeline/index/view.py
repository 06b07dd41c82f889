"""An artifact as one overlay leaves it: exact vectors and lexical search, under one predicate."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.contracts.codes import PERMISSION_CODES, Exclusion
from ctx_pipeline.index.columns import (
    state_of,
    unchanged_span,
    writable_state,
)
from ctx_pipeline.index.lexical import LexicalHits, Readership
from ctx_pipeline.index.overlay import Entry, apply_patch, fold, supersede_chain
from ctx_pipeline.index.quantised import Plan, can_be_best, dot_rows
from ctx_pipeline.index.reader import ArtifactReader, Floats, Rows
from ctx_pipeline.security.visibility import (
    UNNAMED_CODES,
    Clock,
    Codes,
    ScopeLabel,
    Viewer,
    code_of,
    joined_codes,
    label_codes,
    time_codes,
    visibility_codes,
)

if TYPE_CHECKING:
    from ctx_pipeline.contracts import PolicyDecision
    from ctx_pipeline.security.policy_service import PolicyGuard

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
