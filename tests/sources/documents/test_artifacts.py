from __future__ import annotations

import gzip
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.contracts import FileStatus, ItemKind
from ctx_pipeline.sources.documents.artifacts import MAX_CONTENT_BYTES
from ctx_pipeline.sources.documents.describe import Sample, describe, media_type

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 640, 480, 8, 2)
GIF = b"GIF89a" + struct.pack("<HH", 32, 16)
JPEG = (
    b"\xff\xd8"
    + b"\xff\xe0" + struct.pack(">H", 16) + b"x" * 14
    + b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, 300, 500, 3)
)  # fmt: skip
WEBP_X = (
    b"RIFF\x00\x00\x00\x00WEBPVP8X"
    + b"\x00" * 8
    + (799).to_bytes(3, "little")
    + (599).to_bytes(3, "little")
)
WEBP_L = (
    b"RIFF\x00\x00\x00\x00WEBPVP8L" + b"\x00" * 4 + b"\x2f" + struct.pack("<I", 99 | (49 << 14))
)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 " + b"\x00" * 10 + struct.pack("<HH", 20, 10)
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# 销售分析\n", "\n", "More."]},
        {
            "cell_type": "code",
            "source": "import polars\nplot()",
            "outputs": [
                {
                    "output_type": "display_data",
                    "data": {"image/png": "iVBOR" * 1_000, "text/plain": "<Figure>"},
                },
                {"output_type": "stream", "text": ["loaded 5 rows\n"]},
            ],
        },
        {
            "cell_type": "code",
            "source": [],
            "outputs": [
                {"output_type": "error", "ename": "ValueError", "traceback": ["x" * 9_999]},
                {
                    "output_type": "execute_result",
                    "data": {"text/html": "<table><tr><tr><tr></table>"},
                },
            ],
        },
    ],
    "nbformat": 4,
}


@pytest.fixture
def artifact(read, tmp_path):
    """Read one file as an artifact."""

    def run(content: bytes | str | object, name: str, **settings):
        if not isinstance(content, bytes | str):
            content = json.dumps(content, ensure_ascii=False)
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return read("artifacts", name, **settings)

    return run


def test_an_artifact_is_described_and_referred_to(artifact):
    (item,) = artifact("# Report\n\nSales fell.\n", "report.md").items
    assert (item.item_id, item.kind) == ("artifact_ref:src/report.md", ItemKind.ARTIFACT_REF)
    assert (item.title, item.content_ref) == ("report.md", "artifact://src/report.md")
    assert item.media is not None
    assert (item.media.type, item.media.bytes, item.media.ref) == (
        "text/markdown",
        22,
        "artifact://src/report.md",
    )
    assert item.content == (
        "Artifact: report.md\nType: text/markdown, 22 bytes\nLines: "
        "3\nFirst lines:\n  # Report\n  Sales fell."
    )


