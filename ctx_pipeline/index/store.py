"""The durable store: every item version and every vector, append-only, in LanceDB.

Several processes may write: appends are serialised by a file lock, and each `append` or
`put_vectors` is one Lance commit, which is there whole or not at all. Readers see the latest commit
at each call. Opening costs nothing; LanceDB is imported when a table is first used.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctx_pipeline.errors import Conflict, Corrupt, InvalidRequest
from ctx_pipeline.index.lance import (
    LOCK_TIMEOUT_SECONDS,
    LanceFolder,
    reading,
    select,
    select_batches,
)
from ctx_pipeline.text import canonical_json, sha256_hex, short_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Sequence

    import numpy as np
    import pyarrow as pa
    from lancedb.table import Table
    from numpy.typing import NDArray

    from ctx_pipeline.contracts import ContextItem
    from ctx_pipeline.index.embedder import Embedder

    Vectors = NDArray[np.float32]

EMBED_BATCH_ROWS: Final = 64
"""Texts embedded between two commits: a kill loses at most these (about a second of work)."""

MAX_FRAGMENTS: Final = 64
"""Fragments of a table above which `ensure_embeddings` compacts; scans of 100 fragments take thrice
the time of one."""

POINT_LOOKUP_ROWS: Final = 256
"""Up to this many vectors are found by a filter, more by one pass over the whole table."""

OLD_VERSION_SECONDS: Final = 3_600
"""Table versions younger than this are kept for readers that opened them; a scan takes seconds."""

ALL_VERSIONS_SECONDS: Final = 0.001
"""Older than this is every version that a call before could have made; LanceDB warns of 0."""

_ITEMS = "items"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """One row of the record: an item version and what is needed to find it."""

    tenant: str
    """Empty when the item names none."""
    item_id: str
    version: str
    source: str
    kind: str
    seq: int
    """Order of the record; given by the caller, never by a clock."""
    recorded_at: datetime
    item_hash: str
    """SHA-256 of `item_json`."""
    content_hash: str
    embed_hash: str
    """SHA-256 of the item's `embedding_source`: the key of its vector."""
    item_json: str
    """Canonical JSON of the whole item."""

    @classmethod
    def from_item(cls, item: ContextItem, seq: int, recorded_at: datetime) -> StoredItem:
        """Return the row of an item version."""
        from ctx_pipeline.index.embedder import embedding_source

        item_json = canonical_json(item.model_dump(mode="json"))
        return cls(
            tenant=item.scope.tenant or "",
            item_id=item.item_id,
            version=item.version,
            source=item.provenance.source_id,
            kind=str(item.kind),
            seq=seq,
            recorded_at=recorded_at,
            item_hash=sha256_hex(item_json),
            content_hash=item.content_hash,
            embed_hash=sha256_hex(embedding_source(item)),
            item_json=item_json,
        )

    def item(self) -> ContextItem:
        """Return the item version itself.

        Raises:
            Corrupt: the JSON is not what was stored.
        """
        from ctx_pipeline.contracts import ContextItem

        if sha256_hex(self.item_json) != self.item_hash:
            raise Corrupt(
                "an item does not match its hash",
                where=f"store, seq {self.seq}",
                fix="run `ctx doctor`",
            )
        return ContextItem.model_validate_json(self.item_json)


class VectorTable(NamedTuple):
    """Which model a table of vectors belongs to."""

    table: str
    model: str
    dim: int


