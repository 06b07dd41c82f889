from __future__ import annotations

import tarfile
import zipfile

import pytest

fsspec = pytest.importorskip("fsspec")

from ctx_pipeline.contracts import FileCode, FileStatus  # noqa: E402 - after the check above
from ctx_pipeline.errors import ConfigError  # noqa: E402
from ctx_pipeline.sources import remote  # noqa: E402

CANARY = "canary-secret"


@pytest.fixture
def store(request):
    """Return a folder of the in-process store that no other test uses."""
    system = fsspec.filesystem("memory")
    root = f"/{abs(hash(request.node.nodeid))}"
    system.mkdirs(root)
    yield (
        lambda files: (
            [system.pipe(f"{root}/{name}", content) for name, content in files.items()] and root[1:]
        )
    )
    system.rm(root, recursive=True)


DOCS = {
    "b.md": b"# B\n",
    "a/2.md": "# 二\n\n内容".encode(),
    "a/b/3.md": b"text",
    ".hidden/x.md": b"x",
    "z.bin": b"\0\1",
}


def ids(batch) -> list[str]:
    return [item.item_id for item in batch.items]


def test_a_folder_of_a_store_reads_like_one_on_disk(read, store, tmp_path):
    root = store(DOCS)
    for name, content in DOCS.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    near, far = read("documents", "docs"), read("documents", f"memory://{root}")
    assert far.errors == ()
    assert ids(far) == ids(near)
    assert [item.content for item in far.items] == [item.content for item in near.items]
    assert [(file.status, file.bytes) for file in far.files] == [
        (file.status, file.bytes) for file in near.files
    ]
    assert {item.provenance.locator.path for item in far.items} == {
        f"memory://{root}/{name}" for name in ("b.md", "a/2.md", "a/b/3.md")
    }


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("/**/*.md", ["a/2.md#1", "a/b/3.md#1", "b.md#1"]),
        ("/*.md", ["b.md#1"]),
        ("/a/*.md", ["2.md#1"]),
        ("/b.md", ["b.md#1"]),
        ("/a/", ["2.md#1", "b/3.md#1"]),
    ],
)
def test_globs_and_single_files_name_what_they_name_on_disk(read, store, pattern, names):
    batch = read("documents", f"memory://{store(DOCS)}{pattern}")
    assert sorted(ids(batch)) == [f"document:src/{name}" for name in names]


@pytest.mark.parametrize(
    ("kind", "name", "content", "item"),
    [
        ("memories", "m.jsonl", b'{"id": "m1", "text": "x"}\n', "memory:src/m1"),
        ("tools", "t.json", b'{"name": "t", "inputSchema": {"type": "object"}}', "tool:src/t"),
        (
            "glossary",
            "g.yaml",
            "terms: [{name: 成交, definition: x}]".encode(),
            "glossary:src/成交",
        ),
        ("instructions", "AGENTS.md", b"Be kind.", None),
        ("artifacts", "report.csv", b"a,b\n1,2\n", "artifact_ref:src/report.csv"),
        ("code", "a.py", b"def f(): pass\n", "code:src/a.py::f"),
    ],
)
def test_every_adapter_reads_from_a_store(read, store, kind, name, content, item):
    batch = read(kind, f"memory://{store({name: content})}")
    assert batch.errors == ()
    assert batch.items
    assert item is None or item in ids(batch)


@pytest.fixture
def archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("docs/a.md", "# A")
        packed.writestr("docs/d/e.md", "# 二")
        packed.writestr("big.md", "x" * 1_000_000)
        packed.writestr("../out.md", "x")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        (tmp_path / "t.md").write_text("# T", encoding="utf-8")
        packed.add(tmp_path / "t.md", "docs/t.md")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("zip://docs::a.zip", ["a.md#1", "d/e.md#1"]),
        ("zip://docs/**/e.md::a.zip", ["d/e.md#1"]),
        ("zip://docs/a.md::a.zip", ["a.md#1"]),
        ("zip://docs::file://{home}/a.zip", ["a.md#1", "d/e.md#1"]),
        ("tar://docs::a.tar.gz", ["t.md#1"]),
        ("file://{home}/t.md", ["t.md#1"]),
        ("local://t.md", ["t.md#1"]),
    ],
)
def test_files_inside_archives_are_read_where_they_are(read, archive, path, names):
    batch = read("documents", path.format(home=archive))
    assert batch.errors == ()
    assert sorted(ids(batch)) == [f"document:src/{name}" for name in names]


