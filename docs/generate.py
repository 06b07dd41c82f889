"""Write what the documentation takes from the code: `python -m docs.generate`.

Reference pages are written whole. In every other page, and in the README, a comment that names a
file of `docs/src/`, and after `#` a step of it, is followed by one block that is taken from there;
the comment that names `docs/house.py` is followed by the map of the rooms.
`tests/docs/test_docs.py` runs these files and checks that all pages are current.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ctx_pipeline import contracts, errors
from ctx_pipeline.config import settings as config
from ctx_pipeline.contracts import codes
from ctx_pipeline.contracts.schema import PUBLISHED
from ctx_pipeline.sources.read import ADAPTERS, READERS
from docs.house import rooms_table
from docs.meanings import (
    COMMON_FIELDS,
    DEFINITION_CODES,
    ERROR_EXITS,
    ERRORS,
    EXCLUSIONS,
    FIELDS,
    FILE_CODES,
    GATES,
    KEYS,
    LOADING,
    SETTINGS_OF,
)
from docs.transcripts import console, source_block

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs"
GENERATED = (
    "<!-- Written by `python -m docs.generate`. Change the code or docs/meanings.py, not "
    "this page. -->"
)
OTHERS_PAGES = {"docs/cli.md"}
"""Pages that another test holds current."""

_MARKER = re.compile(r"(<!-- (docs/src/[\w./-]+)(?:#([\w-]+))? -->\n)(?:```.*?\n```\n)?", re.DOTALL)
_MAP = re.compile(r"(<!-- docs/house\.py -->\n)(?:\|.*\n)*")


def pages() -> dict[Path, str]:
    """Return every page that takes something from the code, as it should be."""
    found = {
        DOCS / "reference" / "configuration.md": configuration_page(),
        DOCS / "reference" / "contracts.md": contracts_page(),
        DOCS / "reference" / "errors.md": errors_page(),
    }
    for path in written_pages():
        if path not in found:
            text = path.read_text(encoding="utf-8")
            found[path] = filled(text)
    return found


def written_pages() -> list[Path]:
    """Return the README and every page of the documentation that this module looks after."""
    every = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [path for path in every if path.relative_to(REPOSITORY).as_posix() not in OTHERS_PAGES]


def filled(text: str) -> str:
    """Return a page with the block after each marker taken from its file."""

    def block(found: re.Match[str]) -> str:
        marker, name, step = found.groups()
        path = REPOSITORY / name
        shown = console(path, step) if path.suffix == ".sh" else source_block(path)
        return f"{marker}{shown}"

    return _MAP.sub(lambda found: f"{found[1]}{_map()}", _MARKER.sub(block, text))


def _map() -> str:
    return table(("Floor", "Room", "What it owns", "Imports"), rooms_table())


# --- tables


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return (
        "\n".join(
            "| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines
        )
        + "\n"
    )


def kind_of(annotation: Any) -> str:
    """Return a type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(
            dict.fromkeys(kind_of(part) for part in arguments if part is not type(None))
        )
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {kind_of(arguments[0])}"
    if origin is dict:
        return f"table of {kind_of(arguments[1])} by name" if arguments[1] is not Any else "table"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if annotation is config.Freshness:
        return "duration or `{warn, fail}`"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return _PLAIN[annotation]


_PLAIN = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    timedelta: "duration",
    date: "day",
    SecretStr: "secret text",
    contracts.UtcDatetime: "time",
    Any: "any value",
}
_PLAIN[get_args(contracts.UtcDatetime)[0]] = "time"


def limits_of(info: FieldInfo) -> str:
    """Return the bounds of a field in words, empty without any."""
    bounds = {type(rule).__name__: rule for rule in info.metadata}
    low = getattr(bounds.get("Ge"), "ge", None)
    high = getattr(bounds.get("Le"), "le", None)
    below = getattr(bounds.get("Lt"), "lt", None)
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    if low is not None and below is not None:
        return f", {low:,} to less than {below:,}"
    return f", {low:,} or more" if low else ""


def default_of(info: FieldInfo, *, absent: str) -> str:
    """Return a default as it would be written."""
    if info.is_required():
        return "required"
    return _literal(info.get_default(call_default_factory=True), absent)


