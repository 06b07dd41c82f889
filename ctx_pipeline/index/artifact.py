"""Write a serving artifact: an immutable, versioned directory of memory-mapped columns, published
by one pointer.

A build stages one part per stage asset in `.ctx/derived/staging/<generation>/`; publishing links
the parts into `.ctx/derived/artifacts/<content hash>/` and moves the pointer
`.ctx/derived/current.json` with one `os.replace`. Readers keep the directory they opened.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.machine_faults import typed_system_errors
from ctx_pipeline.text import canonical_json, sha256_hex

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION = 6
"""Layout of an artifact; a reader refuses another one by name."""

PARTS = (
    *(
        "discovered",
        "vectors",
        "quantised",
        "filtered",
        "lexical/terms",
        "lexical/postings",
        "lexical/lengths",
    ),
    *("ranked", "claims", "transformed", "tools", "budgeted"),
)
"""Arrow files of an artifact, in the order the stages write them. With the manifest they are all of
it."""
SEAL = "manifest_hash"
"""Key of a manifest's hash in itself."""
POINTER_SECONDS = 60.0
"""How long a process waits to move the pointer; checking an artifact of a million rows takes
seconds."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a build is made from. Two builds of one generation give the same artifact."""

    store_sequence: int
    overlay_sequence: int
    embedder: str
    dim: int
    settings: str
    """Hash of the configuration that the columns depend on."""
    store_head: str = ""
    """Hash of the item under `store_sequence`: another record, restored or begun anew, counts up to
    it as well."""
    ledger: str = ""
    """Which ledger knows what has happened to the items."""

    @property
    def name(self) -> str:
        """A directory name for this generation."""
        return sha256_hex(canonical_json({"format": FORMAT_VERSION, **asdict(self)}))[:16]


class Layout:
    """Where the derived files of a project lie."""

    def __init__(self, home: Path) -> None:
        self.derived = home / ".ctx" / "derived"
        self.artifacts = self.derived / "artifacts"
        self.pointer = self.derived / "current.json"

    def staging(self, generation: Generation) -> Path:
        """Return the directory in which a generation is staged."""
        return self.derived / "staging" / generation.name


