"""CSV tables of other encodings, with late rows, without rows, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHINESE = "姓名,城市,年龄\n王芳,北京,31\n李强,上海,42\n"
GERMAN = "firma,ort,umsatz\nMüller,Köln,31\nStraße,Düsseldorf,42\n"
Read = Callable[..., Any]


def table(batch: Any, name: str) -> str:
    found = [item.content for item in batch.items if item.item_id == f"schema:src/{name}"]
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CHINESE, "gb18030"),
        (CHINESE, "utf-16"),
        (CHINESE, "utf-16-le"),
        (CHINESE, "utf-16-be"),
        (CHINESE, "utf-8-sig"),
        (CHINESE.replace(",", ";"), "gb18030"),
        (CHINESE.replace(",", "\t"), "utf-16"),
        (GERMAN, "cp1252"),
        (GERMAN, "latin-1"),
        (GERMAN, "utf-16"),
        ("a,b\n1,2\n3,4\n", "utf-16-le"),
    ],
)
def test_a_table_of_another_encoding_is_read(read: Read, tmp_path: Path, text: str, encoding: str):
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    batch = read("schema_metadata")
    assert batch.errors == ()
    for name in text.split("\n")[0].replace(";", ",").replace("\t", ",").split(","):
        assert f"- {name} " in table(batch, "t")
    assert "rows: 2" in table(batch, "t")


def test_letters_far_behind_the_beginning_tell_the_encoding(read: Read, tmp_path: Path):
    rows = "".join(f"{n},plain text\n" for n in range(20_000))
    (tmp_path / "t.csv").write_bytes(f"id,note\n{rows}20001,北京上海\n".encode("gb18030"))
    batch = read("schema_metadata")
    assert batch.errors == ()
    assert "rows: 20,001" in table(batch, "t")


def test_a_late_row_of_another_type_makes_its_column_text_and_loses_nothing(
    read: Read, tmp_path: Path
):
    rows = "".join(f"{n},10.5,{'x' * 40}\n" for n in range(330_000))
    (tmp_path / "big.csv").write_text(f"id,ver,txt\n{rows}330001,11.0.1,y\n", encoding="utf-8")
    batch = read("schema_metadata")
    assert batch.errors == ()
    assert "- id BIGINT" in table(batch, "big")
    assert "- ver VARCHAR" in table(batch, "big")


@pytest.mark.parametrize("name", ["none.csv", "none.tsv", "none.parquet", "none.duckdb"])
def test_a_file_of_no_bytes_is_reported_as_empty_and_gives_no_table(
    read: Read, tmp_path: Path, name: str
):
    (tmp_path / name).write_bytes(b"")
    batch = read("schema_metadata")
    assert batch.items == ()
    assert [(error.path, error.code.value) for error in batch.errors] == [(name, "empty")]


@pytest.mark.parametrize(
    "text", ["\n\n", "\ufeff", "a,b,c\n", "姓名;城市", "sep=;\na;b\n", "name\n"]
)
def test_a_file_without_rows_invents_no_table(read: Read, tmp_path: Path, text: str):
    (tmp_path / "none.csv").write_text(text, encoding="utf-8")
    batch = read("schema_metadata")
    assert batch.items == ()
    assert [error.code.value for error in batch.errors] == ["empty"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_the_line_in_which_excel_names_its_delimiter_is_no_header(
    read: Read, tmp_path: Path, encoding: str
):
    (tmp_path / "t.csv").write_bytes('sep=;\n名称;b\n"x;y";2\n'.encode(encoding))
    batch = read("schema_metadata")
    assert batch.errors == ()
    assert "- 名称 VARCHAR" in table(batch, "t")
    assert "- b BIGINT" in table(batch, "t")


def test_what_is_no_text_is_said_to_be_none(read: Read, tmp_path: Path):
    (tmp_path / "t.csv").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 20)
    (error,) = read("schema_metadata").errors
    assert error.code.value == "unreadable"
    assert "no text" in error.message
    assert "writer" not in error.message


def test_a_date_without_end_is_not_how_new_a_table_is(read: Read, tmp_path: Path):
    import duckdb

    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (DATE '2026-01-02', TIMESTAMP 'infinity'),"
            " ('infinity', '2026-03-04'), ('-infinity', NULL)) AS v(d, seen)"
        )
    text = "\n".join(item.content for item in read("schema_metadata").items)
    assert "newest d: 2026-01-02" in text
    assert "newest seen: 2026-03-04" in text
