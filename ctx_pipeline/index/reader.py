"""The one reader of serving artifacts: memory-mapped columns, vectors and words of every row."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ctx_pipeline.contracts.codes import Rendition
from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index.artifact import (
    FORMAT_VERSION,
    PARTS,
    SEAL,
    is_sealed,
    read_table,
)
from ctx_pipeline.index.columns import (
    RowFacts,
    Texts,
    bisect_texts,
    list_offsets,
    list_values,
    numbers,
    spans,
)
from ctx_pipeline.index.contested import Contested
from ctx_pipeline.index.forms import Forms
from ctx_pipeline.index.integrity import check_artifact
from ctx_pipeline.index.labels import TIME_COLUMNS, labels_of
from ctx_pipeline.index.lexical import Lexical
from ctx_pipeline.index.quantised import Quantised
from ctx_pipeline.security.visibility import (
    StateColumns,
)
from ctx_pipeline.tools.catalogue import rows_by_name, tool_rows

if TYPE_CHECKING:
    import pyarrow as pa


Rows = NDArray[np.intp]
Floats = NDArray[np.float32]

STRINGS = ("item_id", "version", "title", "subject_name")


class ArtifactReader:
    """One published artifact. Immutable, safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            self.manifest: dict[str, Any] = json.loads(
                (directory / "manifest.json").read_text(encoding="utf-8")
            )
        except (OSError, ValueError) as cause:
            raise Corrupt(
                "the serving artifact has no readable manifest",
                where=directory.name,
                fix="run `ctx build`",
            ) from cause
        if not _MANIFEST_KEYS.issubset(self.manifest):
            raise Corrupt(
                "the serving artifact's manifest is not whole",
                where=directory.name,
                fix="run `ctx build`",
            )
        if SEAL in self.manifest and not is_sealed(self.manifest):
            raise Corrupt(
                "the serving artifact's manifest is not what was written",
                where=directory.name,
                fix="run `ctx build`",
            )
        if self.manifest["format"] != FORMAT_VERSION:
            raise Unavailable(
                f"the serving artifact has format {self.manifest['format']}, "
                f"this version reads {FORMAT_VERSION}",
                where=directory.name,
                fix="run `ctx build`",
                code="index_format",
            )
        check_artifact(directory, self.manifest)
        tables = {name: read_table(directory / f"{name}.arrow") for name in PARTS}
        self._tables = tables
        self.content_hash: str = self.manifest["content_hash"]
        self.overlay_sequence: int = self.manifest["generation"]["overlay_sequence"]
        self.tenants: dict[str, tuple[int, int]] = {
            tenant: (first, last) for tenant, (first, last) in self.manifest["tenants"].items()
        }
        self._tenant_starts = sorted(
            (first, tenant) for tenant, (first, last) in self.tenants.items() if first < last
        )
        self.sources: list[dict[str, Any]] = self.manifest["sources"]
        self._read_columns(tables)
        self.contested = Contested(tables["claims"])
        self.lexical = Lexical(tables)

    def _read_columns(self, tables: dict[str, pa.Table]) -> None:
        found, ranked, filtered = tables["discovered"], tables["ranked"], tables["filtered"]
        self.rows: int = found.num_rows
        self.chain: Any = numbers(found, "chain")
        self.subject: Any = numbers(found, "subject")
        self._edge_starts: Any = list_offsets(found.column("edges"))
        self._edge_targets: Any = list_values(found.column("edges"))
        self._related_starts: Any = list_offsets(found.column("related"))
        self._related_targets: Any = list_values(found.column("related"))
        self.forms = Forms(found.column("forms"), self.tenants)
        self._subject_order: Any = np.argsort(self.subject, kind="stable")
        self._sorted_subject: Any = self.subject[self._subject_order]
        self.kind: Any = numbers(ranked, "kind")
        self.section: Any = numbers(ranked, "section")
        self.source: Any = numbers(ranked, "source")
        self.when: Any = numbers(ranked, "when_to_load")
        self.authority: Any = numbers(ranked, "authority")
        self.confidence: Any = numbers(ranked, "confidence")
        self.verified_at: Any = numbers(ranked, "verified_at")
        self.content_number: Any = numbers(ranked, "content_number")
        self.dated_at: Any = numbers(ranked, "dated_at")
        self._span_from: Any = numbers(ranked, "span_from")
        self._span_until: Any = numbers(ranked, "span_until")
        self.twins: Any = numbers(ranked, "twins")
        self._signature_starts: Any = list_offsets(ranked.column("signature"))
        self._signatures: Any = list_values(ranked.column("signature"))
        self.labels = labels_of(filtered)
        self.state = StateColumns(
            scope=numbers(filtered, "scope"),
            state=numbers(filtered, "state"),
            tied=numbers(filtered, "tied").view(np.bool_),
            **{name: numbers(filtered, name) for name in TIME_COLUMNS},
        )
        vectors = tables["vectors"].column("vector").chunk(0) if found.num_rows else None
        dim: int = self.manifest["generation"]["dim"]
        self.vectors: Floats = (
            np.zeros((0, dim), np.float32)
            if vectors is None
            else vectors.values.to_numpy(zero_copy_only=True).reshape(-1, dim)
        )
        self._rows_when: dict[tuple[str, int], Rows] = {}
        self.quantised = Quantised(tables["quantised"], dim)
        self._strings = {name: Texts(found, name) for name in STRINGS}
        self.tool_table = tables["tools"]
        self.tools = tool_rows(self.tool_table)
        self.tool_rows_by_name = rows_by_name(self.tools)
        blocks = tables["transformed"]
        self._blocks = {level: Texts(blocks, level.value) for level in Rendition}
        self.tokens: dict[str, Any] = {
            encoding: np.stack(
                [
                    numbers(tables["budgeted"], f"{rendition.value}_{encoding}")
                    for rendition in Rendition
                ],
                axis=1,
            )
            for encoding in self.manifest["encodings"]
        }

    def text(self, column: str, row: int) -> str:
        """Return `item_id`, `version`, `title` or `subject_name` of a row."""
        return self._strings[column][row]

    def block(self, row: int, rendition: Rendition) -> str:
        """Return the text of a rendition; the full one where a compact one
        would save too little.
        """
        return self._blocks[rendition][row] or self._blocks[Rendition.FULL][row]

    def tenant_of(self, row: int) -> str:
        """Return the tenant of a row."""
        return self._tenant_starts[
            bisect_right(self._tenant_starts, row, key=lambda start: start[0]) - 1
        ][1]

    def find(self, tenant: str, item_id: str) -> range:
        """Return the rows of an item's versions, oldest first; an empty range
        when there is none.
        """
        first, last = self.tenants.get(tenant, (0, 0))
        low = bisect_texts(self._strings["item_id"], item_id, first, last)
        high = low
        while high < last and self.text("item_id", high) == item_id:
            high += 1
        return range(low, high)

    def other_versions(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, other row) for every other version of the rows' items."""
        chains: Any = self.chain[np.asarray(rows, np.intp)]
        first, last = spans(self.chain, chains)
        return [
            (rows[at], other)
            for at in np.flatnonzero(last - first > 1).tolist()
            for other in range(int(first[at]), int(last[at]))
            if other != rows[at]
        ]

    def same_subject(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, other row) for everything else that is about the rows' subjects, by row."""
        subjects: Any = self.subject[np.asarray(rows, np.intp)]
        first, last = spans(self._sorted_subject, subjects)
        return [
            (rows[at], other)
            for at in np.flatnonzero(subjects >= 0).tolist()
            for other in self._subject_order[first[at] : last[at]].tolist()
            if other != rows[at]
        ]

    def dependencies(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, row it needs to be understood) for the rows, in order."""
        where = np.asarray(rows, np.intp)
        first, last = self._edge_starts[where], self._edge_starts[where + 1]
        return [
            (rows[at], target)
            for at in np.flatnonzero(last > first).tolist()
            for target in self._edge_targets[first[at] : last[at]].tolist()
        ]

    def related(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, row that might help beside it) for the rows, in order."""
        where = np.asarray(rows, np.intp)
        first, last = self._related_starts[where], self._related_starts[where + 1]
        return [
            (rows[at], target)
            for at in np.flatnonzero(last > first).tolist()
            for target in self._related_targets[first[at] : last[at]].tolist()
        ]

    def spans(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return the time that each row is about, in microseconds, half-open; empty for none."""
        where = np.asarray(rows, np.intp)
        return list(
            zip(self._span_from[where].tolist(), self._span_until[where].tolist(), strict=True)
        )

    def signature(self, row: int) -> NDArray[np.uint32]:
        """Return the MinHash signature of a row that has `twins`."""
        return self._signatures[self._signature_starts[row] : self._signature_starts[row + 1]]

    def facts(self, rows: Sequence[int], encoding: str) -> RowFacts:
        """Return what serving needs of some rows, column by column."""
        where = np.asarray(rows, np.intp)
        return RowFacts(
            item_ids=self._strings["item_id"].at(where),
            versions=self._strings["version"].at(where),
            titles=self._strings["title"].at(where),
            kinds=self.kind[where].tolist(),
            sections=self.section[where].tolist(),
            sources=self.source[where].tolist(),
            whens=self.when[where].tolist(),
            subjects=self.subject[where].tolist(),
            authorities=self.authority[where].tolist(),
            confidences=self.confidence[where].tolist(),
            verified_at=self.verified_at[where].tolist(),
            valid_from=self.state.valid_from[where].tolist(),
            dated_at=self.dated_at[where].tolist(),
            contents=self.content_number[where].tolist(),
            tokens=self.tokens[encoding][where].tolist(),
        )

    def always_rows(self, tenant: str, code: int) -> Rows:
        """Return the tenant's rows with a `when_to_load` code."""
        rows = self._rows_when.get((tenant, code))
        if rows is None:
            first, last = self.tenants.get(tenant, (0, 0))
            rows = np.flatnonzero(self.when[first:last] == code) + first
            if tenant in self.tenants:
                self._rows_when[(tenant, code)] = rows
        return rows


_MANIFEST_KEYS = frozenset(
    {"format", "parts", "content_hash", "generation", "tenants", "sources", "encodings"}
)