class Store:
    """The record of one project, in one folder. Cheap to make; safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        self._lance = LanceFolder(folder)
        self._stored: dict[str, tuple[int, set[str]]] = {}
        """By table of vectors: the version that was read, and the hashes in it."""
        self._head: tuple[int, tuple[int, str]] | None = None
        """The version of the table of items that was read, and what `head` says of it."""
        self._keys: tuple[int, pa.Table] | None = None
        """The same for `scan_keys`: one source after the other looks through it."""

    @classmethod
    def of_project(cls, home: Path) -> Store:
        """Return the store of the project at `home`."""
        return cls(home / ".ctx" / "state" / "store")

    @contextmanager
    def writer(self, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
        """Hold the one right to write, across threads and processes; may be nested in a thread.

        Hold it over *read, decide, append*, so that two builds cannot append the same version
        twice.

        Raises:
            Unavailable: another writer held it for `timeout_seconds`, or the folder cannot be
                written.
        """
        with self._lance.writer(timeout_seconds):
            yield

    # Item versions

    def append(self, rows: Sequence[StoredItem]) -> None:
        """Record item versions: one commit, all or none.

        Raises:
            InvalidRequest: a row's time has no zone.
            Unavailable: nothing was written: the disk is full or another writer did not finish.
        """
        if not rows:
            return
        if any(row.recorded_at.tzinfo is None for row in rows):
            raise InvalidRequest(
                "recorded_at has no time zone", where="store", fix="use an aware UTC time"
            )
        import pyarrow as pa

        columns = {
            field.name: [getattr(row, field.name) for row in rows] for field in fields(StoredItem)
        }
        with self.writer():
            self._lance.append(_ITEMS, pa.table(columns, schema=_item_schema()))

    def scan(self) -> pa.Table:
        """Return every row, ordered by `seq` (rows of one `seq` in the order of their append)."""
        return self._scan_items(_item_schema())

    def scan_keys(self) -> pa.Table:
        """Return every row without `item_json`, ordered by `seq`.

        Takes a few milliseconds per 10,000 rows, once a version of the table.
        """
        version = self._items_version()
        if self._keys is None or self._keys[0] != version:
            schema = _item_schema()
            keys = self._scan_items(schema.remove(schema.get_field_index("item_json")))
            self._keys = (version, keys)
        return self._keys[1]

    def read(self, tenant: str, item_id: str, version: str) -> StoredItem | None:
        """Return the row of one item version, the last one if it was recorded again, or None."""
        table = self._lance.open(_ITEMS)
        if table is None:
            return None
        from lancedb.expr import col, lit

        where = (
            (col("item_id") == lit(item_id))
            & (col("version") == lit(version))
            & (col("tenant") == lit(tenant))
        )
        found = reading(_ITEMS, lambda: select(table, _item_schema().names, where)).to_pylist()
        return StoredItem(**max(found, key=lambda row: row["seq"])) if found else None

    def read_seqs(self, seqs: Sequence[int]) -> dict[int, ContextItem]:
        """Return the items recorded under some numbers.

        Raises:
            Corrupt: an item does not match its hash.
        """
        table = self._lance.open(_ITEMS)
        if table is None or not len(seqs):
            return {}
        from lancedb.expr import col, lit

        # New versions have the highest numbers, so a range leaves out most of what is not asked
        # for.
        where = (col("seq") >= lit(int(min(seqs)))) & (col("seq") <= lit(int(max(seqs))))
        rows = reading(_ITEMS, lambda: select(table, _item_schema().names, where))
        rows = rows.filter(_is_in(rows["seq"], [int(seq) for seq in seqs], "int64"))
        return {
            row["seq"]: StoredItem(**row).item()
            for batch in rows.to_batches()
            for row in batch.to_pylist()
        }

    def max_seq(self) -> int:
        """Return the highest `seq` recorded, 0 when there is none."""
        return self.head()[0]

    def head(self) -> tuple[int, str]:
        """Return the highest `seq` recorded and the hash of the item under it.

        0 and nothing when there is none.
        """
        version = self._items_version()
        if self._head is None or self._head[0] != version:
            self._head = (version, self._read_head())
        return self._head[1]

    def _items_version(self) -> int:
        """Return the version of the table of items; 0 for none. Every commit, of any process,
        raises it.
        """
        table = self._lance.open(_ITEMS)
        return 0 if table is None else reading(_ITEMS, lambda: table.version)

    def _read_head(self) -> tuple[int, str]:
        table = self._lance.open(_ITEMS)
        if table is None:
            return 0, ""
        import pyarrow.compute as pc

        rows = reading(_ITEMS, lambda: select(table, ["seq", "item_hash"]))
        if not len(rows):
            return 0, ""
        last = rows.take([pc.index(rows["seq"], pc.max(rows["seq"])).as_py()]).to_pylist()[0]
        return int(last["seq"]), str(last["item_hash"])

    def _scan_items(self, schema: pa.Schema) -> pa.Table:
        table = self._lance.open(_ITEMS)
        if table is None:
            return schema.empty_table()
        return _ordered_by_seq(reading(_ITEMS, lambda: select(table, schema.names).cast(schema)))

    # Vectors

    def models(self) -> tuple[VectorTable, ...]:
        """Return the models that have vectors here, ordered by name."""
        known = self._lance.metadata()["models"]
        return tuple(
            sorted((VectorTable(**entry) for entry in known), key=lambda entry: entry.model)
        )

    def known(self, hashes: Collection[str], model: str) -> set[str]:
        """Return those of `hashes` that have a vector of this model."""
        stored = self._hashes(_vector_table_name(model)) if hashes else set[str]()
        return {key for key in hashes if key in stored}

    def _hashes(self, name: str) -> set[str]:
        """Return the hashes of a table of vectors, read anew when somebody has written to it."""
        table = self._lance.open(name)
        if table is None:
            return set()
        version = reading("vectors", lambda: table.version)
        at, stored = self._stored.get(name, (-1, set[str]()))
        if at != version:
            stored = set(reading("vectors", lambda: select(table, ["hash"]))["hash"].to_pylist())
            self._stored[name] = (version, stored)
        return stored

    def put_vectors(self, model: str, hashes: Sequence[str], vectors: Vectors) -> None:
        """Store the vector of each hash: one commit. A hash that has one keeps it.

        Args:
            model: `Embedder.name`.
            hashes: One per row of `vectors`.
            vectors: float32 `[len(hashes), dim]`.

        Raises:
            InvalidRequest: the shapes do not fit.
            Conflict: the model has vectors of another length here.
            Unavailable: nothing was written.
        """
        if vectors.ndim != 2 or len(vectors) != len(hashes):
            raise InvalidRequest(
                f"{len(hashes)} hashes do not fit vectors of shape {vectors.shape}",
                where="store",
                fix="pass one each",
            )
        with self.writer():
            name = self._register(model, int(vectors.shape[1]))
            known = self.known(hashes, model)
            rows = {key: row for row, key in enumerate(hashes) if key not in known}
            if rows:
                self._lance.append(name, _vector_rows(list(rows), vectors[list(rows.values())]))
                self._add_hashes(name, rows)

    def _add_hashes(self, name: str, hashes: Collection[str]) -> None:
        """Note what this writer has just added, so that its next batch need not read the table
        again.
        """
        table = self._lance.open(name)
        if table is not None and name in self._stored:
            stored = self._stored[name][1]
            stored.update(hashes)
            self._stored[name] = (table.version, stored)

    def get_vectors(self, model: str, hashes: Sequence[str]) -> Vectors:
        """Return float32 `[len(hashes), dim]`, row by row for `hashes`.

        Raises:
            Corrupt: a hash has no vector of this model.
        """
        import numpy as np
        import pyarrow as pa

        wanted = pa.array(hashes, pa.string()).dictionary_encode()
        dim = next((entry.dim for entry in self.models() if entry.model == model), 0)
        found = np.zeros((len(wanted.dictionary), dim), dtype=np.float32)
        if len(hashes):
            missing = len(found) - self._fill(model, wanted.dictionary.to_pylist(), found)
            if missing:
                raise Corrupt(
                    f"{missing} of {len(found)} vectors are missing",
                    where=f"store, model {model!r}",
                    fix="ctx build",
                )
        return found if len(found) == len(hashes) else found[wanted.indices.to_numpy()]

    def _fill(self, model: str, wanted: list[str], out: Vectors) -> int:
        """Write the vectors of distinct hashes into the rows of `out`; return
        how many were found.
        """
        import numpy as np

        table = self._lance.open(_vector_table_name(model))
        if table is None:
            return 0
        where = None
        if len(wanted) <= POINT_LOOKUP_ROWS:
            from lancedb.expr import col

            where = col("hash").isin(wanted)
        places = {key: place for place, key in enumerate(wanted)}

        def fill() -> int:
            count = 0
            for batch in select_batches(table, ["hash", "vector"], where):
                targets = np.array(
                    [places.get(key, -1) for key in batch["hash"].to_pylist()], dtype=np.int64
                )
                rows = np.flatnonzero(targets >= 0)
                vectors = batch["vector"].flatten().to_numpy().reshape(-1, out.shape[1])
                out[targets[rows]] = vectors[rows]
                count += len(rows)
            return count

        return reading("vectors", fill)

    def _register(self, model: str, dim: int) -> str:
        """Note which table holds the model's vectors; return its name."""
        name = _vector_table_name(model)
        metadata = self._lance.metadata()
        entry = next((known for known in metadata["models"] if known["table"] == name), None)
        if entry is None:
            metadata["models"].append(VectorTable(name, model, dim)._asdict())
            self._lance.save_metadata(metadata)
        elif (entry["model"], entry["dim"]) != (model, dim):
            raise Conflict(
                f"model {model!r} has vectors of length {entry['dim']} here, not {dim}",
                where="store",
                fix="give the changed model a new name",
                code="model_changed",
            )
        return name

    # Maintenance

    def fragments(self) -> int:
        """Return the number of fragments of the most fragmented table."""
        return max(map(self._lance.fragments, self._table_names()))

    def optimize(self, keep_old_seconds: float = OLD_VERSION_SECONDS) -> None:
        """Compact every table and drop versions that were made more than `keep_old_seconds` ago.

        The rows stay as they are. Call it when `fragments` is high.
        """
        with self.writer():
            for name in self._table_names():
                self._lance.compact(name, timedelta(seconds=keep_old_seconds))

    def erase(self, tenant: str, item_ids: Collection[str]) -> int:
        """Remove all versions of some items, their vectors and every older file that holds them;
        return how many rows.

        The one exception to append-only, for forgetting. Vectors go first, so that a call that was
        cut off is finished by calling again. A vector that another item shares stays. A reader that
        is inside a scan may fail and has to scan again.
        """
        with self.writer():
            rows = self.scan()
            doomed = _rows_of(rows, tenant, item_ids)
            kept = rows.filter(_inverted(doomed))
            removed = rows.filter(doomed)
            if len(removed):
                self._erase_vectors(
                    set(removed["embed_hash"].to_pylist()) - set(kept["embed_hash"].to_pylist())
                )
                self._lance.replace(_ITEMS, kept)
            self.optimize(keep_old_seconds=ALL_VERSIONS_SECONDS)
        return len(removed)

    def _erase_vectors(self, hashes: set[str]) -> None:
        for entry in self.models():
            if (
                not self.known(hashes, entry.model)
                or (table := self._lance.open(entry.table)) is None
            ):
                continue
            rows = _all_vectors(table)
            self._lance.replace(entry.table, rows.filter(_inverted(_is_in(rows["hash"], hashes))))

    def _table_names(self) -> list[str]:
        return [_ITEMS, *(entry.table for entry in self.models())]


