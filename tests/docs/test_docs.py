"""The documentation cannot rot: its snippets run, its pages are current, its
links lead somewhere.
"""

from __future__ import annotations

import re
import runpy
import shutil
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ctx_pipeline.cli.app import app
from docs import generate, transcripts

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = transcripts.SOURCES
TUTORIAL = SOURCES / "tutorial.sh"
CLOCK = datetime(2026, 11, 30, tzinfo=UTC)
"""The clock of the recorded calls."""
PAGES = [
    path.relative_to(REPOSITORY).as_posix()
    for path in [*generate.written_pages(), REPOSITORY / "docs" / "cli.md"]
]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_RUNNER = CliRunner()

# A first build loads libraries and a model; on a busy machine that takes longer than a test usually
# may.
pytestmark = pytest.mark.timeout(300)


def run_ctx(words: list[str], here: Path) -> str:
    """Run one command line in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        result = _RUNNER.invoke(app, words, env={"CTX_HOME": None, "CTX_DEBUG": None})
    return result.stderr + result.stdout


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Run the tutorial; return its folder and what it printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    steps = transcripts.run_steps(transcripts.read_steps(TUTORIAL), folder, run_ctx)
    return SimpleNamespace(folder=folder, steps=steps)


@pytest.fixture
def copied(tutorial: SimpleNamespace, tmp_path: Path) -> Path:
    """Return a folder with a copy of the tutorial's project, once more under
    the name of the demo.
    """
    folder = tmp_path / "copy"
    shutil.copytree(tutorial.folder, folder)
    (folder / "ctx-demo").symlink_to("shop")
    return folder


def same_output(path: Path, ran: list[transcripts.Step]) -> None:
    """Compare what commands print now with what was recorded, but for what
    differs from run to run.
    """
    if datetime.now(UTC) < CLOCK:
        pytest.skip(
            f"the clock of this machine is before {CLOCK:%Y-%m-%d}, the clock of the recorded calls"
        )
    recorded = transcripts.read_steps(path)
    assert [step.name for step in ran] == [step.name for step in recorded]
    for now, then in zip(ran, recorded, strict=True):
        assert transcripts.comparable(now) == transcripts.comparable(then), (
            "run `python -m docs.transcripts`"
        )


# --- snippets


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(tutorial: SimpleNamespace):
    same_output(TUTORIAL, tutorial.steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(path.name for path in SOURCES.glob("*.sh") if path != TUTORIAL)
)
def test_commands_print_what_their_page_shows(name: str, copied: Path):
    path = SOURCES / name
    same_output(path, transcripts.run_steps(transcripts.read_steps(path), copied, run_ctx))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in SOURCES.glob("*.py")))
def test_python_snippets_print_what_their_page_shows(
    name: str, copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(copied)
    monkeypatch.delenv("CTX_HOME", raising=False)
    runpy.run_path(str(SOURCES / name), run_name="__main__")
    shown = transcripts.recorded_output(SOURCES / name)
    printed = capsys.readouterr().out
    assert printed.strip()
    if shown:
        assert transcripts.settled(printed.splitlines()) == transcripts.settled(shown)


# --- files on disk

ONLY_SOMETIMES = {
    ".ctx/derived/checked.json",
    ".ctx/derived/exposure/",
    ".ctx/alerts.jsonl",
    ".ctx/alerts.lock",
    ".ctx/backfill.lock",
}
"""What a build and a call do not make: a large artifact, a failed run or partitions do."""


def documented_files() -> set[str]:
    """Return the paths that the page of files on disk names."""
    text = (REPOSITORY / "docs" / "reference" / "files-on-disk.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    return {path for row in rows for path in re.findall(r"`([^`]+)`", row)}


def _as_pattern(path: str) -> re.Pattern[str]:
    """Return what a path of the page stands for: a folder for all that is in it."""
    below = ".*" if path.endswith("/") else ""
    return re.compile(re.escape(path).replace("<hash>", "[0-9a-f]{32}") + below)


@pytest.mark.slow
def test_a_project_holds_the_files_that_its_page_names_and_no_others(tutorial: SimpleNamespace):
    home = tutorial.folder / "shop"
    made = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    patterns = {name: _as_pattern(name) for name in documented_files()}
    seen = {name for name, pattern in patterns.items() if any(map(pattern.fullmatch, made))}
    assert len(patterns) >= 20
    assert set(patterns) - seen - ONLY_SOMETIMES == set()
    stray = {path for path in made if not any(each.fullmatch(path) for each in patterns.values())}
    assert stray == {"before.txt", "after.txt"}


def test_every_snippet_stands_in_a_page():
    shown = "\n".join((REPOSITORY / page).read_text(encoding="utf-8") for page in PAGES)
    files = {
        path.relative_to(REPOSITORY).as_posix() for path in SOURCES.iterdir() if path.is_file()
    }
    assert {name for name in files if f"<!-- {name}" not in shown} == set()
    for path in SOURCES.glob("*.sh"):
        name = path.relative_to(REPOSITORY).as_posix()
        steps = [step.name for step in transcripts.read_steps(path) if not step.quiet]
        assert [step for step in steps if f"<!-- {name}#{step} -->" not in shown] == []


def test_every_block_of_code_comes_from_a_file_that_runs():
    stray: list[str] = []
    for page in PAGES:
        if page in generate.OTHERS_PAGES:
            continue
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        for found in _BLOCK.finditer(text):
            above = text[: found.start()].rstrip("\n").rsplit("\n", 1)[-1]
            if found.group(1) != "text" and not above.startswith("<!-- docs/src/"):
                stray.append(f"{page}: {found.group(2).splitlines()[0]}")
    assert stray == [f"README.md: {line}" for line in readme_commands()]


# --- pages


@cache
def expected_pages() -> dict[Path, str]:
    """Return every page as it should be."""
    return generate.pages()


@pytest.mark.parametrize("page", [page for page in PAGES if page not in generate.OTHERS_PAGES])
def test_a_page_is_what_the_code_and_its_snippets_say(page: str):
    path = REPOSITORY / page
    assert path.read_text(encoding="utf-8") == expected_pages()[path], (
        "run `python -m docs.generate`"
    )


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "CONTRIBUTING.md"])
def test_every_link_leads_somewhere(page: str):
    path = REPOSITORY / page
    broken = [link for link in links(path) if not leads_somewhere(path, link)]
    assert broken == []


def links(path: Path) -> Iterator[str]:
    """Yield the links of a page that stay in the repository."""
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    yield from (
        link
        for link in _LINK.findall(text)
        if not link.startswith(("https://", "http://", "mailto:"))
    )


def leads_somewhere(path: Path, link: str) -> bool:
    """Tell whether a relative link names a file, and its fragment a heading of that file."""
    name, _, fragment = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.exists() or not target.is_relative_to(REPOSITORY):
        return False
    return not fragment or fragment in anchors(target)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    headings = re.findall(
        r"^#+ (.*)$", _BLOCK.sub("", path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_heading_is_followed_by_a_sentence(page: str):
    text = re.sub(
        r"<!--.*?-->\n*", "", _BLOCK.sub("```", (REPOSITORY / page).read_text(encoding="utf-8"))
    )
    for heading, below in re.findall(r"^(#+ .*)\n\n?(.*)$", text, re.MULTILINE):
        assert re.match(r"[\w`*\[]", below), f"{page}: {heading} is followed by {below[:40]!r}"
        assert not below.startswith("```"), f"{page}: {heading} is followed by a block"


def test_pages_of_one_kind_lie_together():
    docs = REPOSITORY / "docs"
    kinds = {path.parent.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert kinds == {".", "how-to", "reference", "explanation"}
    assert {path.name for path in docs.glob("*.md")} == {"tutorial.md", "cli.md", "operations.md"}


def test_every_page_is_reached_from_the_readme():
    linked = {link.partition("#")[0] for link in links(REPOSITORY / "README.md")}
    pages = {
        path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md")
    }
    assert pages - linked == set()


# --- README and changelog


def readme_commands() -> list[str]:
    """Return the commands of the README's first screen."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return [
        line
        for found in re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for line in found.splitlines()
    ]