class Staging:
    """The parts of one generation while it is built."""

    def __init__(self, layout: Layout, generation: Generation) -> None:
        self.layout = layout
        self.generation = generation
        self.path = layout.staging(generation)
        self.path.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, table: pa.Table) -> str:
        """Write one part whole or not at all, and return its SHA-256."""
        path = self.path / f"{name}.arrow"
        path.parent.mkdir(exist_ok=True)
        digest = write_table(path, table)
        path.with_suffix(".sha256").write_text(digest, encoding="ascii")
        return digest

    def read(self, name: str) -> pa.Table:
        """Return a part that an earlier stage wrote.

        Raises:
            Unavailable: the stage before has not been built for this generation.
        """
        path = self.path / f"{name}.arrow"
        if not path.exists():
            raise Unavailable(
                f"the part {name!r} of this build is missing",
                where="build",
                fix=f"materialise stages/{name}_items first, or run `ctx build`",
                code="stage_missing",
            )
        return read_table(path)

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of a part; None when it is not there."""
        path = (self.path / f"{name}.arrow").with_suffix(".sha256")
        return path.read_text(encoding="ascii") if path.exists() else None

    def is_whole(self, name: str) -> bool:
        """Return whether a part is there and is what was written."""
        digest = self.digest(name)
        return digest is not None and _has_digest(self.path / f"{name}.arrow", digest)

    def discard(self, name: str) -> None:
        """Take a part for not written, so that its stage writes it anew."""
        ((self.path / f"{name}.arrow").with_suffix(".sha256")).unlink(missing_ok=True)


def write_table(target: Path, table: pa.Table) -> str:
    """Write an Arrow file whole or not at all, and return its SHA-256."""
    import pyarrow as pa

    temporary = target.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=max(1, table.num_rows))
    digest = file_digest(temporary)
    os.replace(temporary, target)
    return digest


def read_table(path: Path) -> pa.Table:
    """Return a memory-mapped Arrow table.

    Raises:
        Corrupt: the file is not what was written.
    """
    import pyarrow as pa

    try:
        with pa.memory_map(str(path), "r") as source:
            return pa.ipc.open_file(source).read_all()
    except (pa.ArrowInvalid, OSError) as cause:
        raise Corrupt(
            f"cannot read index part {path.name!r}",
            where="serving artifact",
            fix="delete .ctx/derived and run `ctx build`",
        ) from cause


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    import hashlib

    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def publish_artifact(staging: Staging, facts: Mapping[str, Any], *, keep: int = 5) -> str:
    """Make the staged parts the current artifact and return its content hash.

    The directory is complete before the pointer moves, so a reader sees the old artifact or the new
    one. The newest `keep` artifacts stay for rollback, and so does the one that is served. While
    the index is pinned the pointer notes what was built and stays where it is.
    """
    digests = {name: staging.digest(name) for name in PARTS}
    missing = [name for name, digest in digests.items() if digest is None]
    if missing:
        raise Unavailable(
            f"parts of this build are missing: {missing}",
            where="build",
            fix="run `ctx build`",
            code="stage_missing",
        )
    content = {
        "format": FORMAT_VERSION,
        "parts": digests,
        "embedder": staging.generation.embedder,
        **facts,
    }
    content_hash = sha256_hex(canonical_json(content))
    manifest = sealed(
        {**content, "content_hash": content_hash, "generation": asdict(staging.generation)}
    )
    target = staging.layout.artifacts / content_hash[:32]
    built = {
        "artifact": target.name,
        "content_hash": content_hash,
        "generation": asdict(staging.generation),
    }
    with pointer_lock(staging.layout):
        if not _is_published(target, content_hash):
            _link_artifact(staging, target, manifest)
        # The time of the folder orders artifacts by when they were last built.
        os.utime(target)
        served = _pinned_pointer(staging.layout)
        if served is None:
            move_pointer(staging.layout, built)
        else:
            move_pointer(staging.layout, {**served, "pin": {**served["pin"], "latest": built}})
        _drop_old(staging.layout, {target.name, *([served["artifact"]] if served else [])}, keep)
    return content_hash


@contextmanager
def pointer_lock(layout: Layout) -> Generator[None]:
    """Hold the one right to move the pointer, across processes; it goes with the process that holds
    it.

    Raises:
        Unavailable: another process held it for `POINTER_SECONDS` (`pointer_busy`), or the folder
            cannot be written (`cannot_write`).
    """
    from filelock import FileLock, Timeout

    lock = FileLock(layout.derived / "pointer.lock", fallback_to_soft=False)
    try:
        with typed_system_errors(layout.derived):
            layout.derived.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=POINTER_SECONDS)
    except Timeout:
        raise Unavailable(
            "another process is moving the index pointer",
            where=".ctx/derived",
            fix="try again",
            code="pointer_busy",
        ) from None
    try:
        yield
    finally:
        lock.release()


def _pinned_pointer(layout: Layout) -> dict[str, Any] | None:
    """Return the pointer when it is pinned to an artifact that is there."""
    try:
        pointer = read_pointer(layout)
    except Corrupt:
        return None
    if (
        pointer is None
        or "pin" not in pointer
        or not (layout.artifacts / pointer["artifact"]).is_dir()
    ):
        return None
    return pointer


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return file_digest(path) == digest
    except OSError:
        return False


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the hash of all of it."""
    return {**manifest, SEAL: sha256_hex(canonical_json(manifest))}


