"""Keys are found on the lines where they stand, whatever the style of the document."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.config.toml_lines import KeyPath, key_lines

DOCUMENT = '''\
# comment = "no key"
title = """first
a = 1
"""""
"quoted key" = 'it''s'
dotted."in ner".last = 1 # = [
list = [ # comment ]
  1,
  { x = "}", y = [2, 3] },
]

[table.inner]
date = 1979-05-27 07:32:00
text = \'\'\'
[not.a.table]
\'\'\'

[[entries]]
name = "a\\"]"
[entries.deep]
k = 1
[[entries.more]]
k = 2

[[ entries ]]
name = "b"
[[entries.more]]
k = 3
'''.replace("'it''s'", "'its'")


def test_tables_keys_and_entries_are_found_in_every_style():
    tomllib.loads(DOCUMENT)
    lines = key_lines(DOCUMENT)
    expected: dict[KeyPath, int] = {
        ("title",): 2,
        ("quoted key",): 5,
        ("dotted", "in ner", "last"): 6,
        ("list",): 7,
        ("list", 0): 8,
        ("list", 1, "x"): 9,
        ("list", 1, "y", 1): 9,
        ("table", "inner"): 12,
        ("table", "inner", "date"): 13,
        ("table", "inner", "text"): 14,
        ("entries", 0): 18,
        ("entries", 0, "name"): 19,
        ("entries", 0, "deep", "k"): 21,
        ("entries", 0, "more", 0, "k"): 23,
        ("entries", 1): 25,
        ("entries", 1, "name"): 26,
        ("entries", 1, "more", 0, "k"): 28,
    }
    assert {path: lines.get(path) for path in expected} == expected
    assert ("a",) not in lines
    assert ("not",) not in lines


def test_escapes_in_keys_are_undone():
    assert key_lines('"a\\u00e9\\n" = 1\n') == {("aé\n",): 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "a = 1", "a=''", 'a = """"""'])
def test_short_documents_are_read_to_their_end(text: str):
    tomllib.loads(text)
    assert set(key_lines(text)) == {(key,) for key in tomllib.loads(text)}


def _paths(value: Any, prefix: KeyPath = ()) -> set[KeyPath]:
    found = {prefix} if prefix else set()
    if isinstance(value, dict):
        return found.union(*(_paths(entry, (*prefix, key)) for key, entry in value.items()))
    if isinstance(value, list):
        return found.union(*(_paths(entry, (*prefix, index)) for index, entry in enumerate(value)))
    return found


KEYS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x4E2D, exclude_characters="\x7f"),
    min_size=1,
    max_size=6,
)
SCALARS = st.one_of(st.booleans(), st.integers(-99, 99), KEYS, st.just("[x]\n#= '''\n\"\"\" }"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_every_key_that_the_parser_finds_has_a_line(values: dict[str, Any]):
    tomlkit = pytest.importorskip("tomlkit")
    text = tomlkit.dumps(values)
    assert set(key_lines(text)) == _paths(tomllib.loads(text))
