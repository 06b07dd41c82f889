"""Search terms: Chinese and English words are found, and nothing in a text can break the search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.index.lexical import Lexical
from ctx_pipeline.language.terms import MAX_QUERY_TERMS, MAX_TERMS, query_terms, terms
from tests.index.test_lexical import lexical_index, search

TEXTS = (
    "订单退款需要 3 个工作日",
    "print an incident report",
    "GMVByRegion and net_revenue for the East region",
    "成交总额（GMV）按区域统计",
    "refunds are paid, orders were shipped",
    "ユーザーの注文と返品",
    "고객 주문 환불",
    "Ｆｕｌｌｗｉｄｔｈ text ①",
    "naïve café résumé",
)


@pytest.fixture(scope="module")
def index() -> Lexical:
    return lexical_index([(f"title {at}", text) for at, text in enumerate(TEXTS)])


def found(index: Lexical, query: str) -> list[int]:
    return search(index, query, [True] * len(TEXTS)).rows


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("退款", 0),
        ("订单退款多久到账", 0),
        ("工作日", 0),
        ("incident", 1),
        ("INCIDENTS", 1),
        ("incident-report?", 1),
        ("gmv by region", 2),
        ("gmvbyregion", 2),
        ("net revenue", 2),
        ("revenue", 2),
        ("成交总额", 3),
        ("gmv 区域", 3),
        ("refund", 4),
        ("shipping an order", 4),
        ("返品", 5),
        ("환불", 6),
        ("fullwidth", 7),
        ("CAFÉ", 8),
        ("cafe\u0301", 8),
    ],
)
def test_a_word_finds_the_text_that_has_it_first(index: Lexical, query: str, row: int):
    assert found(index, query)[0] == row


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        "???",
        "，。！？",
        "—— …",
        "\x00",
        "\ud800",
        "🧑‍🚒",
        "the of and",
        '+-&|!(){}[]^"~*?:\\/',
    ],
)
def test_a_query_without_words_finds_nothing(index: Lexical, query: str):
    assert found(index, query) == []


@pytest.mark.parametrize("query", ["退货政策", "天气", "incidental damages", "zzz"])
def test_a_word_that_no_text_has_finds_nothing(index: Lexical, query: str):
    assert found(index, query) == []


def test_a_single_han_character_does_not_find_a_pair_and_pairs_do_not_cross_other_text():
    assert terms("退款") == ["退款"]
    assert terms("退 款") == ["退", "款"]
    assert terms("订单退款") == ["订单", "单退", "退款"]
    assert terms("退款3天") == ["退款", "3", "天"]


@pytest.mark.parametrize("text", ["incident", "Incidents", "INCIDENT's"])
def test_forms_of_a_word_have_one_stem(text: str):
    assert "incid" in terms(text)


@given(st.text(max_size=300))
def test_any_text_gives_few_plain_terms_the_same_each_time(text: str):
    once = terms(text)
    assert once == terms(text)
    assert len(once) <= MAX_TERMS
    assert len(query_terms(text)) <= MAX_QUERY_TERMS
    assert set(query_terms(text)) <= set(once)
    assert not any(term == "" or any(char.isspace() for char in term) for term in once)


@given(st.text(max_size=60))
def test_any_query_is_answered(index: Lexical, query: str):
    assert set(found(index, query)) <= set(range(len(TEXTS)))


@given(before=st.text(max_size=8), after=st.text(max_size=8))
def test_a_chinese_word_is_found_whatever_stands_around_it(before: str, after: str):
    assert "退款" in terms(f"{before}退款{after}") or "退" in terms(f"{before}退款{after}")


def test_what_only_asks_is_no_term_of_a_query_in_either_language():
    assert (
        query_terms("如何办理退款？")
        == query_terms("请问怎么办理退款呢")
        == query_terms("办理退款")
    )
    assert query_terms("How do I refund the order?") == query_terms("refund order")


@pytest.mark.parametrize("text", ["怎么", "是否可以", "为什么"])
def test_a_query_that_only_asks_keeps_its_terms(text: str):
    assert query_terms(text) == terms(text)


def test_a_text_longer_than_the_limit_keeps_its_beginning():
    assert len(terms("word " * 10_000)) == MAX_TERMS
    assert len(query_terms(" ".join(f"w{n}" for n in range(10_000)))) == MAX_QUERY_TERMS
