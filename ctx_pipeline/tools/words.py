"""The words of tool names and descriptions: taken apart, in one form, with the verbs that say what
a tool does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache

from ctx_pipeline.language.terms import stem
from ctx_pipeline.language.word_lists import named_words, words_of

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[\u3400-\u9fff]+")
_CJK = re.compile("[\u3400-\u9fff]+")


SYNONYMS: Mapping[str, tuple[str, ...]] = named_words(__file__, "synonyms")
"""Words that people use for one another in the descriptions of tools; the first is the form that is
compared."""

DESTROYING = frozenset(words_of(__file__, "destroying"))
WRITING = frozenset(words_of(__file__, "writing"))
AMBIGUOUS = frozenset(words_of(__file__, "ambiguous"))
"""Verbs that write as a rule: in names they stand for things too (`order`), or for what only reads
(`run_sql`)."""
READING = frozenset(words_of(__file__, "reading"))
KNOWN = DESTROYING | WRITING | READING
DESTROYING_ZH = words_of(__file__, "chinese_destroying")
WRITING_ZH = words_of(__file__, "chinese_writing")
READING_ZH = words_of(__file__, "chinese_reading")
_FORMS = {form: head for head, forms in SYNONYMS.items() for form in forms}
_SHORT = {
    "pr": ("pull", "request"),
    "prs": ("pull", "request"),
    "url": ("link",),
    "id": (),
    "ids": (),
}
_IDLE = frozenset(words_of(__file__, "idle"))


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, lower case: `getUserById`, `get-user_by.id` and `GET_USER_BY_ID`
    are the same.
    """
    return tuple(word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", name)))


VERBS = frozenset(
    {"get", "list", "search", "create", "update", "delete", "send", "run", "stop", "merge"}
)
"""Forms of `SYNONYMS` that say what is done."""


def verb_of(name: str, description: str) -> str | None:
    """Return what a tool does, as one of `VERBS`: the verb of its name, else the one its
    description begins with.
    """
    words = name_words(name)
    if words and words[0] in KNOWN:
        return _form(words[0]) if _form(words[0]) in VERBS else None
    said = [form for form in map(_form, words) if form in VERBS]
    if said:
        return said[0]
    first = next(iter(content_words(description)), "")
    return first if first in VERBS else None


def same_name(name: str) -> str:
    """Return what names that are easily taken for one another share: no case, no separators, one
    form of each sign.
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in folded if char.isalnum()).translate(_LOOK_ALIKES)


_LOOK_ALIKES = str.maketrans("аеорсухіѕјԁո", "aeopcyxisjdn")
"""Cyrillic and Armenian letters that look like Latin ones."""


def content_words(text: str) -> Iterator[str]:
    """Yield the words of a text in the form that is compared: stems, synonyms in one form, pairs of
    Han characters.
    """
    for word in name_words(text):
        if _CJK.match(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word in _SHORT:
            yield from _SHORT[word]
        elif word not in _IDLE:
            yield _form(word)


@lru_cache(maxsize=16_384)
def _form(word: str) -> str:
    return _FORMS.get(word) or _FORMS.get(stem(word)) or stem(word)
