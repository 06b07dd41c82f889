"""What a source said at its last reading, by the unit it said it in: what has not changed is not
parsed again.

A unit is the smallest piece of a source that its adapter understands by itself: a file, a line of
JSON. Its digest covers its bytes and its path. An adapter asks for each unit before it parses it.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig


class KnownItem(NamedTuple):
    """One item version that is stored, as far as a source that says it again has to be compared
    with it.
    """

    tenant: str
    item_id: str
    version: str
    """As stored: a declared version whose content changed carries the content's hash."""
    seq: int
    content_hash: str
    valid_from: int
    """Microseconds; `ALWAYS` for none."""

    @property
    def key(self) -> tuple[str, str]:
        """Tenant and item id."""
        return self.tenant, self.item_id


class Units:
    """The units of one source that are stored as they were read last."""

    def __init__(self, known: Mapping[bytes, tuple[KnownItem, ...]] | None = None) -> None:
        self._known = known or {}

    def known(self, digest: bytes) -> tuple[KnownItem, ...] | None:
        """Return the items of an unchanged unit; None when it has to be parsed."""
        return self._known.get(digest)

    @staticmethod
    def digest(path: str, content: bytes) -> bytes:
        """Return what a unit is known by; two paths with the same bytes are two units."""
        name = path.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(b"%d:%b%b" % (len(name), name, content), digest_size=16).digest()


PARSERS = ("pydantic", "PyYAML", "semantic-text-splitter", "justhtml", "pypdf")
"""Libraries that decide what an adapter makes of a file."""


class UnitFile:
    """Keeps the units of one source from one reading to the next, in `.ctx/derived/sources/`.

    Whatever else the items follow from is part of the file's name: the source's settings and the
    code that reads it.
    """

    def __init__(self, derived: Path, source: SourceConfig, *, tenant: str | None) -> None:
        settings = f"{source.model_dump_json()}\n{tenant}\n{reading_version()}"
        self._folder = derived / "sources" / source.name
        self._prefix = hashlib.sha256(settings.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def load(self, is_stored: Callable[[KnownItem], bool]) -> Units:
        """Return the units whose items are all stored as they were; what is
        damaged is read anew.
        """
        from ctx_pipeline.errors import Corrupt
        from ctx_pipeline.index.artifact import file_digest, read_table

        for file in self._folder.glob(f"{self._prefix}-*.arrow"):
            try:
                if file.stem.partition("-")[2] != file_digest(file):
                    continue
                columns = read_table(file).to_pydict()
            except (Corrupt, OSError):
                continue
            units: dict[bytes, tuple[KnownItem, ...]] = {}
            for unit, *values in zip(*columns.values(), strict=True):
                units[unit] = (*units.get(unit, ()), KnownItem(*values))
            return Units(
                {unit: known for unit, known in units.items() if all(map(is_stored, known))}
            )
        return Units()

    def save(self, units: Mapping[bytes, tuple[KnownItem, ...]]) -> None:
        """Put the units of a reading into the place of those of the reading before."""
        import pyarrow as pa

        from ctx_pipeline.index.artifact import write_table

        rows = [(unit, *known) for unit, items in units.items() for known in items]
        if not rows:
            return
        kinds = (
            pa.binary(16),
            pa.string(),
            pa.string(),
            pa.string(),
            pa.int64(),
            pa.string(),
            pa.int64(),
        )
        schema = pa.schema(list(zip(("unit", *KnownItem._fields), kinds, strict=True)))
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f"{uuid.uuid4().hex}.part"
        digest = write_table(
            partial, pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
        )
        target = self._folder / f"{self._prefix}-{digest}.arrow"
        os.replace(partial, target)
        for file in self._folder.iterdir():
            if file != target:
                file.unlink(missing_ok=True)


@cache
def reading_version() -> str:
    """Return a hash of what turns files into items: the adapters and the libraries they read with.

    A release that reads a file otherwise reads every file again, and the graph says that it should.
    """
    package = Path(__file__).parent.parent
    files = [
        *sorted((package / "sources").rglob("*.py")),
        package / "text.py",
        package / "contracts" / "item.py",
    ]
    digest = hashlib.sha256(" ".join(version(name) for name in PARSERS).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
