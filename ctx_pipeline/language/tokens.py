"""The one token counter: exact counts with the public vocabularies, offline. A leaf that imports
only `errors`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache, lru_cache, partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from ctx_pipeline.errors import Corrupt, CtxError, InvalidRequest, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tiktoken import Encoding

DEFAULT_ENCODING: Final = "o200k_base"

MAX_REGEX_BLANKS: Final = 100_000
"""Blanks in a row that are left to the tokenizer's regular expression.

Its backtracking stack holds one entry per blank and overflows at 1,000,000 (tiktoken 0.14); longer
runs are counted piece by piece instead, with the same result.
"""


PIECE_CHARS: Final = 16_384
"""Longer texts are counted piece by piece, so that the time grows with the length and a count may
stop early."""

MAX_WORD_CHARS: Final = 32_768
"""Characters without a break that are merged as one word where a caller waits.

Merging takes more than linear time in the length of a word. With `most` a longer one is counted in
pieces of `PIECE_CHARS`, each of which may count one token more than the whole would.
"""


COUNT_CACHE: Final = 4_096
"""Texts of requests whose token counts are kept per process and encoding ..."""
COUNT_CACHE_CHARS: Final = 8_192
"""... if they are no longer than this."""

SAMPLES: Final = 32
SAMPLE_CHARS: Final = 1_024
"""Places of a long text, and characters of each, by which its tokens are estimated."""
CLEARLY_MORE: Final = 1.5
"""Times the most tokens that a caller has a use for from which an estimate will do."""


class _Vocabulary(NamedTuple):
    sha256: str
    pattern: str
    special_tokens: dict[str, int]


# Patterns, special tokens and digests are part of each vocabulary's public definition
# (tiktoken_ext.openai_public); tests compare them with the installed tiktoken.
_VOCABULARIES: Final[dict[str, _Vocabulary]] = {
    "cl100k_base": _Vocabulary(
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=(
            r"'(?i:[sdmt]|ll|ve|re)|"
            r"[^\r\n\p{L}\p{N}]?+\p{L}++|"
            r"\p{N}{1,3}+|"
            r" ?[^\s\p{L}\p{N}]++[\r\n]*+"
            r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        ),
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": _Vocabulary(
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern=(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
            r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
    ),
}

ENCODINGS: Final = tuple(sorted(_VOCABULARIES))
"""Names of the vocabularies that ship with the package."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# White_Space of Unicode without line ends; the lookbehind keeps the search linear.
_BLANK = "[\t\x0b\x0c \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_LONG_BLANKS = re.compile(f"(?<!{_BLANK}){_BLANK}{{{MAX_REGEX_BLANKS + 1},}}+")
# No word of any vocabulary goes on from here; an apostrophe may go on, and so may line ends after
# other signs.
_BREAK = re.compile(r"(?<=\S)(?= )|(?<=[^\W_])(?=[\n\t,.;:!?()\"/，。；：、！？（）《》])")
_load_lock = Lock()
_begun: set[str] = set()
"""Vocabularies that `load_while` has begun to load."""


def count_tokens(text: str, encoding: str = DEFAULT_ENCODING, most: int | None = None) -> int:
    """Count the tokens of `text` exactly, the text of special tokens counted as ordinary text.

    Equal to `len(tiktoken.get_encoding(encoding).encode_ordinary(text))` for every valid text; a
    lone surrogate counts as the U+FFFD it is stored as. About 60 us per 1,000 characters; the first
    call of a process loads the vocabulary (0.3 s). Beyond `most` tokens counting stops, and the
    number, which is more than `most`, is an estimate; words of more than `MAX_WORD_CHARS` are then
    counted in pieces.

    Raises:
        InvalidRequest: `encoding` is not one of `ENCODINGS`, or the tokenizer cannot handle the
            text.
        Unavailable: the package that carries the vocabularies is not installed.
        Corrupt: its file is not the published vocabulary.
    """
    return _count(_encoding(encoding), text, most)


def count_many(texts: Iterable[str], encoding: str = DEFAULT_ENCODING) -> list[int]:
    """Count the tokens of each text, in order; see `count_tokens`.

    Runs in the calling thread: the tokenizer's own thread pool is no faster and costs twice the CPU
    time.
    """
    tokenizer = _encoding(encoding)
    return [_count(tokenizer, text) for text in texts]


def token_counter(encoding: str, most: int) -> Callable[[str], int]:
    """Return what counts the tokens of a text; beyond `most`, which no pack can hold, it estimates
    them.
    """
    known = known_counts(encoding)
    return lambda text: (
        known(text) if len(text) <= COUNT_CACHE_CHARS else count_tokens(text, encoding, most)
    )


@lru_cache(maxsize=8)
def known_counts(encoding: str) -> Callable[[str], int]:
    """Return what counts the tokens of a text once: each turn brings the
    conversation so far again.
    """
    return lru_cache(maxsize=COUNT_CACHE)(partial(count_tokens, encoding=encoding))