def _literal(value: Any, absent: str) -> str:
    match value:
        case None:
            return absent
        case BaseModel():
            return absent
        case tuple() | dict() if not value:
            return absent
        case StrEnum():
            return f'`"{value.value}"`'
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f'`"{value}"`' if value else absent
        case tuple():
            return ", ".join(_literal(part, absent) for part in cast("tuple[Any, ...]", value))
        case dict():
            return ", ".join(f"{key} {part}" for key, part in cast("dict[str, Any]", value).items())
        case _:
            return f"`{value:,}`" if isinstance(value, int) and value >= 10_000 else f"`{value}`"


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field of a model, in one line; inherited ones too."""
    found: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if not issubclass(parent, BaseModel) or parent.__module__.startswith("pydantic"):
            continue
        (tree,) = ast.parse(inspect.getsource(parent)).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                words = getattr(below.value, "value", None)
                if isinstance(words, str) and isinstance(field.target, ast.Name):
                    found[field.target.id] = " ".join(words.split())
    return found


def first_line(subject: Any) -> str:
    """Return the promise of a docstring, its first paragraph on one line."""
    return " ".join((inspect.getdoc(subject) or "").split("\n\n")[0].split())


# --- configuration


def configuration_page() -> str:
    """Return the page of every key of `ctx.toml`."""
    shown = "".join(_settings_table(name, model, intro) for name, model, intro in _tables())
    supported = {**ADAPTERS, **READERS}
    kinds = [
        (f"`{kind.value}`", str(config.DEFAULT_AUTHORITY[kind]), _promise_of(name))
        for kind, name in sorted(supported.items(), key=lambda entry: entry[0].value)
    ]
    reserved = ", ".join(f"`{kind.value}`" for kind in codes.SourceKind if kind not in supported)
    others = f"Reserved for later: {reserved}. " if reserved else ""
    return f"""{GENERATED}

# Configuration

`ctx.toml` lies in the project's folder and is the one settings file. This page lists every key; a key that is not
here is refused with its line and the nearest known one. Every mistake is told at once, before anything is read.

## Where a setting comes from

A flag wins over an environment variable, that over `ctx.toml`, and that over the default. `ctx config show --origin`
prints what is in force and where it came from. A variable is `CTX_` and the key with `__` between its parts:
`CTX_PROJECT__NAME`, `CTX_LEDGER__URL`, `CTX_POLICY__WEIGHTS__FRESHNESS`. A list is JSON, or words with commas between
them. `CTX_SOURCES` and `CTX_MODELS` replace the whole list and are JSON. These variables are no settings: `CTX_HOME`
names the project's folder, `CTX_DEBUG=1` shows tracebacks.

## Durations

A duration is a number with a unit: `90m`, `24h`, `7d`, `3600s`; the least is 60 seconds. `freshness = "24h"` is the
window after which a source is stale; the warning comes at three quarters of it. `freshness = {{ warn = "12h", fail =
"24h" }}` gives both.

## Kinds of sources

Each kind has one adapter. {others}A source of a kind that is not in this table is refused, with
`unsupported_source_kind` or the nearest kind. Files of other types are skipped, and the report says so.