def is_sealed(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest is what was written."""
    return sealed({key: value for key, value in manifest.items() if key != SEAL}) == manifest


def wrong_parts(directory: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield what of an artifact is not what was written, in words. Reads every byte of it."""
    if not is_sealed(manifest):
        yield "the artifact's manifest is not what was written"
    digests: Mapping[str, str] = manifest["parts"]
    for name in PARTS:
        if not _has_digest(directory / f"{name}.arrow", digests.get(name, "")):
            yield f"part {name!r} of the artifact is not what was written"


def _is_published(target: Path, content_hash: str) -> bool:
    """Return whether an artifact directory is complete and undamaged."""
    try:
        manifest: dict[str, Any] = json.loads(
            (target / "manifest.json").read_text(encoding="utf-8")
        )
        return manifest["content_hash"] == content_hash and not list(wrong_parts(target, manifest))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _link_artifact(staging: Staging, target: Path, manifest: Mapping[str, Any]) -> None:
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    temporary.mkdir(parents=True)
    for name in PARTS:
        part = temporary / f"{name}.arrow"
        part.parent.mkdir(exist_ok=True)
        _link(staging.path / f"{name}.arrow", part)
    _write_synced(temporary / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True))
    if target.exists():
        # What a killed build left, or what is damaged.
        shutil.rmtree(target)
    os.replace(temporary, target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())


def move_pointer(layout: Layout, pointer: Mapping[str, Any]) -> None:
    """Replace the pointer in one step. Hold `pointer_lock` from reading it to here."""
    temporary = layout.pointer.with_suffix(f".{uuid.uuid4().hex}.tmp")
    _write_synced(temporary, json.dumps(pointer, sort_keys=True))
    os.replace(temporary, layout.pointer)


def _beyond(layout: Layout, kept: set[str], keep: int) -> list[Path]:
    """Return artifacts beyond the newest `keep`, those in `kept` aside."""
    others = [
        path for path in layout.artifacts.iterdir() if path.is_dir() and path.name not in kept
    ]
    others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return others[max(0, keep - 1) :]


def _drop_old(layout: Layout, kept: set[str], keep: int) -> None:
    """Remove artifacts beyond the newest `keep`, and every staging directory but the newest."""
    for path in _beyond(layout, kept, keep):
        shutil.rmtree(path, ignore_errors=True)
    stagings = sorted(
        (layout.derived / "staging").iterdir(),
        key=lambda path: path.stat().st_mtime_ns,
        reverse=True,
    )
    for path in stagings[1:]:
        shutil.rmtree(path, ignore_errors=True)


def old_artifacts(layout: Layout, keep: int) -> int:
    """Return how many artifacts `prune_artifacts` would remove, temporary ones aside."""
    pointer = read_pointer(layout)
    if pointer is None or not layout.artifacts.is_dir():
        return 0
    beyond = _beyond(layout, {pointer["artifact"]}, keep)
    return sum(1 for path in beyond if not path.name.startswith("."))


def prune_artifacts(layout: Layout, keep: int) -> int:
    """Remove published artifacts beyond the newest `keep`, never the current one; return how many.

    Readers keep the files they have opened. Call it holding the build lock.
    """
    pointer = read_pointer(layout)
    if pointer is None or not layout.artifacts.is_dir():
        return 0
    before = sum(1 for path in layout.artifacts.iterdir() if not path.name.startswith("."))
    (layout.derived / "staging").mkdir(exist_ok=True)
    _drop_old(layout, {pointer["artifact"]}, keep)
    return before - sum(1 for path in layout.artifacts.iterdir() if not path.name.startswith("."))


def read_pointer(layout: Layout) -> dict[str, Any] | None:
    """Return what the pointer names; None when nothing has been published."""
    try:
        pointer: dict[str, Any] = json.loads(layout.pointer.read_text(encoding="utf-8"))
        Generation(**pointer["generation"])
        str(pointer["artifact"] + pointer["content_hash"])
        if "pin" in pointer:
            str(pointer["pin"]["since"] + pointer["pin"]["reason"])
            if (latest := pointer["pin"].get("latest")) is not None:
                Generation(**latest["generation"])
                str(latest["artifact"] + latest["content_hash"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, LookupError) as cause:
        raise Corrupt(
            "the index pointer is not readable",
            where=layout.pointer.name,
            fix="delete .ctx/derived and run `ctx build`",
        ) from cause
    except OSError as cause:
        raise Unavailable(
            f"cannot read the index pointer ({type(cause).__name__})",
            where=".ctx/derived",
            fix="check that it is a folder",
        ) from cause
    return pointer
