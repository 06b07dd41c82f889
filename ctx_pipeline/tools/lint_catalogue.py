"""Lint of tools beside one another: names that are taken for one another, and tools that do the
same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.findings import LintTool, ToolFinding, others_of
from ctx_pipeline.tools.lint_words import result_findings
from ctx_pipeline.tools.overlap import OverlapText, overlaps
from ctx_pipeline.tools.schema_walk import properties_of
from ctx_pipeline.tools.words import same_name

ALIKE = 0.9
"""Likeness from which an overlap is a warning."""


def catalogue_findings(tools: Sequence[LintTool]) -> Iterator[ToolFinding]:
    """Find what is wrong with tools only because of the others."""
    yield from result_findings(tools)
    yield from _name_findings(tools)
    yield from _overlap_findings(tools)


def _name_findings(tools: Sequence[LintTool]) -> Iterator[ToolFinding]:
    exact: dict[str, list[LintTool]] = defaultdict(list)
    alike: dict[str, dict[str, LintTool]] = defaultdict(dict)
    for tool in tools:
        exact[tool.name].append(tool)
        alike[same_name(tool.name) or tool.name].setdefault(tool.name, tool)
    for group in exact.values():
        if len(group) > 1:
            yield from _one_name(group)
    for names in alike.values():
        if len(names) > 1:
            first, *rest = names.values()
            message = "names differ in case, separators or look-alike letters alone"
            yield first.finding("names_collide", message, at="name", others=others_of(first, rest))


def _one_name(group: Sequence[LintTool]) -> Iterator[ToolFinding]:
    by_server: dict[str, list[LintTool]] = defaultdict(list)
    for tool in group:
        by_server[tool.server].append(tool)
    for same in by_server.values():
        if len(same) > 1:
            differ = len({_said(tool) for tool in same}) > 1
            message = f"{len(same)} tools of one server have this name" + (
                ", and differ" if differ else ""
            )
            places = tuple(tool.origin for tool in same[1:])
            yield same[0].finding(
                "duplicate_name", message, others=places, severity="error" if differ else "warn"
            )
    if len(by_server) > 1:
        first, *rest = (same[0] for same in by_server.values())
        differ = len({_said(tool) for tool in group}) > 1
        message = f"{len(by_server)} servers have a tool of this name" + (
            ", and they differ" if differ else ""
        )
        others = others_of(first, rest)
        yield first.finding(
            "name_across_servers", message, others=others, severity="warn" if differ else "info"
        )


def _said(tool: LintTool) -> str:
    return canonical_json([tool.description, tool.definition.input_schema or {}])


def _overlap_findings(tools: Sequence[LintTool]) -> Iterator[ToolFinding]:
    """Find tools that do the same; what has one name is told as that."""
    texts = [
        OverlapText(tool.name, tool.description, tuple(properties_of(tool.definition.input_schema)))
        for tool in tools
    ]
    alike: dict[int, list[LintTool]] = defaultdict(list)
    for pair in overlaps(texts):
        first, second = tools[pair.first], tools[pair.second]
        if first.name == second.name:
            continue
        if _flat(first.description) == _flat(second.description):
            message = "two tools have the same description"
            yield first.finding(
                "same_description", message, at="description", others=others_of(first, [second])
            )
        elif pair.likeness >= ALIKE:
            message = f"two tools say nearly the same ({pair.likeness:.2f} of 1)"
            yield first.finding(
                "overlap", message, others=others_of(first, [second]), severity="warn"
            )
        else:
            alike[pair.first].append(second)
    for at, others in alike.items():
        message = f"{len(others) + 1} tools say much the same"
        yield tools[at].finding("overlap", message, others=others_of(tools[at], others))


def _flat(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".。!！")