{table(("Kind", "Authority", "What the adapter does"), kinds)}
{shown}"""


def _promise_of(name: str) -> str:
    """Return what a reader of sources (`module:function`) promises, without importing it."""
    module, _, function = name.partition(":")
    path = REPOSITORY / "ctx_pipeline" / "sources" / f"{module.replace('.', '/')}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    raise SystemExit(f"ctx_pipeline/sources/{module}.py has no {function}")


def _tables() -> list[tuple[str, type[BaseModel], str]]:
    return [
        ("[project]", config.ProjectSection, ""),
        (
            "[identity]",
            config.IdentitySection,
            "Without this table, every call has to say who asks.",
        ),
        (
            "[embedder]",
            config.EmbedderSection,
            "See [choose an embedder](../how-to/choose-an-embedder.md).",
        ),
        ("[[sources]]", config.SourceConfig, "See [add a source](../how-to/add-a-source.md)."),
        (
            "[calendar]",
            config.CalendarSection,
            "See [finding and ranking](../explanation/finding-and-ranking.md).",
        ),
        ("[policy]", config.PolicySection, ""),
        (
            "[policy.weights]",
            contracts.RankWeights,
            "The score of an item is the weighted sum of its features.",
        ),
        (
            "[policy.tools]",
            contracts.ToolRules,
            "See [look after tools](../how-to/look-after-tools.md).",
        ),
        (
            "[policy.conflicts]",
            contracts.ConflictPolicy,
            "See [conflicts](../explanation/conflicts.md).",
        ),
        (
            "[policy.sources.NAME]",
            contracts.SourcePolicy,
            "`NAME` is that of a source, or a kind; the source wins.",
        ),
        ("[policy.sources.NAME.scope]", contracts.SourceScope, ""),
        (
            "[[policy.rules]]",
            contracts.PolicyRule,
            "See [write a policy](../how-to/write-a-policy.md).",
        ),
        ("[policy.rules.when]", contracts.PolicyCase, ""),
        ("[policy.rules.set]", contracts.PolicyChange, ""),
        (
            "[policy_service]",
            config.PolicyServiceSection,
            "See [use a policy service](../how-to/use-a-policy-service.md).",
        ),
        ("[engine]", config.EngineSection, ""),
        ("[ledger]", config.LedgerSection, ""),
        ("[dagster]", config.DagsterSection, ""),
        ("[artifact]", config.ArtifactSection, ""),
        ("[retention]", config.RetentionSection, ""),
        (
            "[alerts]",
            config.AlertsSection,
            "See [be told of failures](../how-to/run-under-dagster.md).",
        ),
        ("[usage]", config.UsageSection, ""),
        (
            "[[models]]",
            contracts.ModelProfile,
            "A profile with the `model_id` of a shipped one replaces it.",
        ),
    ]


def _settings_table(name: str, model: type[BaseModel], more: str) -> str:
    docs = attribute_docs(model)
    rows = [
        (
            f"`{key}`",
            _kind_in_config(key, info) + limits_of(info),
            _config_default(model, key, info),
            _meaning(f"{name.strip('[]')}.{key}", docs.get(key)),
        )
        for key, info in model.model_fields.items()
        if key != "schema_version" and (model, key) != (config.PolicySection, "weights")
    ]
    promise = re.sub(r"^`[^`]+`: (\w)", lambda found: found.group(1).upper(), first_line(model))
    intro = " ".join(part for part in (promise, more) if part)
    return f"## `{name}`\n\n{intro}\n\n{table(('Key', 'Value', 'Default', 'Meaning'), rows)}\n"


def _kind_in_config(key: str, info: FieldInfo) -> str:
    if key == "kind" and info.annotation is codes.SourceKind:
        return "[kind of source](#kinds-of-sources)"
    return re.sub(
        r"\[(\w+)\]\(#\w+\)",
        lambda found: f"[table](#{_ANCHORS[found[1]]})",
        kind_of(info.annotation),
    )


_ANCHORS = {
    "WeightChange": "policyweights",
    "ToolRules": "policytools",
    "ConflictPolicy": "policyconflicts",
    "SourcePolicy": "policysourcesname",
    "SourceScope": "policysourcesnamescope",
    "PolicyRule": "policyrules",
    "PolicyCase": "policyruleswhen",
    "PolicyChange": "policyrulesset",
}
"""Where the configuration page shows a table within a table."""


def _config_default(model: type[BaseModel], key: str, info: FieldInfo) -> str:
    if model is config.SourceConfig and key == "authority":
        return "[by kind](#kinds-of-sources)"
    return default_of(info, absent="none")


def _meaning(key: str, docstring: str | None) -> str:
    meaning = docstring or KEYS.get(key)
    if not meaning:
        raise SystemExit(f"give {key} a docstring, or say in docs/meanings.py what it means")
    return meaning


# --- contracts

GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "The request",
        "What a caller asks for.",
        ("ContextRequest", "Task", "Identity", "Message", "Observation"),
    ),
    (
        "The pack",
        "What one model call sees, and how it came about.",
        (
            *(
                "ContextPack",
                "PackSection",
                "PackItem",
                "Capability",
                "ConflictRecord",
                "ConflictSide",
            ),
            *("PackWarning", "PolicyDecision", "BudgetReport", "SectionBudget", "PrefixInfo"),
            "ResolvedPeriod",
        ),
    ),
    (
        "The record",
        "What is kept of a call, and of an item's life.",
        (
            *(
                "ContextSnapshot",
                "SnapshotItem",
                "ContextDecisionTrace",
                "FilterStep",
                "SnapshotDiff",
                "DiffEntry",
            ),
            "LifecycleEvent",
        ),
    ),
    (
        "The item",
        "One immutable version of one thing that a model may see.",
        ("ContextItem", "Provenance", "Locator", "Scope", "Media", "ToolContextItem"),
    ),
    (
        "Policy, model and build",
        "What packs are made by, and what a build reports.",
        (
            *(
                "ContextPolicy",
                "RankWeights",
                "PolicyRule",
                "PolicyCase",
                "PolicyChange",
                "WeightChange",
                "ToolRules",
            ),
            "ConflictPolicy",
            *("SourcePolicy", "SourceScope", "ModelProfile"),
            *("BuildReport", "IndexPin", "SourceReport", "SourceFile", "FileError"),
        ),
    ),
    (
        "Retiring",
        "What was taken out, and why.",
        ("RetireReport", "RetiredItem"),
    ),
    (
        "Publishing",
        "What publishing definitions found, changed and reached.",
        (
            "PublishReport",
            "PublishedFile",
            "DefinitionFinding",
            "DefinitionChange",
            "DefinitionExposure",
        ),
    ),
)


def contracts_page() -> str:
    """Return the page of every model and code that crosses a boundary."""
    parts = [
        f"""{GENERATED}

