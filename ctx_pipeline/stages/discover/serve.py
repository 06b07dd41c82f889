"""Discover: what might help this call. The batch half writes identities, vectors and the dependency graph."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import ValidationError

from ctx_pipeline.contracts import ContextRequest, Exclusion, ItemKind, Message, Trust, WhenToLoad
from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.index.relations import related_rows
from ctx_pipeline.index.rows import Row, edges, subjects
from ctx_pipeline.security.visibility import UNNAMED_CODES, Clock, Viewer, code_of
from ctx_pipeline.stages import routing
from ctx_pipeline.stages.blocks import BlockLabels, Blocks, make_blocks
from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.codebook import KINDS, SECTION_LIST, WHEN, WHEN_NAMES
from ctx_pipeline.stages.discover.clusters import cluster_observations
from ctx_pipeline.stages.discover.expansion import add_named, named_terms
from ctx_pipeline.stages.discover.periods import Period, resolve, shown
from ctx_pipeline.stages.discover.queries import Query, search_all
from ctx_pipeline.stages.sections import TOOLS
from ctx_pipeline.text import canonical_json, repair_json, short_hash
from ctx_pipeline.tools.compact import compact_tool
from ctx_pipeline.tools.definition import ToolDefinition, flatten_tools, tool_content

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.reader import Floats, Rows, ServingView

NEIGHBOUR_DEPTH = 2
"""Steps along the dependency graph: metric -> table -> its base."""
NEIGHBOUR_DECAY = 0.85
"""Relevance that a step along the dependency graph keeps."""
RELATED_TO_ONE, MAX_RELATED = 6, 24
"""Items that come in because they might help beside one of the best hits, and beside all of them."""
_CODE = KINDS.index(ItemKind.CODE.value)
SIBLING_SUBJECTS = 16
"""Best hits whose other versions and namesakes are looked up."""
MAX_NAMESAKES = 64
"""Rows added because they are about a hit's subject: those of most authority."""
RIVALS_LOOKED_AT = 256
"""Visible rows looked at for what contradicts the hits."""
MAX_RIVALS = 16
"""Rows added because they contradict a hit: those of the best hits first, of one hit those of most authority."""
CountTokens = Callable[[str], int]
REQUEST_SOURCE = "request"
VECTOR, LEXICAL, DEPENDENCY, RELATED, GLOSSARY = (
    "vector",
    "lexical",
    "dependency",
    "related",
    "glossary",
)
"""Ways of being found that ranking looks at."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """Candidates by where they came from, how many rows permission rules removed, and the periods of the request."""

    candidates: list[Candidate]
    denied: dict[Exclusion, int]
    periods: tuple[Period, ...] = ()


def batch(rows: Sequence[Row]) -> pa.Table:
    """Return what identifies each row and what it is connected to.

    Columns: tenant, item_id, version, title, subject_name, subject (its number, -1 for none), chain, edges (rows it
    needs), related (rows that might help beside it), forms (names it is asked for by).
    """
    import pyarrow as pa

    numbers, _ = subjects(rows)
    needed = edges(rows)
    row_lists = pa.list_(pa.field("item", pa.int32()))
    return pa.table(
        {
            "tenant": pa.array([row.tenant for row in rows], pa.large_string()),
            "item_id": pa.array([row.item_id for row in rows], pa.large_string()),
            "version": pa.array([row.version for row in rows], pa.large_string()),
            "title": pa.array([row.title for row in rows], pa.large_string()),
            "subject_name": pa.array([row.subject or "" for row in rows], pa.large_string()),
            "subject": pa.array(numbers, pa.int32()),
            "chain": pa.array([row.chain for row in rows], pa.int32()),
            "edges": pa.array(needed, row_lists),
            "related": pa.array(related_rows(rows, needed), row_lists),
            "forms": pa.array([row.forms for row in rows], pa.list_(pa.field("item", pa.string()))),
        }
    )


def vector_table(vectors: Floats) -> pa.Table:
    """Return the vectors of all rows as one column of fixed-size lists."""
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1), pa.float32())
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})


def quantised_table(vectors: Floats, rows: Sequence[Row]) -> pa.Table:
    """Return the small copies of the vectors that searches of large tenants read."""
    from ctx_pipeline.index import quantised

    return quantised.quantised_table(vectors, rows)


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
) -> Discovered:
    """Find everything that might help: proactive items, search hits, their neighbours, other versions, the request.

    `queries` are those of `plan_queries` with their vectors. `tokens_of` counts the tokens of a text. Order of the
    candidates carries no meaning.
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
        for row in routing.called_rows(view.reader, request, found.permitted):
            found.add(row, routing.REFERENCED)
    dense, lexical = hits.dense, hits.lexical
    add_named(lexical, named, view, viewer=viewer, clock=clock, limit=limit)
    for row in dense:
        found.add(row, VECTOR)
    for row in lexical:
        found.add(row, LEXICAL)
    missing = [row for row in found.by_row if row not in dense]
    dense.update(zip(missing, hits.similarity(missing), strict=True))
    best = sorted(found.by_row, key=lambda row: (-dense[row] - (row in lexical), row))
    found.add_neighbours()
    found.add_siblings(best)
    found.add_related(best)
    found.add_rivals(best)
    candidates = found.candidates(encoding, dense, lexical)
    periods = resolve(_task_text(request), clock.at)
    if periods:
        # A model does not know today's date.
        candidates.append(notice("periods", shown(periods, clock.at), tokens_of))
    return Discovered([*candidates, *request_candidates(request, tokens_of)], hits.denied, periods)


