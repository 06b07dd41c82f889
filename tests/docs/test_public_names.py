"""What the documentation names exists: imports, models, errors, commands, files of the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ctx_pipeline
from ctx_pipeline import contracts, errors
from ctx_pipeline.cli.app import app
from ctx_pipeline.config.settings import ProjectConfig
from ctx_pipeline.contracts import render as renderings
from docs import generate, house

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [*generate.written_pages(), REPOSITORY / "docs" / "cli.md"]
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for room in ("ctx_pipeline", "assets", "sensors", "resources")
    for path in sorted((REPOSITORY / room).rglob("*.py"))
)

METHODS = {
    "open": ("home",),
    "close": (),
    "assemble": ("request", "at", "durable"),
    "expand": ("item_id", "level", "identity"),
    "explain": ("snapshot_id", "identity"),
    "replay": ("snapshot_id", "identity"),
    "diff": ("a", "b", "identity"),
    "report_used": ("snapshot_id", "item_ids", "identity"),
    "report_usage": ("snapshot_id", "identity"),
}
"""What callers of a project name: methods, and arguments of each."""

COMMANDS = {
    "init",
    "demo",
    "build",
    "status",
    "publish",
    "retire",
    "assemble",
    "expand",
    "explain",
    "why",
    "why-not",
    "replay",
    "diff",
    "items",
    "policy",
    "index",
    "dev",
    "config",
    "doctor",
}
"""Commands that may not go away."""

FORMATS = ("text", "openai_chat", "openai_responses", "anthropic", "langchain")


def imports_in(code: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of ours in a piece of code."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] == "ctx_pipeline":
                    yield from ((module, alias.name) for alias in names)
            case ast.Import(names=names):
                ours = (alias.name for alias in names if alias.name.startswith("ctx_pipeline"))
                yield from ((module, "") for module in ours)
            case _:
                pass


def documented_imports() -> set[tuple[str, str]]:
    """Return every import that a page shows, in a block of Python or in a command line."""
    found: set[tuple[str, str]] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            found.update(imports_in(block))
        for line in re.findall(r"from ctx_pipeline[\w.]* import \w[\w, ]*\w", text):
            found.update(imports_in(line))
    return found


@pytest.mark.parametrize(("module", "name"), sorted(documented_imports()))
def test_each_import_that_a_page_shows_works(module: str, name: str):
    loaded = importlib.import_module(module)
    if name and not hasattr(loaded, name):
        importlib.import_module(f"{module}.{name}")


def test_pages_show_imports():
    assert len(documented_imports()) >= 8
    assert ("ctx_pipeline", "ContextProject") in documented_imports()


def headings(page: str, level: str = "#+") -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(rf"^{level} (.*)$", text, re.MULTILINE)


def test_each_model_of_the_reference_is_public():
    titles = headings("docs/reference/contracts.md", "###")
    models = {title for title in titles if " " not in title}
    assert len(models) >= 30
    assert models - set(contracts.__all__) == set()
    assert set(ctx_pipeline.__all__) & set(contracts.__all__) - models == set()


def test_each_error_class_of_the_reference_is_public():
    text = (REPOSITORY / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `\w+` \| ([A-Z]\w+) \|", text, re.MULTILINE)
    assert len(named) >= 8
    assert [name for name in named if not issubclass(getattr(errors, name), errors.CtxError)] == []


def documented_commands() -> list[str]:
    return [
        found[1] for title in headings("docs/cli.md") if (found := re.match("`ctx ([^`]+)`", title))
    ]


@pytest.mark.parametrize("command", documented_commands())
def test_each_documented_command_has_help(command: str):
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0, shown.output
    assert f"ctx {command}" in shown.stdout


def test_no_command_is_taken_away():
    assert COMMANDS - set(documented_commands()) == set()


def commands_in_text() -> set[str]:
    """Return the commands that pages name in their sentences and in their blocks."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return set(re.findall(r"(?:`|\$ |^|\"|&& )ctx ([a-z][a-z-]*)", text, re.MULTILINE))


def test_pages_name_only_commands_that_there_are():
    assert commands_in_text() - {name.split()[0] for name in documented_commands()} == set()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_project_has_the_calls_that_are_promised(name: str):
    call = inspect.signature(getattr(ctx_pipeline.ContextProject, name))
    assert set(METHODS[name]) - set(call.parameters) == set()


def test_a_build_takes_what_is_promised():
    assert {"home", "select", "progress"} <= set(inspect.signature(ctx_pipeline.build).parameters)


def test_packs_are_rendered_in_the_promised_formats():
    assert set(FORMATS) - set(renderings.FORMATS) == set()


# --- pages about the code itself


ABOUT_THE_CODE = [
    "docs/explanation/the-house.md",
    "docs/how-to/write-an-adapter-or-a-stage.md",
]


@pytest.mark.parametrize("page", ABOUT_THE_CODE)
def test_a_page_about_the_code_names_only_what_there_is(page: str):
    words = set(re.findall(r"`([^`\n]+)`", (REPOSITORY / page).read_text(encoding="utf-8")))
    paths = {word for word in words if re.fullmatch(r"[\w/]+(?:/\w+|\.py)", word)}
    names = {word for word in words if re.fullmatch(r"[A-Z]\w+|[a-z]+_\w+", word)}
    roots = (REPOSITORY / "ctx_pipeline", REPOSITORY)
    assert paths | names
    assert {path for path in paths if not any((root / path).exists() for root in roots)} == set()
    assert {name for name in names if not re.search(rf"\b{name}\b", CODE)} == set()


def test_the_map_shows_every_room_and_no_arrow_that_runs_up():
    floor = {room: number for number, rooms in enumerate(house.floors()) for room in rooms}
    arrows = house.arrows()
    up = {
        (room, other)
        for room, others in arrows.items()
        for other in others
        if floor[other] >= floor[room]
    }
    assert len(arrows) > 20
    assert up == set()
    assert set(house.meanings()) == set(floor)


def test_the_page_of_settings_has_a_section_for_each_table():
    titles = {
        re.sub(r"[`\[\]]", "", title) for title in headings("docs/reference/configuration.md")
    }
    assert set(ProjectConfig.model_fields) - titles == set()
