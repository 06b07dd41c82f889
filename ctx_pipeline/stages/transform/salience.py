"""Salience: which lines of a long text differ from the mass of it, most telling first. English and
Chinese alike.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, zip_longest

COMPARED_BY_WORD = 1_000_000
"""Characters up to which lines are compared word by word; those of more are compared by their form
alone."""
FEWEST_COMPARED = 12
"""Lines below which there is no mass that one could differ from."""
COMMON_SHARE = 0.05
"""Share of the lines that have a word of the mass."""
ODD, USUAL = 0.5, 0.34
"""Share of words that are not the mass's: of a line that is odd at least, and of most lines at
most."""
HITS_OF_A_WORD = 1_000
"""Places of one telling word that are looked at, from the start and from the end."""
LOOKED_AT_CHARS = 600_000
"""Characters of distinct lines in which telling words are looked for."""

_FATAL = (
    *(
        "fatal",
        "panic",
        "traceback",
        "critical",
        "segmentation fault",
        "segfault",
        "core dumped",
        "out of memory",
    ),
    *(
        "oomkilled",
        "failed",
        "failure",
        "exit code",
        "exit status",
        "exited with",
        "non-zero",
        "deadlock",
        "aborted",
    ),
    *("致命", "崩溃", "失败", "退出码", "内存溢出", "内存不足", "死锁", "耗尽", "中止"),
)
_ERROR = (
    *(
        "error",
        "exception",
        "assert",
        "timeout",
        "timed out",
        "denied",
        "refused",
        "rejected",
        "cannot",
        "could not",
    ),
    *(
        "unable to",
        "not found",
        "no such",
        "undefined",
        "unreachable",
        "exhausted",
        "overflow",
        "corrupt",
        "killed",
    ),
    *(
        "mismatch",
        "unexpected",
        "invalid",
        "caused by",
        "forbidden",
        "unauthorized",
        "conflict",
        "fail:",
        "err:",
    ),
    *(
        "错误",
        "异常",
        "超时",
        "拒绝",
        "无法",
        "中断",
        "溢出",
        "不存在",
        "未找到",
        "找不到",
        "报错",
        "丢失",
        "损坏",
    ),
    *("冲突", "非法", "断开", "越界", "不匹配", "未通过", "不一致"),
)
_WARNING = ("warn", "deprecat", "retry", "skipped", "警告", "告警", "重试", "跳过", "降级")
_LEVEL_OF = dict.fromkeys(_WARNING, 1) | dict.fromkeys(_ERROR, 2) | dict.fromkeys(_FATAL, 3)
_FINE = re.compile(
    # "0 errors", "without any failed steps"
    r"\b(?:0|no|zero|without(?: any)?)\s+(?:\w+\s+)?"
    r"(?:errors?|failures?|failed|exceptions?|warnings?|conflicts?)\b"
    # "errors=0", '"error": null'
    r"|\b(?:errors?|failures?|failed|exceptions?|conflicts?|warnings?)[\"']?\s*[=:]\s*"
    r"(?:0|none|null|false|\[\]|\"\")(?!\d)"
    # "exit code 0"
    r"|\b(?:exit code|exit status|exited with)\W{0,3}(?:code )?0\b|退出码\W{0,3}0\b"
    # 未发现任何错误
    r"|(?:无|没有|未发现|未发生|0\s*(?:个|处|条|次)?)(?:任何)?(?:错误|异常|失败|冲突|告警|警告)"
    # 错误数：0
    r"|(?:错误|异常|失败|冲突|告警|警告)(?:数|次数|数量)?\s*[=:：为]?\s*0(?!\d)",
    re.IGNORECASE,
)
_PASSED = re.compile(r"\b(?:PASS(?:ED)?|passed|succeeded)\b|(?:\.{3}|\s)ok\s*$|通过\s*$|成功\s*$")
_DIGITS = re.compile(r"\d+")
_WORD = re.compile(r"[A-Za-z_]{2,}|[\u4e00-\u9fff]")


def shape_of(piece: str) -> str:
    """Return the form of a line: itself with every number alike."""
    return _DIGITS.sub("0", piece)


def telling(pieces: Sequence[str], shapes: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the pieces that stand out, each once: failures first, then what is
    unlike the rest.

    `shapes` are their forms. Of pieces of one form the first and the last come before the others,
    rare forms before common ones.
    """
    levels = _levels(pieces, shapes)
    counts = Counter(shapes)
    odd = [at for at in _odd(pieces, shapes, counts) if levels.get(at, 0) < 2]
    failures = [at for at, level in levels.items() if level == 3]
    errors = [at for at, level in levels.items() if level == 2]
    warnings = [at for at, level in levels.items() if level == 1]
    firsts: list[int] = []
    rest: list[int] = []
    for group in (failures, errors, odd, warnings):
        ends, others = _ends_of_forms(group, shapes, counts)
        firsts += ends
        rest += others
    yield from dict.fromkeys((*firsts, *rest))