def test_the_readme_has_two_commands_and_they_are_those_of_the_gate():
    run, test = readme_commands()
    assert run == "pip install -c requirements.lock . && ctx demo"
    install, check = test.split(" && ")
    gate = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    assert install == "pip install -c requirements.lock -e '.[dev]'"
    assert "requirements.lock --editable '.[dev]'" in gate
    assert check == "python -m pytest -q"
    assert '"$bin/python" -m pytest -q' in gate


def test_the_readme_names_only_tests_that_there_are():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\[`(test_\w+)`\]\((tests/[\w/]+\.py)\)", text)
    assert len(named) >= 10
    missing = [
        name
        for name, path in named
        if f"def {name}(" not in (REPOSITORY / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_the_readme_shows_items_that_the_demo_has(tmp_path: Path):
    from ctx_pipeline.config.settings import load_config
    from ctx_pipeline.demo import create_demo
    from ctx_pipeline.sources import read_source

    home = create_demo(tmp_path / "demo", rows=2_000).home
    loaded = load_config(home)
    items = [
        item
        for source in loaded.config.sources
        for item in read_source(source, home, tenant=loaded.config.project.tenant).items
    ]
    ids = {item.item_id for item in items}
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    kinds = "policy|instruction|glossary|metric|schema|document|memory|tool"
    shown = re.findall(rf"\b(?:{kinds}):[a-z]+/.+?(?=  | @|[,)]|$)", text, re.MULTILINE)
    assert len(shown) >= 10
    assert set(shown) - ids == set()


def test_the_changelog_speaks_of_the_current_version():
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## \[([^\]]+)\] - (.*)$", text, re.MULTILINE)
    assert first is not None
    assert first.group(1) == version
    assert re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", first.group(2))
