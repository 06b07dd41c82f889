"""Routing: which tools of the catalogue a call may show. The batch half says what each tool is
like.

What a model sees is not what it may do: whoever runs a tool decides about that again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctx_pipeline.contracts import ContextRequest, EffectivePolicy, Exclusion, ItemKind, ToolRules
from ctx_pipeline.index.rows import Row
from ctx_pipeline.security.visibility import NEVER, STATE_LIVE, ScopeLabel
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict
from ctx_pipeline.stages.sections import TOOLS
from ctx_pipeline.tools.catalogue import CatalogueTool, CountMany, ToolRow, catalogue_table
from ctx_pipeline.tools.compact import compact_tool
from ctx_pipeline.tools.provider_form import renamed
from ctx_pipeline.tools.traits import RISKS

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.contracts import ContextItem
    from ctx_pipeline.index.overlay import ItemKey, Patch
    from ctx_pipeline.index.reader import ArtifactReader

REFERENCED = "history"
"""How a tool was found that the conversation has called."""
LOOKING_PHASES = frozenset({"discover", "explore", "understand", "verify"})
"""Phases in which nothing is changed."""
STRONG_RELEVANCE = 0.9
"""Above this share of the most relevant tool's relevance a tool is what the task asks for, and its
risk no reason to hide it."""
ANY_PHASE = "default"
"""The phase of a caller that names none."""


def batch(
    rows: Sequence[Row],
    items: Sequence[ContextItem],
    patches: Mapping[ItemKey, Patch],
    phases: Mapping[str, tuple[str, ...]],
    encoding: str,
    count_many: CountMany,
) -> pa.Table:
    """Return what is known of each tool beside its text (`catalogue_table`).

    `items` are those of `tool_places`; `phases` are those of sources whose tools may declare none.
    """
    newest = {row.key: at for at, row in enumerate(rows)}
    tools = [
        CatalogueTool(
            row=at,
            item_id=rows[at].item_id,
            title=rows[at].title,
            tenant=rows[at].tenant,
            source=rows[at].source,
            phases=phases.get(rows[at].source, ()),
            content=item.content or "{}",
            live=newest[rows[at].key] == at and not is_withdrawn(rows[at], patches),
            label=label_today(rows[at], patches),
        )
        for at, item in zip(tool_places(rows), items, strict=True)
    ]
    return catalogue_table(tools, encoding, count_many)


def tool_places(rows: Sequence[Row]) -> list[int]:
    """Return which rows are tools."""
    return [at for at, row in enumerate(rows) if row.kind == ItemKind.TOOL.value]


def is_withdrawn(row: Row, patches: Mapping[ItemKey, Patch]) -> bool:
    """Return whether a row has been retired or set aside."""
    return any(
        patch.state not in (None, STATE_LIVE) or patch.retired_at not in (None, NEVER)
        for patch in _of(row, patches)
    )


def _of(row: Row, patches: Mapping[ItemKey, Patch]) -> list[Patch]:
    found = (patches.get((row.tenant, row.item_id, version)) for version in (None, row.version))
    return [patch for patch in found if patch is not None]


def label_today(row: Row, patches: Mapping[ItemKey, Patch]) -> ScopeLabel:
    """Return who may see a row after what was revoked."""
    found = _of(row, patches)
    return replace(
        row.label,
        revoked_principals=tuple(
            sorted({name for patch in found for name in patch.revoked_principals})
        ),
        revoked_groups=tuple(sorted({name for patch in found for name in patch.revoked_groups})),
    )


def with_shown_names(blocks: pa.Table, tools: pa.Table) -> pa.Table:
    """Return the renditions of all rows with every tool under the name that models know it by."""
    import pyarrow as pa

    places: list[int] = []
    full: list[str] = []
    compact: list[str | None] = []
    pointer: list[str] = []
    for row, name, own in zip(
        *(tools.column(key).to_pylist() for key in ("row", "name", "tool_name")), strict=True
    ):
        if name != own:
            content = renamed(blocks.column("full")[row].as_py().rstrip("\n"), name)
            places.append(row)
            full.append(content + "\n")
            compact.append(_line(compact_tool(content)))
            pointer.append(blocks.column("pointer")[row].as_py())
    patch = {"full": full, "compact": compact, "pointer": pointer}
    columns = {
        name: pa.array(values, blocks.schema.field(name).type) for name, values in patch.items()
    }
    return replaced_rows(blocks, places, pa.table(columns))


def renamed_rows(tools: pa.Table) -> list[int]:
    """Return the rows whose renditions do not follow from their items alone, because their tools
    are renamed.
    """
    names = zip(
        *(tools.column(key).to_pylist() for key in ("row", "name", "tool_name")), strict=True
    )
    return [row for row, name, own in names if name != own]


def replaced_rows(table: pa.Table, places: Sequence[int], rows: pa.Table) -> pa.Table:
    """Return a table with `rows` at `places`."""
    import pyarrow as pa

    if not places:
        return table
    order = list(range(table.num_rows))
    for number, place in enumerate(places):
        order[place] = table.num_rows + number
    return pa.concat_tables([table, rows]).combine_chunks().take(pa.array(order, pa.int64()))


def _line(text: str | None) -> str | None:
    return None if text is None else text + "\n"


def called_rows(
    reader: ArtifactReader, request: ContextRequest, standing: Callable[[list[int]], list[int]]
) -> list[int]:
    """Return the rows of the tools that the conversation calls: those that show a name, else those
    that own it.

    `standing` keeps the rows that may be named and stand, so that what else goes by a name makes no
    difference.
    """
    names: dict[str, None] = {}
    for message in request.messages:
        for call in message.tool_calls:
            inner: Any = call.get("function", call)
            name: Any = (
                cast("dict[str, Any]", inner).get("name") if isinstance(inner, dict) else None
            )
            if isinstance(name, str):
                names[name] = None
    named = [reader.tool_rows_by_name[name] for name in names if name in reader.tool_rows_by_name]
    return [row for rows in named for row in standing(rows.shown) or standing(rows.owned)]


def prefer_offered(judged: Judged, request: ContextRequest) -> Judged:
    """A caller that offers tools of its own gets none of the catalogue's."""
    if request.tools is None:
        return judged
    return judged.ruled(
        {
            candidate: judged.verdicts[candidate].out(
                Exclusion.LOW_RANK, "the request offers its own tools"
            )
            for candidate in judged.indexed()
            if candidate.section == TOOLS
        }
    )


