"""Assemble: the chosen items as deterministic bytes. The batch half publishes the artifact that
serving reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ctx_pipeline.contracts import (
    Capability,
    PackItem,
    PackSection,
    PrefixInfo,
    Rendition,
)
from ctx_pipeline.contracts.render import sections_text
from ctx_pipeline.index.artifact import Staging, publish_artifact
from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict, Verdicts
from ctx_pipeline.stages.sections import SECTIONS, TOOLS, SectionSpec, in_order
from ctx_pipeline.text import canonical_json, sha256_hex, short_hash
from ctx_pipeline.tools.catalogue import ToolRow
from ctx_pipeline.tools.traits import RISKS, risk_of

COMPACTION_VERSION = "compact-1"


def batch(staging: Staging, facts: Mapping[str, Any], *, keep: int) -> str:
    """Publish what the stages before have written as one serving artifact;
    return its content hash.
    """
    return publish_artifact(staging, facts, keep=keep)


def heading_of(section: SectionSpec) -> str:
    """Return the line that opens a section."""
    return f'<section name="{section.name}" zone="{section.zone.value}">\n'


def serve(
    judged: Judged,
    texts: Mapping[Candidate, str],
    heading_tokens: Mapping[str, int],
    order: Sequence[str] = (),
) -> tuple[PackSection, ...]:
    """Put what is shown into sections, in the order of authority.

    `texts` are those of `transform`; `order` says which data comes first.
    """
    chosen: dict[str, list[Candidate]] = {section.name: [] for section in SECTIONS}
    for candidate in judged.selected():
        if candidate.section != TOOLS:
            chosen[candidate.section].append(candidate)
    return tuple(
        PackSection(
            name=section.name,
            role=section.role,
            zone=section.zone,
            heading=heading_of(section),
            heading_tokens=heading_tokens[section.name],
            items=tuple(
                _pack_item(candidate, judged.verdicts[candidate], texts[candidate])
                for candidate in _ordered(section, items, judged.verdicts)
            ),
        )
        for section in in_order(order)
        if (items := chosen[section.name])
    )


def _ordered(section: SectionSpec, items: list[Candidate], verdicts: Verdicts) -> list[Candidate]:
    if section.stable:
        # Outer folders first: the nearest instruction has the last word.
        return sorted(items, key=lambda c: (c.item_id.count("/"), c.item_id, c.version))
    return sorted(items, key=lambda c: (c.order, -verdicts[c].score, c.item_id, c.version))


def _pack_item(candidate: Candidate, verdict: Verdict, text: str) -> PackItem:
    assert verdict.rendition is not None, "a selected candidate has a rendition"
    return PackItem(
        item_id=candidate.item_id,
        version=candidate.version,
        kind=candidate.kind,
        title=candidate.title,
        rendition=verdict.rendition,
        tokens=verdict.cost(candidate),
        text=text,
    )


def capabilities(
    judged: Judged,
    texts: Mapping[Candidate, str],
    known: Mapping[int, ToolRow],
) -> tuple[Capability, ...]:
    """Return the selected tools in a stable order, so that they do not break a provider's cache."""
    tools = sorted(
        (c for c in judged.selected() if c.section == TOOLS),
        key=lambda c: (c.item_id, c.version),
    )
    return tuple(
        _capability(tool, judged.verdicts[tool], texts[tool], known.get(tool.row)) for tool in tools
    )


def _capability(tool: Candidate, verdict: Verdict, text: str, known: ToolRow | None) -> Capability:
    schema: dict[str, Any] = json.loads(text)
    name, description = str(schema.get("name", tool.title)), str(schema.get("description") or "")
    return Capability(
        item_id=tool.item_id,
        version=tool.version,
        name=name,
        description=description,
        input_schema=schema.get("input_schema") or {},
        tokens=verdict.cost(tool),
        risk_level=RISKS[known.risk]
        if known
        else risk_of(name, description, schema.get("annotations") or {}),
        schema_hash=short_hash(text, 16),
        rendition=verdict.rendition or Rendition.FULL,
        server=None if known is None else known.server,
        tool_name=known.tool_name if known else None if tool.title == name else tool.title,
    )


def prefix_of(sections: Sequence[PackSection]) -> PrefixInfo:
    """Return how much of the text stays the same from call to call, and its hash."""
    stable_names = {section.name for section in SECTIONS if section.stable}
    stable: list[PackSection] = []
    for section in sections:
        if section.name not in stable_names:
            break
        stable.append(section)
    stable_tokens = _tokens(stable)
    return PrefixInfo(
        hash=sha256_hex(sections_text(stable)),
        stable_tokens=stable_tokens,
        dynamic_tokens=_tokens(sections) - stable_tokens,
    )


def _tokens(sections: Sequence[PackSection]) -> int:
    return sum(
        section.heading_tokens + sum(item.tokens for item in section.items) for section in sections
    )


def total_tokens(sections: Sequence[PackSection], tools: Sequence[Capability]) -> int:
    """Return the exact tokens of the text plus those of the visible tool schemas."""
    return _tokens(sections) + sum(tool.tokens for tool in tools)


def pack_hash(
    sections: Sequence[PackSection], tools: Sequence[Capability], policy_version: str
) -> str:
    """Hash what the model sees: text, item versions and renditions, tool schemas, policy version;
    nothing else.
    """
    content = {
        "text": sha256_hex(sections_text(sections)),
        "items": [
            f"{item.item_id}@{item.version}+{item.rendition}" for s in sections for item in s.items
        ],
        "tools": [tool.schema_hash for tool in tools],
        "policy": policy_version,
    }
    return sha256_hex(canonical_json(content))
