"""The token counter: exact, offline, and unshaken by any text."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_pipeline.errors import Corrupt, InvalidRequest, Unavailable
from ctx_pipeline.language import tokens
from ctx_pipeline.language.tokens import ENCODINGS, MAX_REGEX_BLANKS, count_many, count_tokens
from testing.examples import examples

CORPORA = Path(os.environ.get("CTX_CORPORA", "../shared/corpora"))

NASTY = (
    "",
    "退款需要 3 个工作日，详见《退款政策》。",
    "East-region GMV fell by 21.9 % last month.",
    "def f(x):\n\treturn {'a': x ** 2}  # 注释\r\n\n\n",
    "👩‍👩‍👧‍👦 naïve café e\u0301 ﷽ 한국어 \u202eabc",
    "<|endoftext|><|endofprompt|><|fim_prefix|>",
    "\x00\x07\ufffd\u2028\u3000 \u00a0",
)


@pytest.fixture(scope="module")
def reference() -> dict[str, tiktoken.Encoding]:
    """Encodings as the installed tiktoken defines them, fed with the bundled ranks instead of the
    network.
    """
    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", _bundled_ranks)
        public = tiktoken_ext.openai_public
        return {
            name: tiktoken.Encoding(**getattr(public, name)())
            for name in ("cl100k_base", "o200k_base")
        }
    finally:
        patch.undo()


def _bundled_ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    name = url.rsplit("/", 1)[1].removesuffix(".tiktoken")
    assert expected_hash == tokens._VOCABULARIES[name].sha256
    return tokens._read_ranks(tokens._vocabulary_file(name), str(expected_hash))


def test_each_vocabulary_is_defined_as_the_installed_tiktoken_defines_it(
    reference: dict[str, tiktoken.Encoding],
):
    assert set(ENCODINGS) == set(reference)
    for name, encoding in reference.items():
        ours = tokens._encoding(name)
        assert (ours._pat_str, ours._special_tokens, ours.n_vocab) == (
            encoding._pat_str,
            encoding._special_tokens,
            encoding.n_vocab,
        )


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("text", NASTY)
def test_a_count_is_the_length_of_the_ordinary_encoding(
    reference: dict[str, tiktoken.Encoding], encoding: str, text: str
):
    assert count_tokens(text, encoding) == len(reference[encoding].encode_ordinary(text))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_real_chinese_and_english_texts_are_counted_exactly(
    reference: dict[str, tiktoken.Encoding], encoding: str
):
    faq = CORPORA / "docs_cn_versions" / "faq_qa_first110.jsonl"
    skills = CORPORA / "skills_anthropic"
    if not faq.is_file() or not skills.is_dir():
        pytest.skip(f"corpora not found under {CORPORA}")
    texts = [json.loads(line)["text"] for line in faq.read_text(encoding="utf-8").splitlines()]
    texts += [path.read_text(encoding="utf-8") for path in sorted(skills.rglob("SKILL.md"))]
    assert len(texts) > 100
    assert count_many(texts, encoding) == [
        len(reference[encoding].encode_ordinary(text)) for text in texts
    ]


def test_the_text_of_a_special_token_counts_as_ordinary_text():
    assert count_tokens("<|endoftext|>") > 1


@given(st.lists(st.text(st.characters()), max_size=5))
@settings(deadline=None)
def test_counting_many_is_counting_each(texts: list[str]):
    assert count_many(texts) == [count_tokens(text) for text in texts]


@given(
    st.lists(
        st.one_of(
            st.text(),
            st.text(alphabet=" \t\n\r\u00a0\u3000<>/'|.;-"),
            st.text(alphabet="aA1华é\u0301 '<>\n\r👍", max_size=30),
            st.sampled_from(NASTY),
        ),
        max_size=6,
    ),
    st.sampled_from(ENCODINGS),
)
@settings(max_examples=examples(300))
def test_counts_of_blocks_add_up_when_each_has_a_fixed_head_and_ends_in_a_newline(
    bodies: list[str], encoding: str
):
    blocks = [f'<item id="{number}">\n{body}\n</item>\n' for number, body in enumerate(bodies)]
    assert sum(count_many(blocks, encoding)) == count_tokens("".join(blocks), encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("blank", [" ", "\u3000", " \t"])
@pytest.mark.parametrize("tail", ["", "x", "\n", "\r\ny", "。"])
def test_long_blank_runs_are_counted_exactly(
    reference: dict[str, tiktoken.Encoding], encoding: str, blank: str, tail: str
):
    run = blank * (MAX_REGEX_BLANKS // len(blank) + 3)
    for text in (run + tail, f"word;\n\n{run}{tail} {run}z"):
        assert count_tokens(text, encoding) == len(reference[encoding].encode_ordinary(text))


@pytest.mark.parametrize(("tail", "tail_tokens"), [("", 0), (" x", 1)])
def test_a_run_of_blanks_that_overflows_the_tokenizer_is_still_counted(tail: str, tail_tokens: int):
    assert count_tokens(" " * 128) == 1
    assert count_tokens("a" + " " * 128 * 9_000 + tail) == 1 + 9_000 + tail_tokens


def test_a_panic_of_the_tokenizer_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    reference: dict[str, tiktoken.Encoding],
):
    monkeypatch.setattr(tokens, "MAX_REGEX_BLANKS", 10_000_000)
    monkeypatch.setattr(tokens, "MAX_WORD_CHARS", 10_000_000)
    with pytest.raises(InvalidRequest) as raised:
        count_tokens(" " * 1_200_000)
    assert raised.value.stable_code == "untokenizable_text"


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "\ud800" * 100])
def test_a_lone_surrogate_counts_as_its_replacement(text: str):
    repaired = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    assert count_tokens(text) == count_tokens(repaired)


def test_an_unknown_encoding_is_refused_and_the_known_ones_named():
    with pytest.raises(InvalidRequest) as raised:
        count_tokens("x", "p99k_base")
    assert raised.value.stable_code == "unknown_encoding"
    assert all(name in raised.value.fix for name in ENCODINGS)


def test_a_missing_vocabulary_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="bpe-openai"):
        tokens._vocabulary_file("o200k_base")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip",
        gzip.compress(b"YQ== 0\n", mtime=0),
        gzip.compress(b"YQ== 0\n", mtime=0)[:-9],
    ],
)
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "o200k_base.tiktoken.gz"
    path.write_bytes(content)
    with pytest.raises(Corrupt):
        tokens._read_ranks(path, tokens._VOCABULARIES["o200k_base"].sha256)


def test_threads_that_count_first_at_once_agree():
    tokens._load.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(count_tokens, ["退款 refund"] * 32)) == {count_tokens("退款 refund")}
    assert tokens._load.cache_info().misses == 1


def test_importing_the_counter_loads_no_tokenizer_and_counting_no_binary_of_the_vocabulary():
    code = (
        "import sys, ctx_pipeline.language.tokens as t; assert 'tiktoken' not in sys.modules; "
        "t.count_tokens('x'); assert 'bpe_openai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@given(
    st.lists(
        st.one_of(
            st.text(alphabet="aA1华é\u0301 '<>\n\r👍,.。;/s't\"()", min_size=1, max_size=40),
            st.sampled_from(NASTY[1:]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(ENCODINGS),
)
@settings(max_examples=examples(60))
def test_a_long_text_with_breaks_is_counted_exactly_though_in_pieces(
    reference: dict[str, tiktoken.Encoding], parts: list[str], encoding: str
):
    text = "".join(parts) + "é "
    text *= tokens.MAX_WORD_CHARS // len(text) + 2
    assert count_tokens(text, encoding) == len(reference[encoding].encode_ordinary(text))


@pytest.mark.parametrize("word", ["a", "退款", "0123456789abcdef", "=", "ab1"])
def test_a_word_that_is_too_long_counts_at_most_one_token_more_for_each_piece(
    reference: dict[str, tiktoken.Encoding], word: str
):
    text = word * (3 * tokens.MAX_WORD_CHARS // len(word))
    exact = len(reference["o200k_base"].encode_ordinary(text))
    assert count_tokens(text) == exact
    counted = count_tokens(text, most=exact * 2)
    assert exact <= counted <= exact + len(text) // tokens.PIECE_CHARS + 1


@pytest.mark.parametrize("word", ["refund ", "退款，", "退款", "x"])
def test_counting_stops_where_a_caller_has_no_use_for_more(word: str):
    text = word * 60_000
    whole = count_tokens(text)
    assert whole <= count_tokens(text, most=whole * 2) <= whole + len(text) // tokens.PIECE_CHARS
    assert whole * 0.7 < count_tokens(text, most=2_000) < whole * 1.3
