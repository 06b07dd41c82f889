"""Every adapter over input nobody should send: an outcome for each file, never an exception, never
the content.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import FileStatus, SourceKind
from ctx_pipeline.sources import read_source
from ctx_pipeline.sources.read import ADAPTERS

CANARY = "canary-value"
INPUTS: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \r\n\t\n",
    "bom": b"\xef\xbb\xbf" + CANARY.encode(),
    "utf16": CANARY.encode("utf-16"),
    "utf16 without mark": CANARY.encode("utf-16-le"),
    "latin1": b"caf\xe9 " + CANARY.encode(),
    "nul": b"a\0b " + CANARY.encode() * 5,
    "binary": bytes(range(256)) * 40,
    "surrogates": b"\xed\xa0\x80" + CANARY.encode(),
    "escaped surrogates": (
        b'{"id": "m", "name": "m", "text": "\\ud800", "terms": [], "metrics": []}'
    ),
    "deep json": b"[" * 200_000,
    "deep object": b'{"tools":' * 50_000,
    "long line": b"x" * 1_000_000,
    "crlf": b"---\r\ntitle: a: b\r\n---\r\n" + CANARY.encode(),
    "unclosed": b"---\ntitle: " + CANARY.encode(),
    "rulers": b"---\n" * 5_000,
    "fences": b"```\n" * 5_000,
    "blanks": b"# a" + b" " * 300_000 + b"b",
    "keys": b"a: " * 20_000,
    "anchors": b"a: &a [*a]",
    "tags": b"!!python/object/apply:os.system ['true']",
    "numbers": b'{"id": ' + b"9" * 10_000 + b"}",
}
NAMES = (
    "f",
    "f.md",
    "f.txt",
    "f.json",
    "f.jsonl",
    "f.yaml",
    "f.snap",
    "f.py",
    "f.html",
    "f.pdf",
    "AGENTS.md",
    "SKILL.md",
)
TABLE_NAMES = ("f.csv", "f.parquet", "f.db", "f.md")
TABLE_INPUTS = ("empty", "binary", "utf16", "latin1", "nul", "long line")
"""A database engine takes its time for each file."""


@pytest.mark.parametrize("kind", sorted(kind.value for kind in ADAPTERS))
def test_every_file_has_an_outcome(read, tmp_path, kind):
    tables = kind == "schema_metadata"
    written: list[str] = []
    for number, (label, content) in enumerate(INPUTS.items()):
        if tables and label not in TABLE_INPUTS:
            continue
        folder = tmp_path / f"{number:02d}"
        folder.mkdir()
        for name in TABLE_NAMES if tables else NAMES:
            (folder / name).write_bytes(content)
            written.append(f"{folder.name}/{name}")
    batch = read(kind)
    assert [file.path for file in batch.files] == sorted(written)
    failed = {file.path for file in batch.files if file.status is FileStatus.FAILED}
    # Any bytes can be described, so no artifact fails.
    assert failed or kind == "artifacts"
    assert failed <= {error.path for error in batch.errors}
    assert not any(CANARY in error.message for error in batch.errors)
    for item in batch.items:
        assert (item.content or "").encode("utf-8").count(0) == 0
        assert item.item_id.isprintable()


@given(
    content=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_random_bytes_raise_nothing(tmp_path_factory, content):
    home = tmp_path_factory.mktemp("home")
    for name in ("f.md", "f.json", "f.jsonl", "f.yaml", "f.html", "f.pdf", "f.urls", "SKILL.md"):
        (home / name).write_bytes(content)
    for kind in ADAPTERS.keys() - {SourceKind.SCHEMA_METADATA}:
        read_source(SourceConfig(name="s", kind=kind, path="."), home, tenant="acme")
