"""What fitting reads of a row: the exact tokens of each rendition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ctx_pipeline.contracts import Rendition

if TYPE_CHECKING:
    import pyarrow as pa

CountMany = Callable[[Sequence[str], str], list[int]]
READ_ROWS = 8_192
"""Rows whose texts are Python objects at a time."""


def batch(blocks: pa.Table, encodings: Sequence[str], count_many: CountMany) -> pa.Table:
    """Count every rendition of every row in each encoding.

    Columns: `<rendition>_<encoding>`, int32; 0 where a rendition does not exist.
    """
    import pyarrow as pa

    columns: dict[str, list[int]] = {
        f"{level.value}_{encoding}": [] for level in Rendition for encoding in encodings
    }
    for part in blocks.to_batches(max_chunksize=READ_ROWS):
        for rendition in Rendition:
            texts = part.column(rendition.value).to_pylist()
            present = [text for text in texts if text is not None]
            for encoding in encodings:
                counts = iter(count_many(present, encoding))
                column = columns[f"{rendition.value}_{encoding}"]
                column.extend(0 if text is None else next(counts) for text in texts)
    return pa.table({name: pa.array(counts, pa.int32()) for name, counts in columns.items()})
