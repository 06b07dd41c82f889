"""Every mistake in the settings of sources is found when `ctx.toml` is loaded: all of them, each
with its line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ctx_pipeline.cli.app import app
from ctx_pipeline.config.settings import load_config
from ctx_pipeline.errors import ConfigError

HEAD = '[project]\nname = "p"\ntenant = "acme"\n'
FIRST = HEAD.count("\n") + 1
"""Line of the first source's header; its name is one line below, its kind two."""

# Lines of one source after its name, the offset of the line at fault, the code, a word of the
# message, the fix.
CASES = [
    (
        ['kind = "sql"', 'url = "sqlite:///a.db"', 'path = "docs"'],
        4,
        "invalid_value",
        "no path",
        "set url to",
    ),
    (['kind = "sql"'], 0, "invalid_value", "no url", "set url to"),
    (
        ['kind = "sql"', 'url = "mysql://u@h/d"'],
        3,
        "unsupported_database",
        "not read",
        "set url to",
    ),
    (
        ['kind = "sql"', 'url = "warehouse"'],
        3,
        "invalid_value",
        "not a database address",
        "set url to",
    ),
    (
        ['kind = "sql"', 'url = "sqlite:///a.db"', "max_file_bytes = 9"],
        4,
        "invalid_value",
        "not read it",
        "remove",
    ),
    (['kind = "documents"'], 0, "invalid_value", "no path", "set path to"),
    (
        ['kind = "glossary"', 'url = "https://a.example"'],
        3,
        "invalid_value",
        "reads no url",
        "'web' or 'sql'",
    ),
    (
        ['kind = "documents"', 'path = "文档"', 'phases = ["plan"]'],
        4,
        "invalid_value",
        "'tools'",
        "remove it",
    ),
    (
        ['kind = "memories"', 'path = "m"', "allow_private = true"],
        4,
        "invalid_value",
        "'web'",
        "remove it",
    ),
    (
        ['kind = "git"', 'path = "https://a.example/r.git"'],
        3,
        "invalid_value",
        "local repository",
        "clone",
    ),
    (
        ['kind = "documents"', 'path = "ftp://a.example/d"'],
        3,
        "unsupported_protocol",
        "'ftp'",
        "s3",
    ),
    (
        ['kind = "documents"', 'path = "s3://key:word@bucket/d"'],
        3,
        "credentials_in_path",
        "credentials",
        "remove",
    ),
    (
        ['kind = "schema_metadata"', 'path = "s3://bucket/d"'],
        3,
        "unsupported_protocol",
        "on disk",
        "copy",
    ),
    (['kind = "web"'], 0, "invalid_value", "no path", "or url to a page"),
    (
        ['kind = "web"', 'url = "example.org/a"'],
        3,
        "invalid_value",
        "not a web address",
        "https://",
    ),
    (
        ['kind = "web"', 'url = "https://u:p@a.example"'],
        3,
        "invalid_value",
        "user name",
        "take it out",
    ),
    (
        ['kind = "session_history"', 'path = "s"'],
        2,
        "unsupported_source_kind",
        "no adapter",
        "documents",
    ),
    (
        ['kind = "document"', 'path = "d"'],
        2,
        "invalid_value",
        "'documents'",
        "did you mean 'documents'?",
    ),
    (
        ['kind = "memory"', 'path = "d"'],
        2,
        "invalid_value",
        "'memories'",
        "did you mean 'memories'?",
    ),
    (
        ['kind = "schema-metadata"', 'path = "d"'],
        2,
        "invalid_value",
        "",
        "did you mean 'schema_metadata'?",
    ),
    (
        ['kind = "documents"', 'path = "d"', 'trust = "trusted"'],
        4,
        "invalid_value",
        "",
        "did you mean",
    ),
    (
        ['kind = "documents"', 'path = "d"', 'sensitivity = "Public"'],
        4,
        "invalid_value",
        "",
        "did you mean 'public'?",
    ),
    (
        ['kind = "documents"', 'path = "d"', 'pathh = "e"'],
        4,
        "unknown_key",
        "pathh",
        "did you mean 'path'?",
    ),
]


def source(name: str, lines: list[str]) -> str:
    return "\n".join(["[[sources]]", f'name = "{name}"', *lines]) + "\n"


def refused(home: Path, text: str) -> ConfigError:
    (home / "ctx.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(home)
    return caught.value


@pytest.mark.parametrize(("lines", "offset", "code", "word", "fix"), CASES)
def test_a_mistake_in_a_source_is_found_at_loading_with_its_line(
    tmp_path: Path, lines: list[str], offset: int, code: str, word: str, fix: str
):
    error = refused(tmp_path, HEAD + source("src", lines))
    assert (error.where, error.stable_code) == (f"ctx.toml:{FIRST + offset}", code)
    assert word in error.message
    assert fix in error.fix
    assert "\n" not in error.message


def test_all_mistakes_of_all_sources_are_told_at_once(tmp_path: Path):
    text, places = HEAD, list[str]()
    for number, (lines, offset, _, _, _) in enumerate(CASES):
        places.append(f"ctx.toml:{text.count(chr(10)) + 1 + offset}")
        text += source(f"s{number}", lines)
    error = refused(tmp_path, text)
    told = str(error)
    assert [place for place in places if f"{place}:" not in told and error.where != place] == []
    for _, _, _, word, fix in CASES:
        assert word in told
        assert fix in told


def test_two_mistakes_of_one_source_are_both_told(tmp_path: Path):
    lines = ['kind = "sql"', 'path = "docs"', 'authority = "high"', "frehsness = 1"]
    told = str(refused(tmp_path, HEAD + source("src", lines)))
    for offset in (2, 3, 4):
        assert f"ctx.toml:{FIRST + offset + 1}" in told
    assert "no url" in told


def test_an_address_is_never_repeated(tmp_path: Path):
    lines = ['kind = "documents"', 'path = "s3://key:geheim@bucket/d"']
    more = source("db", ['kind = "sql"', 'url = "mysql://u:geheim@h/d"'])
    assert "geheim" not in str(refused(tmp_path, HEAD + source("src", lines) + more))


def test_a_build_of_wrong_settings_starts_nothing(tmp_path: Path):
    (tmp_path / "ctx.toml").write_text(
        HEAD + source("a", ['kind = "sql"', 'path = "d"']) + source("b", ['kind = "git"']),
        encoding="utf-8",
    )
    result = CliRunner().invoke(
        app, ["--home", str(tmp_path), "build", "--json"], env={"CTX_HOME": None}
    )
    assert result.exit_code == 2
    message = json.loads(result.stdout)["error"]["message"]
    assert message.count("ctx.toml:") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ctx.toml"]