# Contracts

These models cross the boundary of the library: arguments, results, JSON of the command line, stored records. They are
frozen, refuse unknown fields, and take only times with a zone. A list is never null; a field without a default is
required. The JSON Schema of each published model is a link in its section.

"""
    ]
    for title, sentence, names in GROUPS:
        parts.append(f"## {title}\n\n{sentence}\n\n")
        parts.extend(_model_section(getattr(contracts, name)) for name in names)
    parts.append(_codes_section())
    return "".join(parts)


def _model_section(model: type[BaseModel]) -> str:
    docs = attribute_docs(model)
    rows = [
        (
            f"`{key}`",
            kind_of(info.annotation) + limits_of(info),
            default_of(info, absent="none"),
            docs.get(key) or _field_meaning(model.__name__, key),
        )
        for key, info in model.model_fields.items()
        if key != "schema_version"
    ]
    schema = ""
    if model in PUBLISHED:
        path = f"../../ctx_pipeline/contracts/schemas/{model.__name__}.schema.json"
        schema = f" [JSON Schema]({path})."
    head = f"### {model.__name__}\n\n{first_line(model)}{schema}\n\n"
    return head + table(("Field", "Value", "Default", "Meaning"), rows) + "\n"


def _field_meaning(model: str, key: str) -> str:
    setting = KEYS.get(f"{SETTINGS_OF[model]}.{key}") if model in SETTINGS_OF else None
    meaning = FIELDS.get(f"{model}.{key}") or setting or COMMON_FIELDS.get(key)
    if not meaning:
        raise SystemExit(
            f"give {model}.{key} a docstring, or say in docs/meanings.py what it means"
        )
    return meaning


def _codes_section() -> str:
    return f"""## Codes

Codes are stable: a value never changes its meaning, and new ones may be added.

### Why an item stayed out

The first fourteen are the rules of visibility in the order in which they are checked; the first that fails is the
code. The first seven are rules of permission: what they deny is counted in `denied` and never named.

{_code_table(codes.Exclusion, EXCLUSIONS)}
### Preflight checks

A failed check in `hard_gates` is `gate_failed`; any other is a warning of the pack.

{_code_table(codes.GateCheck, GATES)}
### When a source loads

`when_to_load` of a source says when its items are considered.

{_code_table(codes.WhenToLoad, LOADING)}
### What is wrong with a file

A file that cannot be loaded is reported with one of these, and everything else is built.

{_code_table(codes.FileCode, FILE_CODES)}
### What is wrong with a definition

A definition is not published with one of these, or with a file code of above. `not_checked` is a warning, and so is
`no_definitions` of a file that the registry has.

{_code_table(contracts.DefinitionCode, DEFINITION_CODES)}
### Closed sets

These values are all there are.