def test_an_archive_can_neither_lead_out_nor_swell(read, archive):
    batch = read("documents", "zip://::a.zip", max_file_bytes=1_000)
    assert {error.path: error.code for error in batch.errors} == {
        "zip://../out.md::a.zip": FileCode.OUTSIDE_ROOT,
        "zip://big.md::a.zip": FileCode.TOO_LARGE,
    }
    assert {file.path for file in batch.files if file.status is FileStatus.FAILED} == {
        error.path for error in batch.errors
    }


@pytest.mark.parametrize("path", ["memory://nothing", "memory://nothing/*.md"])
def test_a_missing_folder_is_one_error(read, path):
    batch = read("documents", path)
    assert (batch.items, [(error.path, error.code) for error in batch.errors]) == (
        (),
        [(path, FileCode.MISSING)],
    )


@pytest.mark.parametrize("path", ["zip://docs::no.zip", "zip://docs::t.md", "zip://a.zip"])
def test_an_archive_that_cannot_be_opened_is_one_error(read, archive, path):
    assert [error.code for error in read("documents", path).errors] == [FileCode.UNREADABLE]


@pytest.mark.parametrize(
    ("protocol", "extra"), [("s3", "s3"), ("gs", "gcs"), ("abfs", "azure"), ("az", "azure")]
)
def test_a_missing_package_is_an_error_that_names_the_extra(read, monkeypatch, protocol, extra):
    import sys

    monkeypatch.setitem(sys.modules, remote.PACKAGES[extra], None)
    sys.modules["fsspec.registry"]._registry.pop(protocol, None)
    batch = read("documents", f"{protocol}://bucket/docs")
    assert [error.code for error in batch.errors] == [FileCode.UNREADABLE]
    assert f"ctx-pipeline[{extra}]" in batch.errors[0].message


@pytest.mark.parametrize(
    "path",
    [
        f"s3://key:{CANARY}@bucket/docs",
        f"s3://{CANARY}@bucket/docs",
        f"abfs://user:{CANARY}@account/docs",
        f"s3://bucket/a.md?X-Amz-Signature={CANARY}",
        f"az://c/a.md?sv=1&sig={CANARY}",
        f"zip://docs::s3://key:{CANARY}@bucket/a.zip",
        f"ftp://user:{CANARY}@host/docs",
        "s3://bucket::other::last",
        "://docs",
    ],
)
def test_an_address_with_credentials_or_of_another_protocol_is_refused_without_repeating_it(
    read, path
):
    with pytest.raises(ConfigError) as caught:
        read("documents", path)
    assert CANARY not in str(caught.value)


def test_tables_are_not_read_from_a_store(read, store):
    with pytest.raises(ConfigError):
        read("schema_metadata", f"memory://{store({'a.csv': b'a,b'})}")


def test_a_file_that_vanishes_is_an_error_of_its_own(read, store, monkeypatch):
    root = store({"a.md": b"# A", "b.md": b"# B"})
    system = fsspec.filesystem("memory", use_listings_cache=False)
    opened = type(system).open

    def refuse(self, path, *arguments, **options):
        if path.endswith("a.md"):
            raise RuntimeError(CANARY)
        return opened(self, path, *arguments, **options)

    monkeypatch.setattr(type(system), "open", refuse)
    batch = read("documents", f"memory://{root}")
    assert [(error.path, error.code) for error in batch.errors] == [
        (f"memory://{root}/a.md", FileCode.UNREADABLE)
    ]
    assert CANARY not in batch.errors[0].message
    assert ids(batch) == ["document:src/b.md#1"]


def test_a_store_with_too_many_files_says_so_and_keeps_what_came_first(read, store, monkeypatch):
    root = store({f"{number}.md": b"x" for number in range(5)})
    monkeypatch.setattr(remote, "MAX_FILES", 3)
    batch = read("documents", f"memory://{root}")
    assert len(batch.items) == 3
    assert [(error.path, error.code) for error in batch.errors] == [
        (f"memory://{root}", FileCode.TOO_LARGE)
    ]


def test_a_store_that_is_too_deep_says_so(read, store):
    root = store({"/".join(["d"] * 40) + "/a.md": b"x", "b.md": b"x"})
    batch = read("documents", f"memory://{root}")
    assert ids(batch) == ["document:src/b.md#1"]
    assert [error.code for error in batch.errors] == [FileCode.TOO_LARGE]