class _Finder:
    """Collects rows and how each was found; a row becomes one candidate however often it is found."""

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
        """Follow the dependencies of what has been found, through permitted items only."""
        frontier = list(self.by_row)
        for _ in range(NEIGHBOUR_DEPTH):
            reached: dict[int, int] = {}
            for row, target in self.reader.dependencies(frontier):
                self.needs.setdefault(row, []).append(target)
                if target != row:
                    reached.setdefault(target, row)
            # What was also a weak hit of its own is needed all the same.
            known = [row for row in reached if row in self.by_row]
            frontier = self.permitted([row for row in reached if row not in self.by_row])
            for row in (*known, *frontier):
                self.add(row, DEPENDENCY)
                self.parents.setdefault(row, reached[row])

    def add_siblings(self, best: Sequence[int]) -> None:
        """Add other versions of what has been found, and whatever else is about the best hits' subjects."""
        related: dict[int, tuple[str, int]] = {}
        for row, other in self.reader.other_versions(list(self.by_row)):
            related.setdefault(other, ("version", row))
        for row, other in self.reader.same_subject(best[:SIBLING_SUBJECTS]):
            related.setdefault(other, ("subject", row))
        found = self.permitted(list(related))
        namesakes = [row for row in found if related[row][0] == "subject"]
        if len(namesakes) > MAX_NAMESAKES:
            namesakes.sort(key=lambda row: (-int(self.reader.authority[row]), row))
            left_out = set(namesakes[MAX_NAMESAKES:])
            found = [row for row in found if row not in left_out]
        for row in found:
            how, parent = related[row]
            self.add(row, how)
            self.parents.setdefault(row, parent)

    def add_related(self, best: Sequence[int]) -> None:
        """Add what might help beside the best hits, through permitted items only; nothing needs it."""
        hits = list(best[:SIBLING_SUBJECTS])
        # Tests cover files; a hit in one is a symbol of it.
        code = (row for row in hits if self.reader.kind[row] == _CODE)
        hits += [need for row in code for need in self.needs.get(row, ()) if need not in hits]
        pairs = [
            (row, other) for row, other in self.reader.related(hits) if other not in self.by_row
        ]
        permitted = set(self.permitted(list({other for _, other in pairs})))
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
        """Return the rows that may be named, so that none other leads to a candidate; time may still rule them out."""
        if not rows:
            return []
        codes = self.view.codes(np.asarray(rows, np.intp), self.viewer, self.clock).tolist()
        return [
            row for row, code in zip(rows, codes, strict=True) if code_of(code) not in UNNAMED_CODES
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


def request_candidates(request: ContextRequest, tokens_of: CountTokens) -> list[Candidate]:
    """Turn what came with the request into candidates: task, permission scope, state, history, observations, goal."""
    made = [
        _request_item(ItemKind.TASK, "task", "task", _task_text(request), tokens_of, protected=True)
    ]
    if request.identity is not None:
        made.append(
            _request_item(
                ItemKind.STATE,
                "scope",
                "state",
                _scope_text(request),
                tokens_of,
                protected=True,
                order=-1,
            )
        )
    if request.state:
        made.append(
            _request_item(
                ItemKind.STATE,
                "state",
                "state",
                _json_text(request.state),
                tokens_of,
                protected=True,
            )
        )
    if request.response_format is not None:
        made.append(
            _request_item(
                ItemKind.TASK,
                "response_format",
                "task",
                _json_text(request.response_format),
                tokens_of,
                protected=True,
                order=1,
            )
        )
    for number, message in enumerate(request.messages):
        text = _message_text(message)
        made.append(
            _request_item(
                ItemKind.HISTORY, f"message/{number}", "history", text, tokens_of, order=number
            )
        )
    names: set[str] = set()
    for number, seen in enumerate(request.observations):
        made.append(
            _request_item(
                ItemKind.OBSERVATION,
                _unused(f"observation/{seen.observation_id}", names),
                "observations",
                seen.content,
                tokens_of,
                order=number,
                trust=Trust.TOOL_UNTRUSTED,
            )
        )
    cluster_observations(made, request, tokens_of)
    made.extend(_offered_tools(request, tokens_of))
    goal = _goal_text(request)
    if goal:
        made.append(_request_item(ItemKind.TASK, "goal", "goal", goal, tokens_of, protected=True))
    return made


def notice(name: str, text: str, tokens_of: CountTokens) -> Candidate:
    """Tell the model something of the call itself: always shown, except where it does not fit beside the rest."""
    item = _request_item(ItemKind.STATE, name, "state", text, tokens_of, protected=True, order=1)
    item.spare = True
    return item


def _message_text(message: Message) -> str:
    """Return a message as the model reads it: who, which call it answers, the text, then one line for each call."""
    known = (
        {"tool_call_id": message.tool_call_id, "name": message.name}
        if message.role == "tool"
        else {}
    )
    answers = {name: value for name, value in known.items() if value is not None}
    head = f"{message.role} {canonical_json(answers)}" if answers else message.role
    calls = [f"tool_call {canonical_json(_call(call))}" for call in message.tool_calls]
    return "\n".join([f"{head}: {message.content}", *calls])


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return id, name and arguments of a call, nested or flat; a call of another form stays as it is."""
    inner: Any = call.get("function", call)
    if not isinstance(inner, dict) or "name" not in inner:
        return dict(call)
    function = cast("dict[str, Any]", inner)
    arguments = function.get("arguments", function.get("input"))
    known = {"id": call.get("id"), "name": function["name"], "arguments": _arguments(arguments)}
    return {name: value for name, value in known.items() if value is not None}


def _arguments(value: Any) -> Any:
    """Return arguments as a value, so that blanks and the order of keys make no difference; else the text as it is."""
    if not isinstance(value, str):
        return value
    try:
        return repair_json(json.loads(value))
    except (ValueError, RecursionError):
        return value


def _unused(name: str, names: set[str]) -> str:
    """Return the name, with `~2`, `~3` ... where it is taken: two results under one id are two candidates."""
    free, number = name, 1
    while free in names:
        number += 1
        free = f"{name}~{number}"
    names.add(free)
    return free


def _request_item(
    kind: ItemKind,
    name: str,
    section: str,
    text: str,
    tokens_of: CountTokens,
    *,
    protected: bool = False,
    order: int = 0,
    trust: Trust = Trust.USER,
) -> Candidate:
    version = short_hash(text)
    item_id = f"{kind.value}:{REQUEST_SOURCE}/{name}"
    labels = BlockLabels(
        item_id=item_id, version=version, title="", source=REQUEST_SOURCE, trust=trust.value
    )
    blocks: Blocks = make_blocks(labels, text)
    # What is protected is always shown whole.
    smaller = (None, None) if protected else (blocks.compact, blocks.pointer)
    counts = tuple(0 if block is None else tokens_of(block) for block in (blocks.full, *smaller))
    return Candidate(
        item_id=item_id,
        version=version,
        kind=kind.value,
        title=name,
        source=REQUEST_SOURCE,
        section=section,
        authority=100 if protected else 50,
        trust=trust.value,
        protected=protected,
        tokens=(counts[0], counts[1], counts[2]),
        blocks=blocks,
        order=order,
        discovered_by=[REQUEST_SOURCE],
    )


def _offered_tools(request: ContextRequest, tokens_of: CountTokens) -> list[Candidate]:
    """Return the caller's own tools, in the caller's order.

    Raises:
        InvalidRequest: one of them is no tool definition, or has the name of an earlier one.
    """
    made: list[Candidate] = []
    places: dict[str, int] = {}
    for number, value in enumerate(flatten_tools(list(request.tools or ()))):
        try:
            content = tool_content(ToolDefinition.model_validate(value))
        except ValidationError as cause:
            raise InvalidRequest(
                "a tool of the request is no tool definition",
                where=f"tools[{number}]",
                fix="give name, description and input_schema (or parameters), as MCP or OpenAI functions do",
                code="invalid_tool",
            ) from cause
        name = str(json.loads(content)["name"])
        first = places.setdefault(name, number)
        if first != number:
            raise InvalidRequest(
                f"a tool of the request repeats the name of tools[{first}]",
                where=f"tools[{number}]",
                fix="give every tool its own name",
                code="invalid_tool",
            )
        full, compact = content + "\n", _compact_line(content)
        made.append(
            Candidate(
                item_id=f"{ItemKind.TOOL.value}:{REQUEST_SOURCE}/{name}",
                version=short_hash(content),
                kind=ItemKind.TOOL.value,
                title=name,
                source=REQUEST_SOURCE,
                section=TOOLS,
                authority=50,
                trust=Trust.USER.value,
                tokens=(tokens_of(full), 0 if compact is None else tokens_of(compact), 0),
                blocks=Blocks(full=full, compact=compact, pointer=""),
                order=number,
                discovered_by=[REQUEST_SOURCE],
            )
        )
    return made


@lru_cache(maxsize=1_024)
def _compact_line(content: str) -> str | None:
    """Return a tool's compact rendition; callers offer the same tools again and again."""
    short = compact_tool(content)
    return None if short is None else short + "\n"


def _task_text(request: ContextRequest) -> str:
    lines = [request.task.text]
    lines.extend(f"Constraint: {constraint}" for constraint in request.task.constraints)
    return "\n".join(lines)


def _goal_text(request: ContextRequest) -> str:
    lines = [] if request.task.goal is None else [f"Goal: {request.task.goal}"]
    lines.extend(f"[ ] {step}" for step in request.task.todo)
    return "\n".join(lines)


def _scope_text(request: ContextRequest) -> str:
    identity = request.identity
    assert identity is not None, "the engine sets the identity"
    scope = {
        "tenant": identity.tenant,
        "groups": sorted(identity.groups),
        "clearance": identity.clearance.value,
        "environment": identity.environment,
        "purpose": identity.purpose,
    }
    known = {name: value for name, value in scope.items() if value}
    return "What this caller may see: " + canonical_json(known)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
