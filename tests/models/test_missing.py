"""Without the `models` extra, a project that names one of its models says what to install and loses
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ctx_pipeline import ContextProject, ContextRequest, Task, build
from ctx_pipeline.cli.app import app
from ctx_pipeline.errors import Unavailable
from ctx_pipeline.index.artifact import Layout, read_pointer

pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is not None,
    reason="the models extra is installed: nothing is missing",
)

FIX = "pip install 'ctx-pipeline[models]'"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
REQUEST = ContextRequest(task=Task(text="How long do refunds take?"), token_budget=2_000)


def name_model(home: Path) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write(f'[embedder]\nmodel = "{MODEL}"\n')


def assemble(home: Path) -> None:
    with ContextProject.open(home) as project:
        project.assemble(REQUEST)


def build_quietly(home: Path) -> None:
    build(home, progress=False)


@pytest.mark.parametrize("call", [build_quietly, assemble])
def test_a_built_project_that_then_names_a_model_is_told_what_to_install_and_keeps_its_artifact(
    home: Path, call: Callable[[Path], None]
):
    build(home, progress=False)
    before = read_pointer(Layout(home))
    unchanged = (home / "ctx.toml").read_text(encoding="utf-8")
    name_model(home)
    with pytest.raises(Unavailable) as raised:
        call(home)
    assert (raised.value.stable_code, raised.value.fix) == ("model_unavailable", FIX)
    assert (raised.value.where, MODEL in raised.value.message) == ("[embedder] model", True)
    assert before is not None
    assert read_pointer(Layout(home)) == before
    (home / "ctx.toml").write_text(unchanged, encoding="utf-8")
    assemble(home)
    assert build(home, progress=False).embedded == 0


def test_a_first_build_with_a_named_model_publishes_nothing_and_the_command_line_exits_with_7(
    home: Path,
):
    name_model(home)
    result = CliRunner().invoke(
        app, ["build", "--json", "--home", str(home)], env={"CTX_HOME": None}
    )
    assert result.exit_code == 7, result.output
    error = json.loads(result.stdout)["error"]
    assert (error["code"], error["fix"]) == ("model_unavailable", FIX)
    assert read_pointer(Layout(home)) is None


def test_a_project_that_names_a_reranker_is_told_what_to_install(home: Path):
    build(home, progress=False)
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write('[engine]\nreranker = "cross-encoder/ms-marco-MiniLM-L6-v2"\n')
    with pytest.raises(Unavailable) as raised:
        assemble(home)
    assert (raised.value.stable_code, raised.value.where, raised.value.fix) == (
        "model_unavailable",
        "[engine] reranker",
        FIX,
    )
