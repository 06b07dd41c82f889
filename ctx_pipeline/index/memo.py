"""Columns that follow from an item version alone, computed once and kept under the version's own
hash.

What a build derives from one item (its facts, terms, renditions, token counts) never changes,
because the item never does. Each kind of such columns is a folder of Arrow files in
`.ctx/derived/rows/`; a build computes what is new and takes the rest. A file that is not what was
written is left out and computed again, and the folder can be deleted.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.artifact import file_digest, read_table, write_table
from ctx_pipeline.text import short_hash

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]

MAX_FILES: Final = 16
"""Files above which a folder is rewritten as one; each costs every build an open and a hash."""

COMPUTE_ROWS = 32_768
"""Rows computed at a time: what they are computed from need not be in memory at once."""

HASH: Final = "item_hash"
"""The column that says which item version a row is of."""

Compute = Callable[["Positions"], "pa.Table"]
"""Returns one row for each of the positions it is given, in order."""


class RowMemo:
    """One kind of derived columns. `version` names the code and settings that they follow from
    besides the item.
    """

    def __init__(self, derived: Path, kind: str, version: str) -> None:
        self._folder = derived / "rows" / f"{kind}-{short_hash(version)}"
        self._kind = kind

    def take(self, item_hashes: Sequence[str], compute: Compute) -> pa.Table:
        """Return one row per hash, in their order; `compute` makes those that are not kept.

        What is kept of other item versions is dropped: they are forgotten, or stored anew.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        self._drop_other_versions()
        wanted = pa.array(item_hashes, pa.string())
        files, kept = self._read()
        at = _places(kept, wanted)
        missing = np.flatnonzero(at < 0)
        tables = [] if kept is None else [kept]
        if len(missing):
            # One row a hash: two records of one source can be the same item version.
            missing = missing[_first_of_each(wanted.take(pa.array(missing)))]
            parts = [
                missing[first : first + COMPUTE_ROWS]
                for first in range(0, len(missing), COMPUTE_ROWS)
            ]
            fresh = pa.concat_tables([compute(part) for part in parts])
            tables.append(fresh.append_column(HASH, wanted.take(pa.array(missing))))
        table = pa.concat_tables(tables) if tables else compute(missing).append_column(HASH, wanted)
        stale = kept is not None and not bool(
            pc.all(pc.is_in(kept[HASH], value_set=wanted)).as_py()
        )
        result = table.take(pa.array(_places(table, wanted)))
        if stale or len(files) >= MAX_FILES:
            # What is left can be the very rows of one of the files.
            whole = self._write(table.filter(pc.is_in(table[HASH], value_set=wanted)))
            for file in files:
                if file != whole:
                    file.unlink(missing_ok=True)
        elif len(missing):
            self._write(tables[-1])
        return result.drop_columns([HASH])

    def _read(self) -> tuple[list[Path], pa.Table | None]:
        """Return the files of this kind, and their rows; what cannot be read or was changed is
        removed.
        """
        import pyarrow as pa

        tables: list[pa.Table] = []
        files: list[Path] = []
        for file in sorted(self._folder.glob("*.arrow")):
            try:
                if file.stem == file_digest(file):
                    tables.append(read_table(file))
                    files.append(file)
                    continue
            except (Corrupt, OSError):
                pass
            file.unlink(missing_ok=True)
        return files, pa.concat_tables(tables) if tables else None

    def _write(self, table: pa.Table) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f"{uuid.uuid4().hex}.part"
        digest = write_table(partial, table)
        target = self._folder / f"{digest}.arrow"
        os.replace(partial, target)
        return target

    def _drop_other_versions(self) -> None:
        for folder in self._folder.parent.glob(f"{self._kind}-*"):
            if folder != self._folder:
                shutil.rmtree(folder, ignore_errors=True)


def _places(table: pa.Table | None, wanted: pa.Array) -> Positions:
    """Return where each hash is in a table, -1 where it is not."""
    import numpy as np
    import pyarrow.compute as pc

    if table is None:
        return np.full(len(wanted), -1, np.int64)
    found = pc.index_in(wanted, value_set=table[HASH].combine_chunks())
    return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _first_of_each(hashes: pa.Array) -> Positions:
    """Return the positions of the first of equal hashes, in order."""
    import numpy as np

    return np.sort(
        np.unique(hashes.to_numpy(zero_copy_only=False).astype(str), return_index=True)[1]
    )
