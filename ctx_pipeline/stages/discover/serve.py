"""Discover: what might help this call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ctx_pipeline.contracts import ContextRequest, Exclusion, ItemKind, WhenToLoad
from ctx_pipeline.security.visibility import (
    UNNAMED_CODES,
    WITHDRAWN_CODES,
    Clock,
    Viewer,
    code_of,
)
from ctx_pipeline.stages import routing
from ctx_pipeline.stages.candidates import GLOSSARY, Candidate, CountTokens
from ctx_pipeline.stages.codebook import KINDS, SECTION_LIST, WHEN, WHEN_NAMES
from ctx_pipeline.stages.discover.expansion import add_named, named_terms
from ctx_pipeline.stages.discover.period_fiscal import PLAIN, Calendar
from ctx_pipeline.stages.discover.periods import Period, resolve, shown
from ctx_pipeline.stages.discover.queries import Query, search_all
from ctx_pipeline.stages.discover.request import (
    NO_LIMITS,
    Room,
    notice,
    request_candidates,
    task_text,
)
from ctx_pipeline.stages.sections import TOOLS

if TYPE_CHECKING:
    from ctx_pipeline.index.reader import Rows
    from ctx_pipeline.index.view import ServingView

NEIGHBOUR_DEPTH = 2
"""Steps along the dependency graph: metric -> table -> its base."""
NEIGHBOUR_DECAY = 0.85
"""Relevance that a step along the dependency graph keeps."""
RELATED_TO_ONE, MAX_RELATED = 6, 24
"""Items that come in because they might help beside one of the best hits, and beside all of them.
"""
_CODE = KINDS.index(ItemKind.CODE.value)
SIBLING_SUBJECTS = 16
"""Best hits whose other versions and namesakes are looked up."""
MAX_NAMESAKES = 64
"""Rows added because they are about a hit's subject: those of most authority."""
RIVALS_LOOKED_AT = 256
"""Visible rows looked at for what contradicts the hits."""
MAX_RIVALS = 16
"""Rows added because they contradict a hit: those of the best hits first, of one hit those of most
authority."""
VECTOR, LEXICAL, DEPENDENCY, RELATED = "vector", "lexical", "dependency", "related"
"""Ways of being found that ranking looks at."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """Candidates by where they came from, how many rows permission rules removed, and the periods
    of the request.
    """

    candidates: Sequence[Candidate]
    denied: dict[Exclusion, int]
    periods: tuple[Period, ...] = ()


def serve(
    request: ContextRequest,
    view: ServingView,
    *,
    viewer: Viewer,
    clock: Clock,
    queries: Sequence[Query],
    limit: int,
    tokens_of: CountTokens,
    encoding: str,
    room: Room = NO_LIMITS,
    calendar: Calendar = PLAIN,
) -> Discovered:
    """Find everything that might help: proactive items, search hits, their neighbours, other
    versions, the request.

    `queries` are those of `plan_queries` with their vectors. `tokens_of` counts the tokens of a
    text; `room` is what the parts of the request may take, `calendar` how time words are counted.
    Order of the candidates carries no meaning.
    """
    named = named_terms(queries[0].text, view, viewer, clock)
    hits = search_all(view, queries, viewer=viewer, clock=clock, limit=limit)
    found = _Finder(view, viewer, clock)
    for row in named.rows:
        found.add(row, GLOSSARY)
    for code in (WhenToLoad.ALWAYS, WhenToLoad.PREFETCH):
        for row in found.permitted(
            view.reader.always_rows(viewer.tenant, WHEN.index(code)).tolist()
        ):
            found.add(row, code.value)
    if request.messages and request.tools is None:
        for row in routing.called_rows(view.reader, request, found.standing):
            found.add(row, routing.REFERENCED)
    dense, lexical = hits.dense, hits.lexical
    add_named(lexical, named, view, viewer=viewer, clock=clock, limit=limit)
    for row in dense:
        found.add(row, VECTOR)
    for row in lexical:
        found.add(row, LEXICAL)
    missing = [row for row in found.by_row if row not in dense]
    dense.update(zip(missing, hits.similarity(missing), strict=True))
    best = sorted(
        found.standing(list(found.by_row)), key=lambda row: (-dense[row] - (row in lexical), row)
    )
    found.add_neighbours()
    found.add_siblings(best)
    found.add_related(best)
    found.add_rivals(best)
    found.add_lapsed(hits.lapsed)
    candidates = found.candidates(encoding, dense, lexical)
    periods = resolve(task_text(request), clock.at, calendar)
    if periods:
        # A model does not know today's date.
        candidates.append(notice("periods", shown(periods, clock.at), tokens_of))
    return Discovered(
        [*candidates, *request_candidates(request, tokens_of, room)], hits.denied, periods
    )


class _Finder:
    """Collects rows and how each was found; a row becomes one candidate however
    often it is found.
    """

    def __init__(self, view: ServingView, viewer: Viewer, clock: Clock) -> None:
        self.view = view
        self.reader = view.reader
        self.viewer = viewer
        self.clock = clock
        self.by_row: dict[int, list[str]] = {}
        self.parents: dict[int, int] = {}
        self.needs: dict[int, list[int]] = {}

    def add(self, row: int, how: str) -> None:
        ways = self.by_row.setdefault(row, [])
        if how not in ways:
            ways.append(how)

    def add_neighbours(self) -> None:
        """Follow the dependencies of what has been found, through permitted items only that nobody
        has withdrawn.
        """
        frontier = self.standing(list(self.by_row))
        for _ in range(NEIGHBOUR_DEPTH):
            reached: dict[int, int] = {}
            for row, target in self.reader.dependencies(frontier):
                self.needs.setdefault(row, []).append(target)
                if target != row:
                    reached.setdefault(target, row)
            # What was also a weak hit of its own is needed all the same.
            known = [row for row in reached if row in self.by_row]
            new = self.permitted([row for row in reached if row not in self.by_row])
            for row in (*known, *new):
                self.add(row, DEPENDENCY)
                self.parents.setdefault(row, reached[row])
            frontier = self.standing(new)

    def add_siblings(self, best: Sequence[int]) -> None:
        """Add other versions of what has been found, and whatever else is about the best hits'
        subjects.
        """
        related: dict[int, tuple[str, int]] = {}
        for row, other in self.reader.other_versions(list(self.by_row)):
            related.setdefault(other, ("version", row))
        for row, other in self.reader.same_subject(best[:SIBLING_SUBJECTS]):
            related.setdefault(other, ("subject", row))
        found = self.permitted(list(related))
        namesakes = [row for row in found if related[row][0] == "subject"]
        if len(namesakes) > MAX_NAMESAKES:
            standing = set(self.standing(namesakes))
            namesakes.sort(
                key=lambda row: (row not in standing, -int(self.reader.authority[row]), row)
            )
            left_out = set(namesakes[MAX_NAMESAKES:])
            found = [row for row in found if row not in left_out]
        for row in found:
            how, parent = related[row]
            self.add(row, how)
            self.parents.setdefault(row, parent)

    def add_related(self, best: Sequence[int]) -> None:
        """Add what might help beside the best hits, through permitted items
        only; nothing needs it.
        """
        hits = list(best[:SIBLING_SUBJECTS])
        # Tests cover files; a hit in one is a symbol of it.
        code = (row for row in hits if self.reader.kind[row] == _CODE)
        hits += self.standing(
            [need for row in code for need in self.needs.get(row, ()) if need not in hits]
        )
        pairs = [
            (row, other) for row, other in self.reader.related(hits) if other not in self.by_row
        ]
        permitted = set(self.standing(list({other for _, other in pairs})))
        beside: dict[int, int] = defaultdict(int)
        added: set[int] = set()
        for row, other in pairs:
            if (
                other in permitted
                and other not in added
                and beside[row] < RELATED_TO_ONE
                and len(added) < MAX_RELATED
            ):
                beside[row] += 1
                added.add(other)
                self.add(other, RELATED)
                self.parents.setdefault(other, row)

    def add_lapsed(self, rows: Sequence[int]) -> None:
        """Add what words find and time or an event rules out; it comes last, so that it leads to
        nothing else.
        """
        for row in rows:
            ways = self.by_row.setdefault(row, [])
            if LEXICAL not in ways:
                ways.insert(0, LEXICAL)

    def add_rivals(self, best: Sequence[int]) -> None:
        """Add what contradicts the hits, so that both sides are known where only one was found."""
        found = self.reader.contested.rivals(best, RIVALS_LOOKED_AT, self._visible)
        rivals = {other: row for row, other in found}
        new = [row for row in rivals if row not in self.by_row]
        place = {row: at for at, row in enumerate(best)}
        new.sort(key=lambda row: (place[rivals[row]], -int(self.reader.authority[row]), row))
        for row in new[:MAX_RIVALS]:
            self.add(row, "claim")
            self.parents.setdefault(row, rivals[row])

    def _visible(self, rows: Rows) -> list[int]:
        """Return the rows that may be shown now."""
        return (
            rows[self.view.codes(rows, self.viewer, self.clock) == 0].tolist() if rows.size else []
        )

    def permitted(self, rows: list[int]) -> list[int]:
        """Return the rows that may be named, so that none other leads to a candidate; time may
        still rule them out.
        """
        return self._without(rows, UNNAMED_CODES)

    def standing(self, rows: list[int]) -> list[int]:
        """Return the rows that may be named and that nobody has withdrawn: what
        leads on to others.
        """
        return self._without(rows, UNNAMED_CODES | WITHDRAWN_CODES)

    def _without(self, rows: list[int], ruled_out: frozenset[Exclusion]) -> list[int]:
        if not rows:
            return []
        codes = self.view.codes(np.asarray(rows, np.intp), self.viewer, self.clock).tolist()
        return [
            row for row, code in zip(rows, codes, strict=True) if code_of(code) not in ruled_out
        ]

    def candidates(
        self, encoding: str, dense: Mapping[int, float], lexical: Mapping[int, float]
    ) -> list[Candidate]:
        """Read the columns of everything found, once, and make the candidates."""
        rows = list(self.by_row)
        facts = self.reader.facts(rows, encoding)
        names = dict(zip(rows, facts.item_ids, strict=True))
        sources, labels = self.reader.sources, self.view.labels
        scopes: list[int] = self.view.state.scope[np.asarray(rows, np.intp)].tolist()
        made: list[Candidate] = []
        for at, row in enumerate(rows):
            source = sources[facts.sources[at]]
            section = SECTION_LIST[facts.sections[at]]
            full, compact, pointer = facts.tokens[at]
            label = labels[scopes[at]]
            parent = self.parents.get(row)
            made.append(
                Candidate(
                    item_id=facts.item_ids[at],
                    version=facts.versions[at],
                    kind=KINDS[facts.kinds[at]],
                    title=facts.titles[at],
                    source=source["name"],
                    section=section,
                    row=row,
                    subject=facts.subjects[at],
                    authority=facts.authorities[at],
                    confidence=facts.confidences[at],
                    trust=label.trust,
                    tailored=bool(label.task_types or label.agent_visibility),
                    protected=section == "policy",
                    when_to_load=WHEN_NAMES[facts.whens[at]],
                    # A pointer to a tool cannot be called.
                    tokens=(full, compact, 0 if section == TOOLS else pointer),
                    verified_at=facts.verified_at[at],
                    fail_after=source["fail_after"],
                    content=facts.contents[at],
                    valid_from=facts.valid_from[at],
                    dated_at=facts.dated_at[at],
                    discovered_by=self.by_row[row],
                    parent=_parent_id(
                        facts.item_ids[at], None if parent is None else names.get(parent)
                    ),
                    needs=tuple(self.needs.get(row, ())),
                    dense=dense.get(row, 0.0),
                    lexical=lexical.get(row, 0.0),
                )
            )
        return made


def _parent_id(item_id: str, parent: str | None) -> str | None:
    """A version that its own item brought in has no parent."""
    return None if parent == item_id else parent