{_closed_sets()}"""


def _code_table(kind: type[StrEnum], meanings: Mapping[str, str]) -> str:
    if {member.value for member in kind} != set(meanings):
        raise SystemExit(
            f"docs/meanings.py: the meanings of {kind.__name__} are not those of its codes"
        )
    return table(
        ("Code", "Meaning"), [(f"`{member.value}`", meanings[member.value]) for member in kind]
    )


def _closed_sets() -> str:
    kinds = (
        *(
            codes.ItemKind,
            codes.SourceKind,
            codes.Trust,
            codes.Sensitivity,
            codes.Rendition,
            codes.Zone,
        ),
        *(codes.Lifecycle, codes.FileStatus),
    )
    rows = [
        (f"`{kind.__name__}`", ", ".join(f"`{member.value}`" for member in kind), first_line(kind))
        for kind in kinds
    ]
    return table(("Set", "Values", "Meaning"), rows)


# --- errors

_ROOMS = ("ctx_pipeline", "assets", "resources", "sensors")


def errors_page() -> str:
    """Return the page of every error a caller can see."""
    kinds = {name: kind for name, kind in vars(errors).items() if _is_error(kind)}
    families = [
        (
            f"`{kind.code}`",
            name,
            str(kind.exit_code),
            str(kind.http_status),
            _yes(kind.retryable),
            first_line(kind),
        )
        for name, kind in kinds.items()
    ]
    found: dict[str, list[tuple[type[errors.CtxError], str]]] = defaultdict(list)
    for name, code, message in sorted(_raised()):
        found[code].append((kinds[name], message))
    rows = [_error_row(code, made) for code, made in sorted(found.items())]
    return f"""{GENERATED}

# Errors

Every error that reaches a caller has a stable code, says what was wrong and where, and what to do. Codes and exit
codes are promises; the wording of a message is not. A message names fields, files and limits, never the content of
what was sent.

## How an error looks

The command line prints three lines on stderr: the code with what was wrong, `in:` with where, `fix:` with what to do.
With `--json`, stdout holds `{{"error": {{code, message, where, fix, retryable}}}}` as well; a refused pack adds
`trace_id`. In Python the same fields are attributes of `CtxError`: `stable_code`, `message`, `where`, `fix`,
`retryable`, and `as_dict()` gives them all.

## Families

Each error belongs to one class, which fixes the exit code of the command line and the HTTP status of a server. A code
of its own wins over the code of its family.

{table(("Code", "Class", "Exit", "HTTP", "Retry", "Meaning"), families)}
## Codes

Every code that the library raises beside those of the families. `…` stands for a name or a number.

{table(("Code", "Exit", "Retry", "What it says"), rows)}
## Other exit codes

0 is success, 130 an interrupt, and 141 a reader of stdout that closed early. `ctx build` exits with 0 when single
files could not be loaded and reports them, and when a project has no sources; with `--strict` it exits with 2.
`ctx doctor` exits with 5, 7 or 2 for the worst finding. """


def _error_row(code: str, made: list[tuple[type[errors.CtxError], str]]) -> tuple[str, ...]:
    exits = sorted({kind.exit_code for kind, _ in made})
    # Of several messages the one that says most without a name or a number.
    message = max(
        (message for _, message in made), key=lambda text: (len(text.replace("…", "")), text)
    )
    return (
        f"`{code}`",
        ERROR_EXITS.get(code) or ", ".join(map(str, exits)),
        _yes(all(kind.retryable for kind, _ in made)),
        ERRORS.get(code, message),
    )


def _is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, errors.CtxError)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _raised() -> Iterator[tuple[str, str, str]]:
    """Yield class, code and message of every error that names a code where it is made."""
    names = {name for name, kind in vars(errors).items() if _is_error(kind)}
    for path in _modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in names:
                    code = next((word.value for word in node.keywords if word.arg == "code"), None)
                    for value in _constants(code):
                        yield name, value, _template(node.args[0])
                case ast.Call(
                    func=ast.Name(id="Problem" | "Fault"),
                    args=[_, message, _, ast.Constant(value=str(code))],
                ):
                    yield "ConfigError", code, _template(message)
                case ast.Tuple(
                    elts=[
                        ast.Constant(value=str(code)),
                        ast.Constant(value=str(message)),
                        ast.Constant(),
                    ]
                ):
                    if path.name == "faults.py":
                        yield "Unavailable", code, message
                case _:
                    pass
    yield "ConfigError", "invalid_value", "…: should be …"
    for table_name in ("model", "source"):
        yield "ConfigError", f"duplicate_{table_name}", "… is taken"


def _modules() -> Iterator[Path]:
    for room in _ROOMS:
        for path in sorted((REPOSITORY / room).rglob("*.py")):
            if path.resolve() == path:
                yield path


def _constants(node: ast.expr | None) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(value)):
            yield value
        case ast.IfExp(body=body, orelse=other):
            yield from _constants(body)
            yield from _constants(other)
        case _:
            return


def _template(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in values]
            return "".join(str(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return f"{_template(left)}{_template(right)}"
        case _:
            return "…"


def main() -> None:
    """Write every page anew; say which changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")
            sys.stderr.write(f"written {path.relative_to(REPOSITORY)}\n")


if __name__ == "__main__":
    main()
