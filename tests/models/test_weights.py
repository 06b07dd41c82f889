"""What names a sentence-transformers model, and what its vectors are like. Needs the `models`
extra.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ctx_pipeline.index.embedder import Embedder, _load, load_embedder
from ctx_pipeline.index.reranker import load_reranker

# Importing torch takes half a minute on a busy machine.
pytestmark = [
    pytest.mark.skipif(
        find_spec("sentence_transformers") is None, reason="the models extra is not installed"
    ),
    pytest.mark.timeout(300),
]

TEXTS = ("Money is returned within fourteen days.", "退款", "x" * 3_000)


def load_again(model: str | Path) -> Embedder:
    """Load a model as a new process would."""
    return _load.__wrapped__(str(model))


def linked_copy(weights: Path, target: Path) -> Path:
    """Return a folder with every file of the weights, without copying them."""
    return shutil.copytree(weights, target, copy_function=os.symlink)


def write_snapshot(cache: Path, repository: str, commit: str, weights: Path) -> None:
    """Lay out a commit of a hub model as a download leaves it, as the newest one of its main
    branch.
    """
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit, encoding="utf-8")
    linked_copy(weights, folder / "snapshots" / commit)


@pytest.mark.parametrize(
    ("model", "repository"),
    [("acme/minilm", "acme/minilm"), ("all-minilm", "sentence-transformers/all-minilm")],
)
def test_a_hub_model_is_named_by_its_commit(
    model: str, repository: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    for commit in ("0123456789ab" + "c" * 28, "ba9876543210" + "d" * 28):
        write_snapshot(tmp_path, repository, commit, weights)
        assert load_again(model).name == f"sentence-transformers/{model}@{commit[:12]}"


def test_a_folder_is_named_by_its_bytes_wherever_it_lies_and_not_by_notes_beside_them(
    weights: Path, tmp_path: Path
):
    folder = linked_copy(weights, tmp_path / "model")
    name = load_again(folder).name
    assert re.fullmatch(r"sentence-transformers/model@[0-9a-f]{12}", name)
    assert name == load_embedder(str(weights)).name
    notes = folder / ".cache" / "huggingface" / "model.safetensors.metadata"
    notes.parent.mkdir(parents=True)
    notes.write_text("downloaded today", encoding="utf-8")
    assert load_again(folder).name == name
    pooling = folder / "1_Pooling" / "config.json"
    changed = pooling.read_text(encoding="utf-8") + "\n"
    pooling.unlink()
    pooling.write_text(changed, encoding="utf-8")
    assert load_again(folder).name != name


def test_a_model_of_half_precision_gives_whole_vectors_close_to_the_real_ones(
    weights: Path, tmp_path: Path
):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(weights)).half().save(str(tmp_path / "half"))
    whole, half = load_embedder(str(weights)), load_again(tmp_path / "half")
    assert half.name != whole.name
    query, documents = half.embed_query(TEXTS[0]), half.embed_documents(TEXTS)
    assert (query.dtype, documents.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(np.linalg.norm([query, *documents], axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(
        (documents * whole.embed_documents(TEXTS)).sum(axis=1), 1.0, atol=1e-3
    )


def tiny_cross_encoder(weights: Path, folder: Path) -> Path:
    """Save a cross-encoder of one small layer with fixed weights, over the
    words of a real model.
    """
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(7)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(weights).save_pretrained(folder)
    return folder


def test_a_cross_encoder_gives_the_same_numbers_from_0_to_1_in_any_company(
    weights: Path, tmp_path: Path
):
    reranker = load_reranker(str(tiny_cross_encoder(weights, tmp_path / "tiny")))
    scores = reranker.scores("When is money returned?", TEXTS)
    assert all(0 <= score <= 1 for score in scores)
    assert [reranker.scores("When is money returned?", [text])[0] for text in TEXTS] == scores
    assert reranker.scores("anything", []) == []
    assert reranker.name == "tiny"
