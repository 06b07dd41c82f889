"""What has changed between two versions of a catalogue, and which changes break those who call its
tools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.accepts import Effort, OutOfSteps
from ctx_pipeline.tools.compact import NOTES, bare_schema
from ctx_pipeline.tools.findings import LintTool
from ctx_pipeline.tools.lint_safety import safety_findings
from ctx_pipeline.tools.linting import lint_tools
from ctx_pipeline.tools.schema_walk import (
    Schema,
    is_within_limits,
    properties_of,
    required_of,
    resolve,
    schemas,
    show_path,
    types_of,
)

MAX_LEVELS = 12
"""Objects within objects that are compared; what is deeper only counts as changed."""
MAX_COMPARED = 5_000
"""Pairs of schemas that are compared of one tool: references may multiply them without end."""
MAX_DETAILS = 200
"""Changes of a schema that are told."""
_LOWER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
"""Bounds that refuse more where they are lower."""
_HIGHER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_TEXT = ("pattern", "const", "multipleOf", "uniqueItems")
_SHAPES = (
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "dependentRequired",
    "propertyNames",
)


@dataclass(frozen=True, slots=True)
class Detail:
    """One change of a definition, in words that quote nothing but names."""

    text: str
    breaking: bool = False
    """Whether a call that was right before may be wrong now."""


@dataclass(frozen=True, slots=True)
class ToolChange:
    """How one tool has changed."""

    tool: str
    breaking: bool
    what: tuple[str, ...]
    """Of `description`, `schema`, `output`, `annotations`: what is another one."""
    reworded: bool
    """A text that models read changed, and what the tool takes did not: the change that a poisoned
    server makes."""
    details: tuple[str, ...]
    broken: tuple[str, ...] = ()
    """Those of `details` that may make a call wrong."""


@dataclass(frozen=True, slots=True)
class ToolDrift:
    """What is different in a later version of a catalogue; names in order."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """Old and new names of tools that are otherwise the same."""
    changed: tuple[ToolChange, ...] = ()

    @property
    def breaking(self) -> bool:
        """Whether calls that were right before may be wrong now."""
        return bool(self.removed or self.renamed) or any(change.breaking for change in self.changed)


def diff(old: Iterable[Any], new: Iterable[Any]) -> ToolDrift:
    """Compare two versions of a catalogue. Both are given as `lint` takes them; what is no
    definition is left out.

    Tools are told apart by name, and by server where one is named.
    """
    before, after = _by_key(old), _by_key(new)
    gone = {key: before[key] for key in before if key not in after}
    come = {key: after[key] for key in after if key not in before}
    saying: dict[str, list[str]] = defaultdict(list)
    for key, tool in reversed(come.items()):
        saying[_said(tool)].append(key)
    renamed: list[tuple[str, str]] = []
    for key, tool in list(gone.items()):
        if alike := saying[_said(tool)]:
            renamed.append((key, alike.pop()))
            del gone[key], come[renamed[-1][1]]
    changes = (
        tool_change(key, before[key], after[key]) for key in sorted(before.keys() & after.keys())
    )
    return ToolDrift(
        added=tuple(sorted(come)),
        removed=tuple(sorted(gone)),
        renamed=tuple(sorted(renamed)),
        changed=tuple(change for change in changes if change is not None),
    )


def _by_key(tools: Iterable[Any]) -> dict[str, LintTool]:
    found: dict[str, LintTool] = {}
    for tool in lint_tools(tools)[0]:
        found.setdefault(f"{tool.server}/{tool.name}" if tool.server else tool.name, tool)
    return found


def _said(tool: LintTool) -> str:
    return canonical_json([tool.description, tool.definition.input_schema or {}])


def tool_change(name: str, before: LintTool, after: LintTool) -> ToolChange | None:
    """Return how a tool has changed; None where it has not."""
    old, new = before.definition, after.definition
    first, second = old.input_schema or {}, new.input_schema or {}
    schema = _schema_details(first, second)
    words = list(_word_details(before, after))
    output = list(_output_details(old.output_schema, new.output_schema))
    hints = list(_hint_details(old.annotations or {}, new.annotations or {}))
    parts = {"description": words, "schema": schema, "output": output, "annotations": hints}
    details = [detail for part in parts.values() for detail in part]
    if not details:
        return None
    return ToolChange(
        tool=name,
        breaking=any(detail.breaking for detail in details),
        what=tuple(what for what, part in parts.items() if part),
        reworded=bool(words) and not schema,
        details=tuple(detail.text for detail in details),
        broken=tuple(detail.text for detail in details if detail.breaking),
    )


def _word_details(before: LintTool, after: LintTool) -> Iterator[Detail]:
    if before.description != after.description:
        yield Detail("the description changed")
    schemes = [tool.definition.input_schema or {} for tool in (before, after)]
    old, new = (properties_of(schema) if is_within_limits(schema) else {} for schema in schemes)
    for name in sorted(old.keys() & new.keys()):
        if _words_of(old[name]) != _words_of(new[name]):
            yield Detail(f"{name!r} is described otherwise")
    known = {finding.code for finding in safety_findings(before)}
    for finding in safety_findings(after):
        if finding.code not in known:
            yield Detail(f"it has the new finding {finding.code!r}")


def _words_of(value: Any) -> str:
    """Return the notes of a schema and of all within it, with their places."""
    if not isinstance(value, dict):
        return ""
    schema = cast("Schema", value)
    parts = (
        (show_path(path), {key: part[key] for key in sorted(NOTES & part.keys())})
        for path, part in schemas(schema)
    )
    return repr([(place, notes) for place, notes in parts if notes])


def _hint_details(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Detail]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            hint = all(
                value is None or isinstance(value, bool) for value in (old.get(name), new.get(name))
            )
            became = (
                f"{_shown(old.get(name))} became {_shown(new.get(name))}" if hint else "changed"
            )
            yield Detail(f"annotation {name!r}: {became}")


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value).lower()


def _output_details(old: Schema | None, new: Schema | None) -> Iterator[Detail]:
    if old == new:
        return
    if old is None or new is None:
        yield Detail(
            "an output schema was added" if old is None else "the output schema was removed",
            new is None,
        )
        return
    lost = sorted(properties_of(old).keys() - properties_of(new).keys())
    for name in lost:
        yield Detail(f"result field {name!r} was removed", breaking=True)
    if not lost:
        yield Detail("the output schema changed")


def _schema_details(old: Schema, new: Schema) -> list[Detail]:
    """Compare what two input schemas accept, as far as `MAX_COMPARED` goes."""
    if not is_within_limits(old) or not is_within_limits(new):
        return (
            []
            if old == new
            else [Detail("the schema changed, and is too large to say how", breaking=True)]
        )
    before, after = canonical_json(bare_schema(old)), canonical_json(bare_schema(new))
    if before == after:
        return []
    found: list[Detail] = []
    try:
        for detail in _compare(old, new, _Roots(old, new, Effort(MAX_COMPARED)), "", 0):
            found.append(detail)
            if len(found) == MAX_DETAILS:
                raise OutOfSteps
    except OutOfSteps:
        found.append(Detail("more may have changed: there is too much to compare", breaking=True))
    if not found:
        found.append(Detail("the schema changed in another way", breaking=True))
    return found


class _Roots(NamedTuple):
    """The two schemas as a whole, and how many of their parts may still be compared."""

    old: Schema
    new: Schema
    effort: Effort


def _compare(old: Any, new: Any, roots: _Roots, path: str, level: int) -> Iterator[Detail]:
    roots.effort.spend()
    if level > MAX_LEVELS or not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield Detail(f"{_named(path)} changed", breaking=new is not True)
        return
    first, second = (
        _resolved(cast("Schema", old), roots.old, roots.effort),
        _resolved(cast("Schema", new), roots.new, roots.effort),
    )
    yield from _types(first, second, path)
    yield from _values(first, second, path)
    yield from _members(first, second, roots, path, level)
    if "items" in first or "items" in second:
        items = first.get("items", True), second.get("items", True)
        if items[0] != items[1]:
            yield from _compare(*items, roots, f"{path}[]", level + 1)
    for keyword in _SHAPES:
        was, now = _bare(first.get(keyword)), _bare(second.get(keyword))
        roots.effort.spend((len(was) + len(now)) // 5_000)
        if was != now:
            yield Detail(f"{keyword!r} of {_named(path)} changed", breaking=keyword in second)


def _bare(value: Any) -> str:
    wrapped = bare_schema({"anyOf": value if isinstance(value, list) else [value]})
    return canonical_json(wrapped)


def _resolved(schema: Schema, root: Schema, effort: Effort) -> Schema:
    for _ in range(MAX_LEVELS):
        reference = schema.get("$ref")
        target: Any = resolve(root, reference) if isinstance(reference, str) else None
        if not isinstance(target, dict):
            return schema
        effort.spend(len(cast("Schema", target)) // 100)
        schema = {
            **cast("Schema", target),
            **{key: value for key, value in schema.items() if key != "$ref"},
        }
    return schema


def _named(path: str) -> str:
    return repr(path) if path else "the arguments"


def _members(old: Schema, new: Schema, roots: _Roots, path: str, level: int) -> Iterator[Detail]:
    before, after = properties_of(old), properties_of(new)
    was, now = set(required_of(old)), set(required_of(new))
    for name in sorted(before.keys() | after.keys()):
        inner = f"{path}.{name}" if path else name
        if name not in after:
            yield Detail(f"{inner!r} was removed", breaking=True)
        elif name not in before:
            needed = name in now
            yield Detail(
                f"{inner!r} was added" + (" and is required" if needed else ""), breaking=needed
            )
        else:
            if (name in was) != (name in now):
                needed = name in now
                yield Detail(
                    f"{inner!r} is " + ("required now" if needed else "no longer required"),
                    breaking=needed,
                )
            yield from _compare(before[name], after[name], roots, inner, level + 1)
    closed = old.get("additionalProperties", True), new.get("additionalProperties", True)
    if closed[0] != closed[1]:
        yield Detail(
            f"other properties of {_named(path)} are treated otherwise",
            breaking=closed[1] is not True,
        )


def _types(old: Schema, new: Schema, path: str) -> Iterator[Detail]:
    before, after = set(types_of(old)), set(types_of(new))
    if before == after:
        return
    words = f"{_joined(before)} became {_joined(after)}"
    wider = not after or (bool(before) and _accepted(before) <= _accepted(after))
    how = (
        "widened"
        if wider
        else "narrowed"
        if not before or _accepted(after) < _accepted(before)
        else "changed"
    )
    yield Detail(f"the type of {_named(path)} was {how}: {words}", breaking=not wider)


def _accepted(types: set[str]) -> set[str]:
    return types | {"integer"} if "number" in types else types


def _joined(types: set[str]) -> str:
    return " or ".join(sorted(types)) or "any"


def _values(old: Schema, new: Schema, path: str) -> Iterator[Detail]:
    before, after = _listed(old.get("enum")), _listed(new.get("enum"))
    if before != after:
        if after is None or (before is not None and before < after):
            yield Detail(f"{_named(path)} takes more values")
        else:
            lost = "" if before is None else f": {len(before - after)} fewer"
            yield Detail(f"{_named(path)} takes fewer values{lost}", breaking=True)
    for keyword in (*_LOWER, *_HIGHER):
        least, most = old.get(keyword), new.get(keyword)
        if least != most:
            tighter = most is not None
            if isinstance(least, int | float) and isinstance(most, int | float):
                tighter = (most < least) == (keyword in _LOWER)
            yield Detail(f"{keyword!r} of {_named(path)} changed", breaking=tighter)
    for keyword in _TEXT:
        if old.get(keyword) != new.get(keyword):
            yield Detail(f"{keyword!r} of {_named(path)} changed", breaking=keyword in new)
    if old.get("default") != new.get("default"):
        yield Detail(f"the default of {_named(path)} changed")


def _listed(value: Any) -> set[str] | None:
    return (
        {canonical_json(part) for part in cast("list[Any]", value)}
        if isinstance(value, list)
        else None
    )
