"""The durable store: append-only, whole commits, one writer at a time, vectors of two models never
mixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_pipeline.contracts import ContextItem, ItemKind, Provenance, Scope, Sensitivity, Trust
from ctx_pipeline.errors import Conflict, Corrupt, InvalidRequest, Unavailable
from ctx_pipeline.index.embedder import embedding_source
from ctx_pipeline.index.lance import models_built_when_used
from ctx_pipeline.index.store import (
    EMBED_BATCH_ROWS,
    POINT_LOOKUP_ROWS,
    Store,
    StoredItem,
    ensure_embeddings,
)
from ctx_pipeline.text import sha256_hex
from testing.examples import examples

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
NASTY = "退款 'quoted' \"double\" \\ % _ 👩‍👩‍👧 \ufffd;--\n"


def make_item(
    item_id: str = "document:handbook/a", version: str = "1", content: str = "text", **scope: str
) -> ContextItem:
    return ContextItem(
        item_id=item_id,
        version=version,
        kind=ItemKind.DOCUMENT,
        title="Title",
        content=content,
        provenance=Provenance(source_type="documents", source_id="handbook"),
        authority=60,
        trust=Trust.ENTERPRISE_TRUSTED,
        sensitivity=Sensitivity.INTERNAL,
        scope=Scope(tenant=scope.get("tenant", "acme"), groups=("*",)),
    )


def make_row(seq: int, item_id: str = "", content: str = "text", **changes: str) -> StoredItem:
    return StoredItem.from_item(
        make_item(item_id or f"document:handbook/{seq}", content=content, **changes), seq, NOW
    )


class CountingEmbedder:
    """A real, tiny embedder: a vector made of the text's hash; remembers what it was asked for."""

    dim = 4

    def __init__(self, name: str = "hash-1/test") -> None:
        self.name = name
        self.embedded: list[str] = []

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded += texts
        return np.array(
            [list(bytes.fromhex(sha256_hex(text)[:8])) for text in texts], dtype=np.float32
        )

    def embed_query(self, text: str) -> np.ndarray:
        return self.embed_documents([text])[0]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.of_project(tmp_path)