@pytest.mark.parametrize(
    ("content", "name", "kind", "says"),
    [
        (PNG, "a.png", "image/png", "Image: 640 x 480 pixels"),
        (PNG, "a.bin", "image/png", "Image: 640 x 480 pixels"),
        (GIF, "a.gif", "image/gif", "Image: 32 x 16 pixels"),
        (JPEG, "a.jpg", "image/jpeg", "Image: 500 x 300 pixels"),
        (WEBP, "a.webp", "image/webp", "Image: 20 x 10 pixels"),
        (WEBP_X, "a.webp", "image/webp", "Image: 800 x 600 pixels"),
        (WEBP_L, "a.webp", "image/webp", "Image: 100 x 50 pixels"),
        (
            '<svg width="10px" height="20.4"></svg>',
            "a.svg",
            "image/svg+xml",
            "Image: 10 x 20 pixels",
        ),
        (
            '<?xml version="1.0"?><svg viewBox="0 0 30,40"/>',
            "a.svg",
            "image/svg+xml",
            "Image: 30 x 40 pixels",
        ),
        ("<svg><title>Sales 销售</title></svg>", "a.svg", "image/svg+xml", "Title: Sales 销售"),
        (
            "<svg><text>East</text><g><text>华东</text></g></svg>",
            "a.svg",
            "image/svg+xml",
            "Words: East; 华东",
        ),
        (
            "a,b\n1,2\n3,4\n",
            "a.csv",
            "text/csv",
            "Columns (2): a, b\nRows: 2\nFirst rows:\n  1,2\n  3,4",
        ),
        ("a;b\n1;2\n", "a.csv", "text/csv", "Columns (2): a, b\nRows: 1"),
        ("a\tb\n1\t2\n", "a.tsv", "text/tab-separated-values", "Columns (2): a, b\nRows: 1"),
        ('a,b\n"x\ny",2\n', "a.csv", "text/csv", "Rows: 1\nFirst rows:\n  x y,2"),
        (
            "日期,金额\n2026,5\n".encode("gb18030"),
            "a.csv",
            "text/csv",
            "Encoding: gb18030\nColumns (2): 日期, 金额",
        ),
        (
            "日期,金额\n2026,5\n".encode("utf-16"),
            "a.csv",
            "text/csv",
            "Encoding: utf-16-le\nColumns (2): 日期, 金额",
        ),
        ("\ufeffa,b\n1,2\n", "a.csv", "text/csv", "Columns (2): a, b"),
        (
            {"a": [1, 2], "名": "值", "n": None},
            "a.json",
            "application/json",
            "JSON object with 3 keys:\n  a: list",
        ),
        (
            [{"id": 1}],
            "a.json",
            "application/json",
            "JSON list with 1 entries\nFirst entry: object with 1 keys",
        ),
        ("{broken", "a.json", "application/json", "Lines: 1\nFirst lines:\n  {broken"),
        ("[" * 100_000, "a.json", "application/json", "Lines: 1"),
        (
            '{"id": 1}\n\n{"id": 2}\n',
            "a.jsonl",
            "application/jsonl",
            "Records: 2\nFirst record: object with 1 keys",
        ),
        ("broken\n", "a.jsonl", "application/jsonl", "Records: 1\n  broken"),
        (
            NOTEBOOK,
            "a.ipynb",
            "application/x-ipynb+json",
            "2 code and 1 text cells\n  [1] text: # 销售分析",
        ),
        (
            NOTEBOOK,
            "a.ipynb",
            "application/x-ipynb+json",
            "import polars -> picture image/png, prints 'loaded 5 rows'",
        ),
        (
            NOTEBOOK,
            "a.ipynb",
            "application/x-ipynb+json",
            "[3] code:  -> error ValueError, table with 2 rows",
        ),
        ({"cells": "none"}, "a.ipynb", "application/x-ipynb+json", "JSON object with 1 keys"),
        (
            "<title>T</title><p>hello<p hidden>SECRET",
            "a.html",
            "text/html",
            "Title: T\nLines: 1\nFirst lines:\n  h",
        ),
        ("one\ntwo\n", "a.log", "text/plain", "Lines: 2\nFirst lines:\n  one\n  two"),
        ("one\r\ntwo\r", "noname", "text/plain", "Lines: 2\nFirst lines:\n  one\n  two"),
        (
            bytes(range(256)) * 9,
            "a.txt",
            "application/octet-stream",
            "Type: application/octet-stream, 2,304 bytes",
        ),
        (
            bytes(range(256)) * 9,
            "a.png",
            "application/octet-stream",
            "Type: application/octet-stream, 2,304 bytes",
        ),
        (b"%PDF-1.7\n\x00\x01", "a.pdf", "application/pdf", "Type: application/pdf, 11 bytes"),
        (gzip.compress(b"x", mtime=0), "a.gz", "application/gzip", "Type: application/gzip"),
        (
            b"PK\x03\x04\x00",
            "a.docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "5 b",
        ),
        (
            b"PAR1\x00",
            "a.parquet",
            "application/vnd.apache.parquet",
            "Type: application/vnd.apache.parquet",
        ),
    ],
)
def test_each_type_says_what_it_can(artifact, content, name, kind, says):
    batch = artifact(content, name)
    assert batch.errors == ()
    (item,) = batch.items
    assert item.media is not None
    assert item.media.type == kind
    assert says in (item.content or "")
    assert "SECRET" not in (item.content or "")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("x" * 1_000_000, "a.txt"),
        ("销售" * 100_000, "a.txt"),
        ("\n".join("y" * 500 for _ in range(1_000)), "a.log"),
        (",".join(f"列{n}" * 50 for n in range(5_000)) + "\n", "a.csv"),
        ({f"键{n}" * 40: "值" * 500 for n in range(2_000)}, "a.json"),
        ({"cells": [{"cell_type": "code", "source": "行" * 500, "outputs": []}] * 500}, "a.ipynb"),
        ("<svg>" + "".join(f"<text>词{n}</text>" for n in range(5_000)) + "</svg>", "a.svg"),
    ],
)
def test_a_description_is_short_whatever_the_file(artifact, content, name):
    (item,) = artifact(content, name).items
    assert len((item.content or "").encode()) <= MAX_CONTENT_BYTES
    assert (item.content or "").startswith(f"Artifact: {name}\n")


