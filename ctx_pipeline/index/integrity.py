"""Whether an artifact is what was published, asked before anything of it is read.

Its labels decide who sees what, and its words and vectors what they find. Of an artifact of up to
`WHOLE_BYTES` every byte is read each time that it is opened. Of a larger one the bytes of a part
are read unless its file was checked before as it lies there: with the inode, size and times of
change that are noted in `.ctx/derived/checked.json`. A write changes these, a disk that loses a bit
does not; builds and `ctx doctor` read every byte whatever is noted.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from ctx_pipeline.errors import Corrupt
from ctx_pipeline.index.artifact import PARTS, file_digest, is_sealed

WHOLE_BYTES: Final = 64 * 1024**2
"""40 ms of SHA-256 on a processor that has instructions for it."""

NOTES: Final = "checked.json"

Facts = list[int | str]
"""What is noted of a part: device, inode, size, times of change in nanoseconds, and the hash of its
bytes."""


def check_artifact(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse an artifact that is not what was published.

    Raises:
        Corrupt: a part is missing or has other bytes, or the manifest has.
    """
    if not is_sealed(manifest):
        raise _corrupt("the manifest", directory)
    digests: Mapping[str, str] = manifest["parts"]
    facts: dict[str, Facts] = {}
    for name in PARTS:
        try:
            stat = (directory / f"{name}.arrow").stat()
        except OSError:
            raise _corrupt(f"part {name!r}", directory) from None
        facts[name] = [
            *(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns),
            digests.get(name, ""),
        ]
    is_small = sum(int(of[2]) for of in facts.values()) <= WHOLE_BYTES
    notes = directory.parent.parent / NOTES
    noted = {} if is_small else _read(notes)
    for name in PARTS:
        if noted.get(name) != facts[name] and not _is_written(
            directory / f"{name}.arrow", digests.get(name)
        ):
            raise _corrupt(f"part {name!r}", directory)
    if not is_small and noted != facts:
        _write(notes, facts)


def _is_written(path: Path, digest: str | None) -> bool:
    try:
        return file_digest(path) == digest
    except OSError:
        return False


def _corrupt(what: str, directory: Path) -> Corrupt:
    return Corrupt(
        f"{what} of the index is not what was published",
        where=directory.name,
        fix="run `ctx build`",
    )


def _read(notes: Path) -> dict[str, Facts]:
    try:
        found: Any = json.loads(notes.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Facts]", found) if isinstance(found, dict) else {}


def _write(notes: Path, facts: Mapping[str, Facts]) -> None:
    """Note what has been checked. Where nothing can be written, the next process reads every byte
    again.
    """
    partial = notes.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with suppress(OSError):
        partial.write_text(json.dumps(facts), encoding="utf-8")
        os.replace(partial, notes)
