"""Lists of words lie beside the code that uses them, each is used, and an installation has them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ctx_pipeline.language import terms
from ctx_pipeline.language.word_lists import FILE, lines_of, named_words, pattern_of, words_of
from ctx_pipeline.tools import words

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted((REPOSITORY / "ctx_pipeline").rglob(FILE))
_USED = re.compile(r"""(?:words_of|pattern_of|named_words|lines_of)\(__file__, ["'](\w+)["']\)""")


def test_a_list_keeps_its_order_and_leaves_comments_out():
    asking = words_of(terms.__file__, "chinese_asking")
    assert asking[0] == "为什么"
    assert not any("#" in each for each in asking)
    assert pattern_of(terms.__file__, "chinese_asking") == "|".join(asking)


def test_a_named_line_gives_its_words_by_name():
    synonyms = named_words(words.__file__, "synonyms")
    assert synonyms["list"] == ("list", "enumerate", "browse", "show")


def test_a_list_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError):
        lines_of(terms.__file__, "no_such_list")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_each_list_is_used_by_a_module_of_its_room(file: Path):
    named = set(re.findall(r"^\[(\w+)\]$", file.read_text(encoding="utf-8"), re.MULTILINE))
    code = "\n".join(path.read_text(encoding="utf-8") for path in file.parent.glob("*.py"))
    compared = set(re.findall(r'_compared\("(\w+)"\)', code))
    assert named
    assert named == set(_USED.findall(code)) | compared


def test_an_installation_has_every_file_of_words():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(FILES) >= 4
    assert FILE in project["tool"]["setuptools"]["package-data"]["*"]
    assert [file for file in FILES if not (file.parent / "__init__.py").exists()] == []