def _ends_of_forms(
    group: Sequence[int], shapes: Sequence[str], counts: Counter[str]
) -> tuple[list[int], list[int]]:
    """Return the first and last piece of each form, rare forms first, and the others, from both
    ends inwards.
    """
    places: dict[str, list[int]] = {}
    for at in sorted(group):
        places.setdefault(shapes[at], []).append(at)
    forms = sorted(places.values(), key=lambda at: (counts[shapes[at[0]]], at[0]))
    half = (len(forms) + 1) // 2
    # Where all are distinct, both ends of the list tell more than its beginning.
    pairs = (
        zip_longest(forms[:half], reversed(forms[half:])) if len(forms) == len(group) else [forms]
    )
    inwards = [form for pair in pairs for form in pair if form is not None]
    ends = list(dict.fromkeys(at for form in inwards for at in (form[0], form[-1])))
    return ends, [at for form in forms for at in form[1:-1]]


def _levels(pieces: Sequence[str], shapes: Sequence[str]) -> dict[int, int]:
    """Return how bad what a piece tells is, 1 to 3, of those that tell something bad.

    Each form is looked at once, and of many distinct ones those at the start and at the end.
    """
    first_of = {shape: at for at, shape in reversed(list(enumerate(shapes)))}
    looked_at = _within(sorted(first_of.values()), pieces, LOOKED_AT_CHARS)
    text = "\n".join([pieces[at] for at in looked_at]).lower()
    starts = [0, *accumulate(len(pieces[at].lower()) + 1 for at in looked_at)]
    found: dict[str, int] = {}
    for word, level in _LEVEL_OF.items():
        for place in _places(text, word):
            shape = shapes[looked_at[bisect_right(starts, place) - 1]]
            if level > found.get(shape, 0) and _is_word(text, word, place):
                found[shape] = level
    return {
        at: found[shape]
        for at, shape in enumerate(shapes)
        if shape in found and not _is_fine(pieces[at])
    }


def _within(places: Sequence[int], pieces: Sequence[str], most: int) -> list[int]:
    """Return the places whose pieces have so many characters together: a third at the start, the
    rest at the end.
    """
    ends = list(accumulate(len(pieces[at]) for at in places))
    if not ends or ends[-1] <= most:
        return list(places)
    head = bisect_right(ends, most // 3)
    return [*places[:head], *places[max(head, bisect_right(ends, ends[-1] - (most - most // 3))) :]]


def _is_word(text: str, word: str, place: int) -> bool:
    return (
        not word.isascii()
        or not place
        or not text[place - 1].isalpha()
        or word in ("error", "exception", "failure")
    )


def _is_fine(piece: str) -> bool:
    left = _FINE.sub("", piece)
    return _PASSED.search(left) is not None or not any(word in left.lower() for word in _LEVEL_OF)


def _places(text: str, word: str) -> Iterator[int]:
    """Yield where a word stands, at most so many times from either end."""
    place = text.find(word)
    for _ in range(HITS_OF_A_WORD):
        if place < 0:
            return
        yield place
        place = text.find(word, place + 1)
    last = text.rfind(word)
    for _ in range(HITS_OF_A_WORD):
        if last < place or last < 0:
            return
        yield last
        last = text.rfind(word, 0, last)


def _odd(pieces: Sequence[str], shapes: Sequence[str], counts: Counter[str]) -> list[int]:
    """Return the pieces that are unlike the mass, where there is one."""
    number = sum(1 for piece in pieces if piece.strip())
    if number < FEWEST_COMPARED:
        return []
    if sum(map(len, pieces)) > COMPARED_BY_WORD:
        if len(counts) > number * COMMON_SHARE:
            return []
        return [at for at, shape in enumerate(shapes) if counts[shape] <= 2 and shape.strip()]
    words = [frozenset(_WORD.findall(piece)) for piece in pieces]
    common = max(2, int(number * COMMON_SHARE))
    times = Counter(chain.from_iterable(words))
    strange = [
        sum(times[word] <= common for word in found) / len(found) if found else 0.0
        for found in words
    ]
    seen = sorted(share for share, found in zip(strange, words, strict=True) if found)
    if not seen or seen[len(seen) * 3 // 4] > USUAL:
        return _rare_values(shapes, counts, number)
    return [at for at, share in enumerate(strange) if share >= ODD]


def _rare_values(shapes: Sequence[str], counts: Counter[str], number: int) -> list[int]:
    """Return the pieces of a form of their own where most share a few forms: rows of numbers have
    no words.
    """
    if len(counts) > number * COMMON_SHARE:
        return []
    return [at for at, shape in enumerate(shapes) if counts[shape] == 1 and shape.strip()]
