from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.sources.formats.splitting import (
    CJK_CHARS,
    LATIN_CHARS,
    LONG_LINE_CHARS,
    Outline,
    split_text,
)

PIECES = st.sampled_from(
    [
        "# Heading\n",
        "## 标题 二\n",
        "\n\n",
        "```\n# no heading\n```\n",
        "The same paragraph, twice. " * 8,
        "退款政策在三个工作日内生效。" * 20,
        "👩‍👩‍👧‍👦🇩🇪 Übergrößenträger äöü " * 9,
        "a" * 2_000,
        " " * 300,
        "- item\n- item\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "\u2028\x1c\x85",
    ]
)
TEXTS = st.lists(
    PIECES | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace").decode()),
    max_size=30,
)


@given(TEXTS.map("".join), st.booleans())
def test_chunks_are_exact_ordered_bounded_and_lose_nothing_but_blanks(text, markdown):
    chunks = split_text(text, markdown=markdown)
    position = 0
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        assert len(chunk.text) <= LATIN_CHARS[1]
        assert chunk.start >= position
        assert not text[position : chunk.start].strip()
        position = chunk.end
    assert not text[position:].strip()


@pytest.mark.parametrize("markdown", [True, False])
@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("word " * 200_000, LATIN_CHARS[1]),
        ("a" * 1_000_000, LATIN_CHARS[1]),
        ("退" * 300_000, CJK_CHARS[1]),
    ],
)
def test_one_long_line_gives_bounded_chunks(text, limit, markdown):
    chunks = split_text(text, markdown=markdown)
    assert max(len(chunk.text) for chunk in chunks) <= limit
    assert sum(len(chunk.text) for chunk in chunks) >= len(text) - 2 * len(chunks)


def test_a_repeated_paragraph_has_its_own_offset_each_time():
    paragraph = "Refunds take three days. " * 30
    text = f"{paragraph}\n\n{paragraph}\n\n{paragraph}"
    starts = [chunk.start for chunk in split_text(text, markdown=True)]
    assert len(set(starts)) == len(starts) > 1


def test_a_small_tail_joins_its_neighbour():
    text = "Sentence number one. " * 60 + "\n\nEnd."
    assert len(split_text(text, markdown=False)) == 1


def test_a_line_is_cut_after_a_blank_where_there_is_one():
    text = "ab " * LONG_LINE_CHARS
    assert all(
        chunk.text.startswith("ab") and chunk.text.endswith("ab")
        for chunk in split_text(text, markdown=False)
    )


def test_headings_inside_code_are_no_headings():
    outline = Outline(
        "# Real\n\n```sh\n# comment\n```\n~~~~\n# x\n~~~\n# y\n~~~~\n## Sub ##\nText\n===\n"
    )
    assert [(h.level, h.text) for h in outline.headings] == [(1, "Real"), (2, "Sub")]


def test_underlined_titles_are_headings():
    outline = Outline("Title\n=====\n\ntext\n\nPart\n----\n\n- item\n---\n")
    assert [(h.level, h.text, h.start) for h in outline.headings] == [
        (1, "Title", 0),
        (2, "Part", 19),
    ]


def test_a_span_lies_under_the_headings_it_shares():
    text = "# A\n## B\nb\n## C\nc\n# D\nd\n"
    outline = Outline(text)
    assert outline.above(text.index("b\n"), text.index("b\n") + 1) == ("A", "B")
    assert outline.above(text.index("## B"), text.index("# D")) == ("A", "B")[:1]
    assert outline.above(0, len(text)) == ()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# A\n# B\n", "A"),
        ("### r1\n### r2\n", None),
        ("## Only\ntext", "Only"),
        ("intro\n", None),
        ("## A\n# B", None),
    ],
)
def test_the_title_is_the_first_heading_if_it_names_the_whole(text, title):
    assert Outline(text).title == title
