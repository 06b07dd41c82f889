"""The tools of a project beside one another: what each is like, and by which
name a model knows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ctx_pipeline.contracts import ToolContextItem, Trust
from ctx_pipeline.security.visibility import ScopeLabel, is_within
from ctx_pipeline.text import canonical_json, short_hash
from ctx_pipeline.tools.definition import read_content
from ctx_pipeline.tools.overlap import OverlapText, overlap_groups
from ctx_pipeline.tools.provider_form import MAX_NAME_CHARS, hashed_name, plain_name, provider_form
from ctx_pipeline.tools.schema_walk import properties_of
from ctx_pipeline.tools.traits import RISKS, phases_of, returns_of, risk_of

if TYPE_CHECKING:
    import pyarrow as pa

UNTRUSTED = frozenset({Trust.RETRIEVED_EXTERNAL.value, Trust.TOOL_UNTRUSTED.value})
"""What tools of such trust say of themselves may make them look worse, and never better."""

CountMany = Callable[[Sequence[str], str], list[int]]


@dataclass(frozen=True, slots=True)
class CatalogueTool:
    """One version of a tool in the catalogue of a build."""

    row: int
    item_id: str
    title: str
    tenant: str
    source: str
    content: str
    """`tool_content`."""
    live: bool
    """The newest version of a tool that nobody has withdrawn; only these have a say in names and
    groups.
    """
    label: ScopeLabel
    """Who may see it: a name tells nobody of tools that they may not see."""
    phases: tuple[str, ...] = ()
    """Where it is offered if it declares nothing; empty: everywhere."""


class ToolRow(NamedTuple):
    """What serving knows of a tool beside its text."""

    name: str
    """By which models know it."""
    tool_name: str
    """What its server calls it."""
    server: str
    risk: int
    """Place in `RISKS`."""
    phases: tuple[str, ...]
    """Where it is offered; empty: everywhere."""
    refusal: str | None
    """Why it has no form that providers take; None where it has one."""
    poison: tuple[str, ...]
    """Codes of `POISON` that its texts have."""


def catalogue_table(
    tools: Sequence[CatalogueTool], encoding: str, count_many: CountMany
) -> pa.Table:
    """Return what is known of each tool beside its text, in the order given; tokens are of
    `encoding`.

    Columns: row, item_id, name, tool_name, server, risk (place in `RISKS`), phases, refusal,
    poison, description_tokens, schema_tokens, overlap_group, schema_hash, return_semantics.
    """
    import pyarrow as pa

    parsed = [_Parsed.of(tool) for tool in tools]
    names = shown_names(parsed)
    groups = _groups(parsed)
    text, number = pa.string(), pa.int32()
    descriptions = count_many([tool.description for tool in parsed], encoding)
    schemas = count_many([tool.schema for tool in parsed], encoding)
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "row": ([tool.row for tool in tools], number),
        "item_id": ([tool.item_id for tool in tools], text),
        "name": (names, text),
        "tool_name": ([tool.name for tool in parsed], text),
        "server": ([tool.server for tool in parsed], text),
        "risk": ([RISKS.index(tool.risk) for tool in parsed], pa.uint8()),
        "phases": ([list(tool.phases) for tool in parsed], pa.list_(pa.field("item", text))),
        "refusal": ([tool.refusal for tool in parsed], text),
        "poison": ([list(tool.poison) for tool in parsed], pa.list_(pa.field("item", text))),
        "description_tokens": (descriptions, number),
        "schema_tokens": (schemas, number),
        "overlap_group": (groups, text),
        "schema_hash": ([short_hash(tool.schema, 16) for tool in parsed], text),
        "return_semantics": ([tool.returns for tool in parsed], pa.large_string()),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


def tool_rows(table: pa.Table) -> dict[int, ToolRow]:
    """Return what serving reads of a `catalogue_table`, by row."""
    names = ("row", "name", "tool_name", "server", "risk", "phases", "refusal", "poison")
    values = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return {
        row: ToolRow(name, own, server, risk, tuple(phases), refusal, tuple(poison))
        for row, name, own, server, risk, phases, refusal, poison in values
    }


class NamedRows(NamedTuple):
    """The rows that a conversation may mean by one name: those that show it, else those that own
    it.
    """

    shown: list[int]
    owned: list[int]


def rows_by_name(tools: Mapping[int, ToolRow]) -> dict[str, NamedRows]:
    """Return the rows of each name; which of them are meant depends on who asks."""
    named: dict[str, NamedRows] = defaultdict(lambda: NamedRows([], []))
    for row, tool in tools.items():
        named[tool.name].shown.append(row)
        if tool.tool_name != tool.name:
            named[tool.tool_name].owned.append(row)
    return dict(named)


def tool_items(table: pa.Table) -> list[tuple[int, ToolContextItem]]:
    """Return the tools of a `catalogue_table` as their contract, with their rows."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return [
        (
            entry["row"],
            ToolContextItem(
                tool_id=entry["item_id"],
                description_tokens=entry["description_tokens"],
                schema_tokens=entry["schema_tokens"],
                risk_level=RISKS[int(entry["risk"])],
                phase=tuple(entry["phases"]),
                semantic_overlap_group=entry["overlap_group"],
                server=entry["server"],
                schema_hash=entry["schema_hash"],
                return_semantics=entry["return_semantics"],
            ),
        )
        for entry in rows
    ]


