"""The sections of a pack: the eight levels of authority, and the goal restated at the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctx_pipeline.contracts.codes import ItemKind, Zone


@dataclass(frozen=True, slots=True)
class SectionSpec:
    """One section: where it stands, who speaks in it, and which share of the budget it draws on."""

    name: str
    role: str
    zone: Zone
    share: str
    stable: bool
    """True where the bytes stay the same from call to call."""


SECTIONS: tuple[SectionSpec, ...] = (
    SectionSpec("policy", "system", Zone.INSTRUCTION, "policy", stable=True),
    SectionSpec("instructions", "system", Zone.INSTRUCTION, "policy", stable=True),
    SectionSpec("task", "user", Zone.INSTRUCTION, "task_state", stable=False),
    SectionSpec("state", "user", Zone.DATA, "task_state", stable=False),
    SectionSpec("domain", "user", Zone.DATA, "retrieved", stable=False),
    SectionSpec("evidence", "user", Zone.DATA, "retrieved", stable=False),
    SectionSpec("history", "user", Zone.DATA, "history", stable=False),
    SectionSpec("observations", "user", Zone.DATA, "observations", stable=False),
    SectionSpec("goal", "user", Zone.INSTRUCTION, "task_state", stable=False),
)
MOVABLE = tuple(section.name for section in SECTIONS if section.zone is Zone.DATA)
"""Sections that a policy may put into another order."""
SECTION_NAMES = tuple(section.name for section in SECTIONS)
TOOLS = "tools"
"""Tools are shown beside the text, as capabilities."""

SECTION_OF_KIND: dict[ItemKind, str] = {
    ItemKind.POLICY: "policy",
    ItemKind.INSTRUCTION: "instructions",
    ItemKind.TASK: "task",
    ItemKind.STATE: "state",
    ItemKind.METRIC: "domain",
    ItemKind.GLOSSARY: "domain",
    ItemKind.SCHEMA: "domain",
    ItemKind.DOCUMENT: "evidence",
    ItemKind.MEMORY: "evidence",
    ItemKind.SKILL: "evidence",
    ItemKind.ARTIFACT_REF: "evidence",
    ItemKind.CODE: "evidence",
    ItemKind.WEB: "evidence",
    ItemKind.HISTORY: "history",
    ItemKind.OBSERVATION: "observations",
    ItemKind.TOOL: TOOLS,
}

INSTRUCTING_SECTIONS = frozenset({"policy", "instructions"})

TRUSTED_TO_INSTRUCT = frozenset({"system_trusted", "enterprise_trusted"})
"""Only these may speak in an instruction zone; a policy text of lesser trust is shown as evidence.
"""


def in_order(order: Sequence[str]) -> tuple[SectionSpec, ...]:
    """Return the sections with the data sections in this order, those it leaves out after them.

    Only data sections change places with one another: what instructs stays first, and the goal
    last.
    """
    if not order:
        return SECTIONS
    by_name = {section.name: section for section in SECTIONS}
    data = iter([*order, *(name for name in MOVABLE if name not in order)])
    return tuple(
        by_name[next(data)] if section.name in MOVABLE else section for section in SECTIONS
    )


def section_of(kind: ItemKind, trust: str) -> str:
    """Return the section an indexed item belongs to."""
    section = SECTION_OF_KIND[kind]
    if section in ("policy", "instructions") and trust not in TRUSTED_TO_INSTRUCT:
        return "evidence"
    return section
