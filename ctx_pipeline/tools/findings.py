"""What can be wrong with a tool's definition: codes, how much each matters, and what to do about
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ctx_pipeline.tools.definition import ToolDefinition

Severity = Literal["error", "warn", "info"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warn", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinding:
    """One thing that is wrong with one tool, or with several beside one another. Quotes nothing but
    names.
    """

    code: str
    severity: Severity
    """`error`: refused, dangerous or never right; `warn`: models choose or call it wrongly; `info`:
    could be better."""
    tool: str
    server: str
    where: str
    """The file, and the place in the definition."""
    message: str
    fix: str
    others: tuple[str, ...] = ()
    """The other tools it is about, as `server/name` where the server is another one."""


@dataclass(frozen=True, slots=True)
class LintTool:
    """One definition to look at."""

    definition: ToolDefinition
    raw: Mapping[str, Any]
    """As it was written."""
    server: str
    origin: str
    """Where it was written."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def description(self) -> str:
        """What it says of itself."""
        return self.definition.description or ""

    @property
    def is_mcp(self) -> bool:
        """Whether its dialect has annotations."""
        return "inputSchema" in self.raw or bool(self.raw.get("annotations"))

    def finding(
        self,
        code: str,
        message: str,
        *,
        at: str = "",
        others: tuple[str, ...] = (),
        severity: Severity | None = None,
    ) -> ToolFinding:
        """Return a finding about this tool, at a place in its definition."""
        return ToolFinding(
            code=code,
            severity=severity or CODES[code][0],
            tool=self.name,
            server=self.server,
            where=f"{self.origin}#{at}" if at else self.origin,
            message=message,
            fix=CODES[code][1],
            others=others,
        )


def others_of(first: LintTool, rest: Iterable[LintTool]) -> tuple[str, ...]:
    """Return the names of tools as a finding about `first` gives them."""
    return tuple(
        other.name if other.server == first.server else f"{other.server}/{other.name}"
        for other in rest
    )


CODES: Final[Mapping[str, tuple[Severity, str]]] = {
    "invalid_definition": (
        "error",
        "give name, description and input_schema as MCP or OpenAI functions do",
    ),
    "unreadable_file": ("error", "repair the file; what is in it was not looked at"),
    # Names and descriptions
    "invalid_name": (
        "warn",
        "use 1 to 64 of A-Z a-z 0-9 _ -; packs show another name in such a form",
    ),
    "vague_name": ("warn", "name what it does and to what: `<verb>_<object>`"),
    "missing_description": ("error", "say what it does, when to use it and what it returns"),
    "short_description": ("warn", "say what it does, when to use it and what it returns"),
    "long_description": (
        "warn",
        "keep what decides whether to call it; move the rest into the parameters or a document",
    ),
    "vague_description": ("warn", "say what it does, when to use it and what it returns"),
    "repeats_name": ("info", "say what the name does not: when to use it, limits, what it returns"),
    "name_contradicts_description": ("warn", "make name and description say the same"),
    "no_return_semantics": ("info", "say what it returns, in a sentence or in an output schema"),
    # Beside other tools
    "duplicate_name": ("error", "give every tool of a server its own name"),
    "name_across_servers": (
        "warn",
        "nothing has to be done: packs show such tools as `server__name`; better, rename one",
    ),
    "names_collide": (
        "warn",
        "rename one, so that the names differ in more than case and separators",
    ),
    "same_description": ("warn", "say how they differ and when to use which, or take one out"),
    "overlap": ("info", "say how they differ and when to use which, or take one out"),
    # Parameters
    "missing_schema": (
        "warn",
        'give an input schema; without parameters: `{"type": "object", "properties": {}}`',
    ),
    "invalid_schema": (
        "error",
        "make it valid JSON Schema (draft 2020-12 unless `$schema` says otherwise)",
    ),
    "no_provider_form": (
        "error",
        (
            "say at the top that the arguments are an object, with its "
            "properties; packs leave the tool out"
        ),
    ),
    "schema_reshaped": (
        "warn",
        (
            "nothing has to be done: packs show one object instead; "
            "better, write the properties at the top"
        ),
    ),
    "schema_not_object": ("error", 'arguments are an object: `"type": "object"`'),
    "unresolved_reference": ("error", "define what `$ref` names, inside the schema"),
    "unknown_dialect": (
        "warn",
        "name a draft of JSON Schema, or leave `$schema` out: draft 2020-12",
    ),
    "unchecked_schema": (
        "warn",
        "make it smaller and flatter, with fewer references and combinations",
    ),
    "unchecked_pattern": (
        "info",
        "write it without lookaround and back references: other engines hang on such, too",
    ),
    "required_unknown": ("error", "define the parameter, or take it out of `required`"),
    "required_described": ("warn", "make `required` and the description say the same"),
    "parameter_without_description": ("warn", "say what to pass, in which form"),
    "parameter_without_type": ("warn", "give its type"),
    "parameter_vague": ("warn", "name what to pass"),
    "parameters_collide": (
        "error",
        "keep one of them, or give them names that differ in more than case and separators",
    ),
    "array_without_items": ("warn", "say what the list holds: `items`"),
    "enum_not_declared": ("warn", "declare the values that the description lists: `enum`"),
    "enum_invalid": ("error", "list at least one value, each once and of the parameter's type"),
    "default_invalid": (
        "error",
        "make the default a value that the schema accepts, or take it out",
    ),
    "example_invalid": ("warn", "make the example a value that the schema accepts"),
    "bounds_impossible": ("error", "the least may not be more than the most"),
    "oversize_schema": ("warn", "split the tool, or take out what a call seldom needs"),
    "deep_schema": ("warn", "flatten the parameters: models fill deep objects badly"),
    # Annotations
    "invalid_annotation": ("error", "hints are true or false"),
    "hints_contradict": ("error", "a tool that only reads destroys nothing: keep one of the hints"),
    "read_only_contradicted": ("error", "set `readOnlyHint` to false, or rename what only reads"),
    "destructive_unmarked": (
        "warn",
        "set `destructiveHint` to true: clients ask before such a call",
    ),
    "reader_marked": (
        "warn",
        "set `readOnlyHint` to true and `destructiveHint` to false, or rename what changes things",
    ),
    # Safety
    "prompt_injection": (
        "error",
        "take the instruction out; do not use this catalogue until somebody has looked at it",
    ),
    "hidden_text": (
        "error",
        "take out what a person does not see; do not use this catalogue until somebody has looked",
    ),
    "mixed_scripts": ("error", "write each word in the letters of one script"),
    "data_out": (
        "error",
        "take it out: a description must not tell a model to hand data to somebody else",
    ),
    "claims_priority": (
        "error",
        "describe what the tool does: which of several is called is not its to say",
    ),
    "steers_other_tools": (
        "warn",
        "describe this tool alone; when to use which belongs in the agent's instructions",
    ),
    "unchecked_text": ("error", "make it smaller: what was not looked at may say anything"),
    "secret_value": ("error", "take the secret out, and revoke it"),
}
"""Severity and fix of every code."""