def _count(tokenizer: Encoding, text: str, most: int | None = None) -> int:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = _SURROGATE.sub("\ufffd", text)
    if len(text) <= MAX_WORD_CHARS:
        return _count_ordinary(tokenizer, text)
    if _LONG_BLANKS.search(text):
        return _count_long(tokenizer, text)
    if most is not None and len(text) > SAMPLES * SAMPLE_CHARS * 4:
        estimate = _estimate(tokenizer, text)
        if estimate > most * CLEARLY_MORE:
            return estimate
    total = start = 0
    while start < len(text):
        end = _piece_end(text, start, exact=most is None)
        total += _count_ordinary(tokenizer, text[start:end])
        start = end
        if most is not None and total > most:
            return max(most + 1, total * len(text) // start)
    return total


def _estimate(tokenizer: Encoding, text: str) -> int:
    """Return about how many tokens a long text has, by samples from all over it."""
    step = len(text) // SAMPLES
    samples = [text[at : at + SAMPLE_CHARS] for at in range(0, step * SAMPLES, step)]
    counted = sum(_count_ordinary(tokenizer, sample) for sample in samples)
    return counted * len(text) // (SAMPLES * SAMPLE_CHARS)


def _piece_end(text: str, start: int, *, exact: bool) -> int:
    """Return where a piece ends: where a word does, else after `PIECE_CHARS` of one that is too
    long to be merged.
    """
    if len(text) - start <= MAX_WORD_CHARS:
        return len(text)
    found = _BREAK.search(text, start + PIECE_CHARS, start + MAX_WORD_CHARS)
    if found is None and exact:
        found = _BREAK.search(text, start + MAX_WORD_CHARS)
        return len(text) if found is None else found.start()
    return start + PIECE_CHARS if found is None else found.start()


def _count_long(tokenizer: Encoding, text: str) -> int:
    """Count a text that may hold blank runs beyond the regular expression's stack."""
    total = 0
    start = 0
    for run in _LONG_BLANKS.finditer(text):
        following = text[run.end() : run.end() + 1]
        if following in ("\r", "\n"):
            # Another branch of the pattern takes the run with its line end, and needs no stack.
            continue
        # The pattern cuts before the run and, when a word follows, gives the run's last blank to
        # that word.
        end = run.end() - 1 if following else run.end()
        total += _count_ordinary(tokenizer, text[start : run.start()])
        total += _count_piece(tokenizer, text[run.start() : end])
        start = end
    return total + _count_ordinary(tokenizer, text[start:])


def _count_ordinary(tokenizer: Encoding, text: str) -> int:
    try:
        return len(tokenizer.encode_ordinary(text))
    except BaseException as error:
        raise _untokenizable(error) from error


def _count_piece(tokenizer: Encoding, piece: str) -> int:
    # The only entry that merges a piece without the regular expression; a test holds it equal to
    # the whole.
    encode = tokenizer._encode_single_piece  # pyright: ignore[reportPrivateUsage]
    try:
        return len(encode(piece))
    except BaseException as error:
        raise _untokenizable(error) from error


def _untokenizable(error: BaseException) -> BaseException:
    # A panic of the Rust core derives from BaseException and has no importable class.
    if type(error).__name__ != "PanicException":
        return error
    return InvalidRequest(
        "the text cannot be split into tokens",
        where="token counter",
        fix="shorten runs of one repeated character",
        code="untokenizable_text",
    )


def load_while(encoding: str) -> None:
    """Begin to load a vocabulary beside whatever the caller does next; does nothing where it is
    loaded.
    """
    if encoding in _VOCABULARIES and encoding not in _begun:
        _begun.add(encoding)
        Thread(target=_load_quietly, args=(encoding,), name="ctx-vocabulary", daemon=True).start()


def _load_quietly(encoding: str) -> None:
    # Whoever counts first tries again, and is told.
    with suppress(CtxError):
        _encoding(encoding)


def _encoding(name: str) -> Encoding:
    if name not in _VOCABULARIES:
        raise InvalidRequest(
            f"unknown encoding {name!r}",
            where="token counter",
            fix=f"use one of: {', '.join(ENCODINGS)}",
            code="unknown_encoding",
        )
    with _load_lock:
        return _load(name)


@cache
def _load(name: str) -> Encoding:
    from tiktoken import Encoding

    vocabulary = _VOCABULARIES[name]
    return Encoding(
        name,
        pat_str=vocabulary.pattern,
        mergeable_ranks=_read_ranks(_vocabulary_file(name), vocabulary.sha256),
        special_tokens=vocabulary.special_tokens,
    )


def _vocabulary_file(name: str) -> Path:
    """Find the file without importing its package, whose binary module is large and not needed."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("bpe_openai")
    path = (
        Path(spec.origin).parent / "data" / f"{name}.tiktoken.gz" if spec and spec.origin else None
    )
    if path is None or not path.is_file():
        raise Unavailable(
            f"the vocabulary {name!r} is not installed",
            where="token counter",
            fix="pip install 'bpe-openai>=0.1.4'",
        )
    return path


def _read_ranks(path: Path, sha256: str) -> dict[bytes, int]:
    import gzip
    import zlib
    from binascii import a2b_base64

    from ctx_pipeline.text import sha256_hex

    try:
        lines = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        lines = b""
    if sha256_hex(lines) != sha256:
        raise Corrupt(
            f"{path.name} is not the published vocabulary",
            where="token counter",
            fix="pip install --force-reinstall bpe-openai",
        )
    # Whatever has the published digest numbers its tokens in order.
    tokens = lines.split()[::2]
    return dict(zip(map(a2b_base64, tokens), range(len(tokens)), strict=True))