def test_an_empty_store_reads_as_empty_tables_and_creates_nothing(store: Store, tmp_path: Path):
    assert store.scan().num_rows == 0
    assert store.scan().schema.names == [*StoredItem.__dataclass_fields__]
    assert store.scan_keys().schema.names == [
        name for name in StoredItem.__dataclass_fields__ if name != "item_json"
    ]
    assert (store.max_seq(), store.models(), store.fragments()) == (0, (), 0)
    assert store.read("acme", "document:handbook/a", "1") is None
    assert store.known(["a"], "model") == set()
    assert store.get_vectors("model", []).shape[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_what_was_appended_is_read_back_as_it_was(store: Store):
    rows = [
        make_row(1, content=NASTY),
        make_row(2, item_id=f"document:{NASTY}", tenant=NASTY),
        make_row(3, content="\x00x"),
    ]
    store.append(rows)
    assert [StoredItem(**row) for row in store.scan().to_pylist()] == rows
    assert store.read(NASTY, f"document:{NASTY}", "1") == rows[1]
    assert rows[2].item().content == "\ufffdx"
    assert [row.item() for row in rows] == [
        ContextItem.model_validate_json(row.item_json) for row in rows
    ]


@settings(max_examples=examples(15))
@given(st.lists(st.text(st.characters()), min_size=1, max_size=5))
def test_any_text_that_an_item_can_hold_survives_the_store(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
):
    store = Store(tmp_path_factory.mktemp("store"))
    rows = [make_row(seq, content=text, tenant=text) for seq, text in enumerate(texts, start=1)]
    store.append(rows)
    assert [StoredItem(**row) for row in store.scan().to_pylist()] == rows
    for row in rows:
        assert store.read(row.tenant, row.item_id, row.version) == row


def test_a_scan_is_ordered_by_sequence_whatever_the_order_of_appends(store: Store):
    for seq in (30, 10, 20):
        store.append([make_row(seq + 1), make_row(seq)])
    assert store.scan()["seq"].to_pylist() == [10, 11, 20, 21, 30, 31]
    assert store.scan_keys()["seq"].to_pylist() == [10, 11, 20, 21, 30, 31]
    assert store.max_seq() == 31


def test_a_version_that_was_recorded_again_reads_as_last_recorded(store: Store):
    store.append([make_row(1, "document:a", "old")])
    store.append([make_row(2, "document:a", "new")])
    found = store.read("acme", "document:a", "1")
    assert found is not None
    assert found.item().content == "new"
    assert store.scan().num_rows == 2


def test_items_of_another_tenant_with_the_same_id_are_other_items(store: Store):
    store.append(
        [make_row(1, "document:a", "ours"), make_row(2, "document:a", "theirs", tenant="other")]
    )
    ours = store.read("acme", "document:a", "1")
    assert ours is not None
    assert ours.item().content == "ours"
    assert store.read("third", "document:a", "1") is None


def test_an_item_without_a_tenant_is_stored_under_the_empty_name():
    item = make_item().model_copy(update={"scope": Scope()})
    assert StoredItem.from_item(item, 1, NOW).tenant == ""


def test_the_row_of_an_item_carries_its_hashes():
    item = make_item(content="x")
    row = StoredItem.from_item(item, 7, NOW)
    assert (row.item_hash, row.content_hash) == (sha256_hex(row.item_json), sha256_hex("x"))
    assert row.embed_hash == sha256_hex(embedding_source(item))


def test_a_stored_item_that_was_altered_is_not_returned():
    row = make_row(1)
    with pytest.raises(Corrupt):
        replace(row, item_json=row.item_json.replace("text", "next")).item()


def test_a_time_without_a_zone_is_refused_and_nothing_is_stored(store: Store):
    with pytest.raises(InvalidRequest):
        store.append([make_row(1), StoredItem.from_item(make_item(), 2, datetime(2026, 1, 1))])
    assert store.scan().num_rows == 0


def test_a_commit_of_another_handle_is_seen_by_an_open_one(tmp_path: Path):
    reader, writer = Store(tmp_path), Store(tmp_path)
    writer.append([make_row(1)])
    assert reader.max_seq() == 1
    writer.append([make_row(2)])
    assert reader.max_seq() == 2
    assert reader.read("acme", "document:handbook/2", "1") is not None


WRITER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from ctx_pipeline.contracts import ContextItem, Provenance, Scope
from ctx_pipeline.index.store import Store, StoredItem

store, name = Store(Path(sys.argv[1])), sys.argv[2]
for number in range(5):
    with store.writer():
        item = ContextItem(
            item_id=f"document:{name}/{number}", version="1", kind="document", title="t",
            content="c", authority=60, trust="user", scope=Scope(tenant="acme"),
            provenance=Provenance(source_type="documents", source_id=name),
        )
        at = datetime(2026, 1, 1, tzinfo=UTC)
        store.append([StoredItem.from_item(item, store.max_seq() + 1, at)])
"""


def test_two_processes_that_append_at_once_lose_nothing_and_share_no_sequence(tmp_path: Path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name])
        for name in ("one", "two")
    ]
    assert [writer.wait(timeout=50) for writer in writers] == [0, 0]
    keys = Store(tmp_path).scan_keys()
    assert keys["seq"].to_pylist() == list(range(1, 11))
    assert sorted(keys["item_id"].to_pylist()) == sorted(
        f"document:{n}/{k}" for n in ("one", "two") for k in range(5)
    )


def test_threads_that_share_a_store_append_without_loss(store: Store):
    threads = [
        threading.Thread(target=store.append, args=([make_row(seq)],)) for seq in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.scan_keys()["seq"].to_pylist() == list(range(1, 9))


def test_a_writer_that_cannot_get_its_turn_says_so(tmp_path: Path):
    with (
        Store(tmp_path).writer(),
        pytest.raises(Unavailable) as raised,
        Store(tmp_path).writer(timeout_seconds=0.05),
    ):
        pass
    assert raised.value.retryable


def test_vectors_come_back_in_the_order_asked_for(store: Store):
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    hashes = [sha256_hex(str(number)) for number in range(300)]
    store.put_vectors("m", hashes[:200], vectors[:200])
    store.put_vectors("m", hashes[200:], vectors[200:])
    few = [5, 250, 5, 0]
    many = [*range(299, -1, -1), 7]
    assert len(many) > POINT_LOOKUP_ROWS
    for order in (few, many):
        found = store.get_vectors("m", [hashes[row] for row in order])
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, vectors[order])


def test_vectors_of_two_models_never_meet(store: Store):
    store.put_vectors("a-1", ["h"], np.ones((1, 3), np.float32))
    store.put_vectors("b-1", ["h"], np.zeros((1, 3), np.float32))
    store.put_vectors("c-1", ["h"], np.full((1, 5), 2, np.float32))
    assert store.get_vectors("a-1", ["h"]).tolist() == [[1, 1, 1]]
    assert store.get_vectors("b-1", ["h"]).tolist() == [[0, 0, 0]]
    assert store.get_vectors("c-1", ["h"]).tolist() == [[2, 2, 2, 2, 2]]
    assert [(entry.model, entry.dim) for entry in store.models()] == [
        ("a-1", 3),
        ("b-1", 3),
        ("c-1", 5),
    ]
    assert store.known(["h", "i"], "a-1") == {"h"}
    assert store.known(["h"], "d-1") == set()


def test_a_model_that_changes_the_length_of_its_vectors_is_refused(store: Store):
    store.put_vectors("a-1", ["h"], np.ones((1, 3), np.float32))
    with pytest.raises(Conflict) as raised:
        store.put_vectors("a-1", ["i"], np.ones((1, 4), np.float32))
    assert raised.value.stable_code == "model_changed"


def test_a_hash_keeps_its_first_vector(store: Store):
    store.put_vectors("a", ["h"], np.ones((1, 2), np.float32))
    store.put_vectors("a", ["h", "i", "i"], np.zeros((3, 2), np.float32))
    assert store.get_vectors("a", ["h", "i"]).tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("count", [1, POINT_LOOKUP_ROWS + 1])
def test_a_missing_vector_is_an_error_and_never_a_zero(store: Store, count: int):
    hashes = [str(number) for number in range(count)]
    store.put_vectors("a", hashes[:-1] or ["other"], np.ones((max(count - 1, 1), 2), np.float32))
    with pytest.raises(Corrupt):
        store.get_vectors("a", hashes)
    with pytest.raises(Corrupt):
        store.get_vectors("never used", hashes)


def test_vectors_that_do_not_fit_their_hashes_are_refused(store: Store):
    for shape in ((1, 4), (2,)):
        with pytest.raises(InvalidRequest):
            store.put_vectors("a", ["x", "y"], np.ones(shape, np.float32))


def texts_of(texts: Mapping[str, str]) -> Callable[[Sequence[str]], list[str]]:
    return lambda hashes: [texts[key] for key in hashes]


def test_only_texts_without_a_vector_are_embedded(store: Store):
    embedder = CountingEmbedder()
    texts = {sha256_hex(text): text for text in ("refund", "退款", "")}
    assert ensure_embeddings(store, embedder, texts, texts_of(texts)) == 3
    texts[sha256_hex("new")] = "new"
    assert ensure_embeddings(store, embedder, texts, texts_of(texts)) == 1
    assert ensure_embeddings(store, embedder, texts, texts_of(texts)) == 0
    assert embedder.embedded == ["refund", "退款", "", "new"]
    np.testing.assert_array_equal(
        store.get_vectors(embedder.name, list(texts)),
        CountingEmbedder().embed_documents(list(texts.values())),
    )


def test_another_model_embeds_everything_again(store: Store):
    texts = {sha256_hex("a"): "a"}
    ensure_embeddings(store, CountingEmbedder("one"), texts, texts_of(texts))
    assert ensure_embeddings(store, CountingEmbedder("two"), texts, texts_of(texts)) == 1


def test_an_interrupted_embedding_keeps_every_finished_batch(store: Store):
    texts = {sha256_hex(str(n)): str(n) for n in range(EMBED_BATCH_ROWS * 2 + 10)}
    steps: list[tuple[int, int]] = []

    def stop_at_two(done: int, total: int) -> None:
        steps.append((done, total))
        if len(steps) == 2:
            raise KeyboardInterrupt

    embedder = CountingEmbedder()
    with pytest.raises(KeyboardInterrupt):
        ensure_embeddings(store, embedder, texts, texts_of(texts), stop_at_two)
    assert steps == [(EMBED_BATCH_ROWS, len(texts)), (2 * EMBED_BATCH_ROWS, len(texts))]
    assert ensure_embeddings(store, embedder, texts, texts_of(texts)) == 10
    assert sorted(embedder.embedded, key=int) == list(texts.values())


def test_compaction_keeps_every_row_and_leaves_one_fragment(store: Store):
    for seq in range(1, 6):
        store.append([make_row(seq)])
        store.put_vectors("a", [str(seq)], np.full((1, 2), seq, np.float32))
    before = store.scan()
    assert store.fragments() == 5
    store.optimize()
    assert store.fragments() == 1
    assert store.scan().equals(before)
    assert store.get_vectors("a", ["3", "1"]).tolist() == [[3, 3], [1, 1]]


def _bytes_under(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_an_erased_item_leaves_no_byte_in_any_file(store: Store, tmp_path: Path):
    canary = "QUOKKA-9042"
    rows = [
        make_row(1, "document:a", canary),
        make_row(2, "document:b", "kept"),
        make_row(3, "document:a", canary + "2"),
    ]
    other = make_row(4, "document:a", "their own", tenant="other")
    for row in (*rows, other):
        store.append([row])
    texts = {row.embed_hash: row.item_id + str(row.seq) for row in (*rows, other)}
    ensure_embeddings(store, CountingEmbedder(), texts, texts_of(texts))
    assert canary.encode() in _bytes_under(tmp_path)

    reader = Store.of_project(tmp_path)
    assert reader.max_seq() == 4
    assert store.erase("acme", ["document:a", "document:unknown"]) == 2

    stored = _bytes_under(tmp_path)
    assert canary.encode() not in stored
    assert rows[0].embed_hash.encode() not in stored
    assert reader.scan()["item_id"].to_pylist() == ["document:b", "document:a"]
    assert reader.known([row.embed_hash for row in (*rows, other)], "hash-1/test") == {
        rows[1].embed_hash,
        other.embed_hash,
    }
    assert store.erase("acme", ["document:a"]) == 0
    store.append([make_row(5)])
    assert reader.max_seq() == 5


def test_a_vector_that_another_item_shares_is_not_erased(store: Store):
    rows = [make_row(1, "document:a", "same"), make_row(2, "document:b", "same")]
    assert rows[0].embed_hash == rows[1].embed_hash
    store.append(rows)
    ensure_embeddings(
        store, CountingEmbedder(), [rows[0].embed_hash], texts_of({rows[0].embed_hash: "same"})
    )
    store.erase("acme", ["document:a"])
    assert store.known([rows[1].embed_hash], "hash-1/test") == {rows[1].embed_hash}


def _damage(folder: Path, pattern: str, keep: float) -> None:
    path = min(folder.rglob(pattern))  # Manifests are named so that the newest sorts first.
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


@pytest.mark.parametrize(
    ("pattern", "keep"), [("items.lance/data/*", 0.5), ("items.lance/_versions/*", 0.3)]
)
def test_damaged_files_are_reported_as_corrupt(tmp_path: Path, pattern: str, keep: float):
    Store(tmp_path).append([make_row(1)])
    _damage(tmp_path, pattern, keep)
    with pytest.raises(Corrupt):
        Store(tmp_path).scan()


def test_a_table_whose_manifest_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path):
    Store(tmp_path).append([make_row(1)])
    for path in (tmp_path / "items.lance" / "_versions").iterdir():
        path.unlink()
    with pytest.raises(Corrupt):
        Store(tmp_path).scan()


def test_a_creation_that_was_cut_off_is_an_empty_table_that_can_be_written(tmp_path: Path):
    (tmp_path / "items.lance").mkdir()
    store = Store(tmp_path)
    assert store.scan().num_rows == 0
    store.append([make_row(1)])
    assert store.max_seq() == 1


def test_a_store_of_a_newer_release_is_refused_by_name(tmp_path: Path):
    Store(tmp_path).append([make_row(1)])
    (tmp_path / "store.json").write_text(json.dumps({"format": 99, "models": []}))
    with pytest.raises(Unavailable) as raised:
        Store(tmp_path).scan()
    assert raised.value.stable_code == "newer_format"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": null}'])
def test_damaged_metadata_is_reported_as_corrupt(tmp_path: Path, content: str):
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(Corrupt):
        Store(tmp_path).models()


def test_a_folder_that_cannot_be_made_is_unavailable_with_a_fix(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store")
    assert store.scan().num_rows == 0
    with pytest.raises(Unavailable) as raised:
        store.append([make_row(1)])
    assert raised.value.fix


def test_importing_and_opening_a_store_loads_no_database():
    code = (
        "import sys; from pathlib import Path; from ctx_pipeline.index.store import Store; "
        "Store(Path('nowhere')); "
        "assert not {'lancedb', 'pyarrow', 'numpy'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_threads_do_not_import_lancedb_with_each_others_settings() -> None:
    """Sensors open stores in the threads of one code server, and an import that
    fails stays failed.
    """
    seen: list[str] = []

    def enter() -> None:
        with models_built_when_used():
            seen.append("second in")

    second = threading.Thread(target=enter)
    with models_built_when_used():
        second.start()
        second.join(timeout=0.5)
        seen.append("first out")
    second.join(timeout=10)
    assert seen == ["first out", "second in"]
