"""A project with a real sentence-transformers model: build, assembly, change of the model. Needs
the `models` extra.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctx_pipeline import ContextPack, ContextProject, ContextRequest, Task, build
from ctx_pipeline.errors import InvalidRequest, Unavailable
from ctx_pipeline.index.artifact import Layout, read_pointer, read_table
from ctx_pipeline.index.embedder import load_embedder

# Importing torch takes half a minute on a busy machine.
pytestmark = [
    pytest.mark.skipif(
        find_spec("sentence_transformers") is None,
        reason="the models extra is not installed: test_missing.py runs",
    ),
    pytest.mark.timeout(300),
]

REPOSITORY = Path(__file__).resolve().parents[2]
QUESTION = "When does a customer get reimbursed?"
"""Shares no word with the document that answers it."""


def use_model(home: Path, model: str | Path) -> None:
    """Name the model in the project's `ctx.toml`, in place of any other."""
    config = home / "ctx.toml"
    text = config.read_text(encoding="utf-8").partition("[embedder]")[0]
    config.write_text(f'{text}[embedder]\nmodel = "{Path(model).as_posix()}"\n', encoding="utf-8")


def embedded_by_build(home: Path) -> int:
    return build(home, progress=False).embedded


def assemble(home: Path) -> ContextPack:
    with ContextProject.open(home) as project:
        return project.assemble(ContextRequest(task=Task(text=QUESTION), token_budget=2_000))


def first_document(sections: list[dict[str, Any]]) -> str:
    return next(
        item["item_id"]
        for section in sections
        for item in section["items"]
        if "document:" in item["item_id"]
    )


def published(home: Path) -> tuple[str, np.ndarray]:
    """Return the embedder's name in the published manifest, and the published vectors."""
    pointer = read_pointer(Layout(home))
    assert pointer is not None
    folder = Layout(home).artifacts / pointer["artifact"]
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    column = read_table(folder / "vectors.arrow")["vector"]
    return manifest["embedder"], np.asarray(column.to_pylist(), dtype=np.float32)


def test_a_project_with_a_model_in_a_folder_is_built_once_and_then_embeds_nothing(
    home: Path, weights: Path
):
    use_model(home, weights)
    first = build(home, progress=False)
    assert (first.items, first.embedded, first.errors) == (3, 3, ())
    name, vectors = published(home)
    assert re.fullmatch(r"sentence-transformers/model@[0-9a-f]{12}", name)
    assert vectors.shape == (3, 384)
    again = build(home, progress=False)
    assert (again.items, again.embedded, again.artifact) == (3, 0, first.artifact)


def test_a_pack_is_assembled_offline_by_meaning_in_a_process_of_its_own(home: Path, weights: Path):
    use_model(home, weights)
    build(home, progress=False)
    ctx = [
        sys.executable,
        "-c",
        "from ctx_pipeline.cli.app import main; main()",
        "--home",
        str(home),
    ]
    done = subprocess.run(
        [*ctx, "assemble", QUESTION, "--budget", "2000", "--json"],
        capture_output=True,
        cwd=REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr.decode()
    pack = json.loads(done.stdout)
    assert first_document(pack["sections"]) == "document:handbook/refunds.md#1"
    assert pack["hash"] == assemble(home).hash


def test_another_model_gives_another_artifact_and_the_vectors_of_both_stay(
    home: Path, weights: Path
):
    old = build(home, progress=False)
    old_name, old_vectors = published(home)
    use_model(home, weights)
    new = build(home, progress=False)
    new_name, new_vectors = published(home)
    assert (old.embedded, new.embedded) == (3, 3)
    assert old.artifact != new.artifact
    assert (old_name, new_name) == (load_embedder().name, load_embedder(str(weights)).name)
    # Both models have 384 dimensions, so a mixture would have gone unnoticed.
    assert old_vectors.shape == new_vectors.shape
    assert not np.isclose(old_vectors, new_vectors).all(axis=1).any()
    for model, report, vectors in (("default", old, old_vectors), (weights, new, new_vectors)):
        use_model(home, model)
        back = build(home, progress=False)
        assert (back.embedded, back.artifact) == (0, report.artifact)
        np.testing.assert_array_equal(published(home)[1], vectors)


def test_between_the_change_of_the_model_and_the_build_assembly_is_refused(
    home: Path, weights: Path
):
    for before, after in (("default", weights), (weights, "default")):
        use_model(home, before)
        build(home, progress=False)
        assemble(home)
        use_model(home, after)
        with pytest.raises(InvalidRequest) as raised:
            assemble(home)
        assert raised.value.stable_code == "embedder_changed"
        assert raised.value.fix == "run `ctx build`, or name the model the index was built with"
        assert load_embedder(str(after)).name in raised.value.message
        build(home, progress=False)
        assert assemble(home).total_tokens > 0


def test_a_model_that_is_not_there_is_unavailable_and_what_was_published_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    build(home, progress=False)
    before = read_pointer(Layout(home))
    assert before is not None
    monkeypatch.chdir(home)
    # A path that is not there, names that the hub's cache has not, what cannot be a name, a folder
    # without a model.
    for model in (
        "/no/such/folder",
        "no-such-model",
        "acme/no-such-model",
        "./a folder",
        "documents",
    ):
        use_model(home, model)
        for call in (embedded_by_build, assemble):
            with pytest.raises(Unavailable) as raised:
                call(home)
            assert (raised.value.stable_code, raised.value.where) == (
                "model_unavailable",
                "[embedder] model",
            )
            assert raised.value.fix == (
                "check the name, download the model while online, or name the folder that holds it"
            )
            assert Path(model).as_posix() in raised.value.message
        assert read_pointer(Layout(home)) == before
    use_model(home, "default")
    assemble(home)
    assert embedded_by_build(home) == 0