def ensure_embeddings(
    store: Store,
    embedder: Embedder,
    hashes: Collection[str],
    texts_of: Callable[[Sequence[str]], Sequence[str]],
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Embed what has no vector of this model yet; return how many texts were embedded.

    Each batch is stored before the next is embedded, so an interrupted call has lost at most one
    batch. The store is not locked while the model runs.

    Args:
        store: Where vectors are kept.
        embedder: The model.
        hashes: Keys of the vectors that are wanted.
        texts_of: Returns the embedding text of each of some hashes, in order.
        progress: Called with (done, total) after each batch.
    """
    distinct = list(dict.fromkeys(hashes))
    known = store.known(distinct, embedder.name)
    missing = [key for key in distinct if key not in known]
    texts = texts_of(missing) if missing else ()
    for start in range(0, len(missing), EMBED_BATCH_ROWS):
        batch = slice(start, start + EMBED_BATCH_ROWS)
        store.put_vectors(embedder.name, missing[batch], embedder.embed_documents(texts[batch]))
        if progress is not None:
            progress(min(start + EMBED_BATCH_ROWS, len(missing)), len(missing))
    if missing and store.fragments() > MAX_FRAGMENTS:
        store.optimize()
    return len(missing)


def _item_schema() -> pa.Schema:
    import pyarrow as pa

    def text(name: str) -> pa.Field:
        return pa.field(name, pa.string(), nullable=False)

    return pa.schema(
        [
            *map(text, ("tenant", "item_id", "version", "source", "kind")),
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("recorded_at", pa.timestamp("us", tz="UTC"), nullable=False),
            *map(text, ("item_hash", "content_hash", "embed_hash")),
            pa.field("item_json", pa.large_string(), nullable=False),
        ]
    )


def _vector_table_name(model: str) -> str:
    return f"vectors_{short_hash(model)}"


def _vector_rows(hashes: list[str], vectors: Vectors) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    dim = vectors.shape[1]
    values = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1), pa.float32())
    schema = pa.schema(
        [
            pa.field("hash", pa.string(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dim), nullable=False),
        ]
    )
    columns = [pa.array(hashes, pa.string()), pa.FixedSizeListArray.from_arrays(values, dim)]
    return pa.Table.from_arrays(columns, schema=schema)


def _all_vectors(table: Table) -> pa.Table:
    return reading("vectors", lambda: select(table, ["hash", "vector"]))


def _ordered_by_seq(rows: pa.Table) -> pa.Table:
    import numpy as np

    order = rows["seq"].to_numpy()
    if bool((order[1:] >= order[:-1]).all()):
        return rows
    return rows.take(np.argsort(order, kind="stable"))


def _is_in(column: Any, values: Collection[str] | Collection[int], kind: str = "string") -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(column, value_set=pa.array(list(values), kind))


def _rows_of(rows: pa.Table, tenant: str, item_ids: Collection[str]) -> Any:
    import pyarrow.compute as pc

    return pc.and_(_is_in(rows["tenant"], [tenant]), _is_in(rows["item_id"], item_ids))


def _inverted(mask: Any) -> Any:
    import pyarrow.compute as pc

    return pc.invert(mask)