@dataclass(frozen=True, slots=True)
class _Parsed:
    key: str
    """What makes it one tool: its item id."""
    tenant: str
    live: bool
    label: ScopeLabel
    name: str
    server: str
    description: str
    schema: str
    """Canonical JSON of the input schema."""
    parameters: tuple[str, ...]
    risk: str
    phases: tuple[str, ...]
    returns: str | None
    refusal: str | None
    poison: tuple[str, ...]

    @property
    def plain(self) -> str:
        """Its name in a form that providers take."""
        return plain_name(self.name)

    @classmethod
    def of(cls, tool: CatalogueTool) -> _Parsed:
        # Only a build looks for it: compiling its patterns takes 10 ms of a command's start.
        from ctx_pipeline.tools.poison import poison_of

        form = provider_form(tool.content)
        content = read_content(form.content)
        annotations, meta, schema, output = (
            cast("dict[str, Any]", value) if isinstance(value := content.get(key), dict) else {}
            for key in ("annotations", "_meta", "input_schema", "output_schema")
        )
        name, description = (
            str(content.get("name") or tool.title),
            str(content.get("description") or ""),
        )
        return cls(
            key=tool.item_id,
            tenant=tool.tenant,
            live=tool.live,
            label=tool.label,
            name=name,
            server=str(meta.get("server") or tool.source),
            description=description,
            schema=canonical_json(schema),
            parameters=tuple(properties_of(schema)),
            risk=risk_of(name, description, annotations, trusted=tool.label.trust not in UNTRUSTED),
            phases=phases_of(annotations, meta) or tool.phases,
            returns=returns_of(description, output),
            refusal=form.refusal,
            poison=poison_of(read_content(tool.content)),
        )


_Seen = dict[ScopeLabel, set[str]]
"""What there is for whom."""
_Said = dict[ScopeLabel, set[tuple[str, str]]]
"""The same of tools: their own names, and what they say."""


def shown_names(tools: Sequence[_Parsed]) -> list[str]:
    """Return the name by which a model knows each tool, in the order given.

    It is the tool's own name in a form that providers take (`plain_name`), but where others of this
    name differ in description, schema or own name and everybody who may see the tool may see them:
    it is called `<server>__<name>`, in at most `MAX_NAME_CHARS` characters. The catalogue alone
    decides, so that no name changes from call to call, and none tells of a hidden tool.
    """
    rivals: dict[tuple[str, str], _Said] = defaultdict(lambda: defaultdict(set))
    taken: dict[tuple[str, str], _Seen] = defaultdict(lambda: defaultdict(set))
    for tool in tools:
        if tool.live:
            taken[tool.tenant, tool.plain][tool.label].add(tool.key)
            said = canonical_json([tool.description, tool.schema])
            rivals[tool.tenant, tool.plain][tool.label].add((tool.name, said))
    differing = [_has_rival(tool, rivals[tool.tenant, tool.plain]) for tool in tools]
    wanted: dict[tuple[str, str], _Seen] = defaultdict(lambda: defaultdict(set))
    for tool, differs in zip(tools, differing, strict=True):
        if differs:
            wanted[tool.tenant, _qualified(tool)][tool.label].add(tool.key)
    names: list[str] = []
    for tool, differs in zip(tools, differing, strict=True):
        name = _qualified(tool) if differs else tool.plain
        at = (tool.tenant, name)
        if differs and (
            len(_seen_with(tool.label, wanted[at])) > 1 or _seen_with(tool.label, taken.get(at, {}))
        ):
            name = hashed_name(name, tool.key)
        names.append(name)
    return names


def _has_rival(tool: _Parsed, there: _Said) -> bool:
    """Whether others that everybody sees who may see a tool go by its name.

    One whose own name is another gives way to a tool whose own name it is, where all who see the
    one see the other.
    """
    found: set[tuple[str, str]] = set()
    for label, said in there.items():
        if is_within(tool.label, label):
            gives_way = tool.name == tool.plain and is_within(label, tool.label)
            found |= {each for each in said if each[0] == tool.name or not gives_way}
    return len(found) > 1


def _seen_with(label: ScopeLabel, there: Mapping[ScopeLabel, set[str]]) -> set[str]:
    """Return what everybody sees who passes a label."""
    return {name for other, found in there.items() if is_within(label, other) for name in found}


def _qualified(tool: _Parsed) -> str:
    qualified = f"{plain_name(tool.server)}__{tool.plain}"
    return (
        qualified
        if len(qualified) <= MAX_NAME_CHARS
        else hashed_name(qualified, f"{tool.server}\t{tool.name}")
    )


def _groups(tools: Sequence[_Parsed]) -> list[str | None]:
    found: list[str | None] = [None] * len(tools)
    by_tenant: dict[str, list[int]] = defaultdict(list)
    for at, tool in enumerate(tools):
        if tool.live:
            by_tenant[tool.tenant].append(at)
    for places in by_tenant.values():
        texts = [
            OverlapText(tools[at].name, tools[at].description, tools[at].parameters)
            for at in places
        ]
        for group in overlap_groups(texts):
            label = min(tools[places[member]].key for member in group)
            for member in group:
                found[places[member]] = label
    return found