def serve(
    judged: Judged,
    tools: Mapping[int, ToolRow],
    policy: EffectivePolicy,
    request: ContextRequest,
) -> Judged:
    """Leave out the tools that this phase, risk or policy does not show; each says what would let
    it in.

    Of tools that a model knows by one name the one of highest authority stays, then score, then id.
    Candidates are in order of score. A tool that the conversation has called stays, whatever its
    risk: providers refuse a conversation whose tools are missing.
    """
    routed = judged.ruled(_by_phase_and_risk(judged, _free(judged, tools), tools, policy, request))
    routed = routed.ruled(_one_of_each_name(routed, tools))
    most = policy.tools.candidates
    if most is None:
        return routed
    beyond = f"not among the best {most} tools (tools.candidates)"
    return routed.ruled(
        {
            candidate: routed.verdicts[candidate].out(Exclusion.LOW_RANK, beyond)
            for candidate in _free(routed, tools)[most:]
        }
    )


def _free(judged: Judged, tools: Mapping[int, ToolRow]) -> list[Candidate]:
    """Return the tools of the catalogue that no conversation refers to, best first."""
    return [
        c
        for c in judged.alive()
        if c.section == TOOLS and c.row in tools and REFERENCED not in c.discovered_by
    ]


def _by_phase_and_risk(
    judged: Judged,
    candidates: Sequence[Candidate],
    tools: Mapping[int, ToolRow],
    policy: EffectivePolicy,
    request: ContextRequest,
) -> dict[Candidate, Verdict]:
    most, share = _limits(policy.tools, request)
    verdicts = judged.verdicts
    strong = share * max((verdicts[c].features["relevance"] for c in candidates), default=0.0)
    out: dict[Candidate, Verdict] = {}
    for candidate in candidates:
        tool, verdict = tools[candidate.row], verdicts[candidate]
        relevance = verdict.features["relevance"]
        if tool.phases and request.phase != ANY_PHASE and request.phase not in tool.phases:
            phases = f"offered in phase {' or '.join(tool.phases)}"
            out[candidate] = verdict.out(Exclusion.NOT_ROUTED, phases)
        elif tool.risk > most and relevance <= strong:
            lacking = strong - relevance if share < 1.0 else None
            words = _risk_words(tool.risk, lacking, policy.tools)
            out[candidate] = verdict.out(Exclusion.NOT_ROUTED, words)
    return out


def _limits(rules: ToolRules, request: ContextRequest) -> tuple[int, float]:
    """Return the riskiest tools that are shown, and the share of the best relevance above which
    riskier ones are.
    """
    if rules.max_risk is not None:
        strong = 1.0 if rules.strong_relevance is None else rules.strong_relevance
        return RISKS.index(rules.max_risk), strong
    careful = request.phase in LOOKING_PHASES
    strong = STRONG_RELEVANCE if rules.strong_relevance is None else rules.strong_relevance
    return (1 if careful else 2), strong


def _risk_words(risk: int, lacking: float | None, rules: ToolRules) -> str:
    """Say what would have let a tool of this risk in; `lacking` is relevance, None where none is
    enough.
    """
    ways = [f"tools.max_risk {RISKS[risk]!r} in the policy"]
    if lacking is not None:
        ways.insert(0, f"+{lacking:.2f} relevance")
    if rules.max_risk is None:
        ways.append("a phase that changes things")
    return f"a tool of {RISKS[risk]} risk: " + ", or ".join(ways)


def _one_of_each_name(judged: Judged, tools: Mapping[int, ToolRow]) -> dict[Candidate, Verdict]:
    verdicts = judged.verdicts
    by_name: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in judged.alive():
        if candidate.section == TOOLS:
            tool = tools.get(candidate.row)
            by_name[candidate.title if tool is None else tool.name].append(candidate)
    out: dict[Candidate, Verdict] = {}
    for group in by_name.values():
        if len(group) > 1:
            kept, *losers = sorted(
                group, key=lambda c: (-c.authority, -verdicts[c].score, c.item_id, c.version)
            )
            for loser in losers:
                same = f"same tool name as {kept.item_id}"
                out[loser] = verdicts[loser].out(Exclusion.DUPLICATE, same)
    return out