def test_a_cut_description_says_so(artifact):
    (item,) = artifact("\n".join("销售" * 200 for _ in range(50)), "a.log").items
    assert (item.content or "").endswith("\n(truncated)")


def test_only_the_beginning_of_a_large_file_is_read(artifact):
    batch = artifact("a,b\n" + "1,2\n" * 1_000, "a.csv", max_file_bytes=400)
    assert batch.errors == ()
    (item,) = batch.items
    assert "Read: the first 400 bytes" in (item.content or "")
    assert "Rows: at least 99" in (item.content or "")
    assert item.media is not None
    assert item.media.bytes == 4_004


def test_a_changed_file_has_another_version_although_it_looks_the_same(artifact):
    before = artifact(PNG + b"one", "a.png").items[0]
    after = artifact(PNG + b"two", "a.png").items[0]
    assert before.content == after.content
    assert before.version != after.version
    assert artifact(PNG + b"two", "a.png").items[0].version == after.version


def test_every_file_is_an_artifact_but_an_empty_one(read, tmp_path):
    for name, content in {
        "a/x.bin": b"\x00\x01",
        "b.txt": b"text",
        "c.txt": b"",
        "图.png": PNG,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    batch = read("artifacts")
    assert {item.item_id for item in batch.items} == {
        "artifact_ref:src/a/x.bin", "artifact_ref:src/b.txt", "artifact_ref:src/图.png"
    }  # fmt: skip
    assert {file.path: file.status for file in batch.files}["c.txt"] is FileStatus.EMPTY


@given(
    head=st.binary(max_size=300),
    start=st.sampled_from(
        [b"", PNG[:20], GIF[:8], JPEG, WEBP[:18], b"<svg ", b'{"cells": [', b"a,b\n", b"\xff\xfe"]
    ),
    suffix=st.sampled_from(
        ["", ".csv", ".json", ".jsonl", ".ipynb", ".svg", ".html", ".png", ".jpg", ".webp", ".txt"]
    ),
    more=st.integers(0, 5),
)
def test_no_bytes_make_a_description_fail(head, start, suffix, more):
    content = start + head
    sample = Sample(content, len(content) + more, suffix)
    lines = list(describe(sample, media_type(sample)))
    assert all(isinstance(line, str) for line in lines)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "cells",
                        "cell_type",
                        "source",
                        "outputs",
                        "data",
                        "text",
                        "output_type",
                        "image/png",
                    ]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_no_notebook_makes_a_description_fail(value):
    content = json.dumps({"cells": value}).encode()
    assert list(describe(Sample(content, len(content), ".ipynb"), "application/x-ipynb+json"))


def test_real_logs_are_described(read, corpora):
    batch = read("artifacts", corpora / "loghub")
    assert batch.errors == ()
    assert len(batch.items) == len(batch.files)
    assert all(len((item.content or "").encode()) <= MAX_CONTENT_BYTES for item in batch.items)


def test_the_cells_of_an_old_notebook_are_its_cells(artifact):
    cells = [
        {"cell_type": "markdown", "source": ["# 销售分析"]},
        {
            "cell_type": "code",
            "input": ["import polars"],
            "outputs": [{"output_type": "pyout", "text": ["42"]}],
        },
    ]
    content = {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}
    (item,) = artifact(content, "a.ipynb").items
    assert "Notebook with 1 code and 1 text cells" in item.content
    assert "[1] text: # 销售分析" in item.content
    assert "[2] code: import polars -> shows '42'" in item.content


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_the_delimiter_that_excel_names_is_no_column(artifact, encoding):
    (item,) = artifact("sep=;\n名称;金额\n甲;5\n".encode(encoding), "a.csv").items
    assert "Columns (2): 名称, 金额" in item.content
    assert "Rows: 1" in item.content
