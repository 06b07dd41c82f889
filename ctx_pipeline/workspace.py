"""A project, opened: what building it and serving it both stand on.

What is retired, revoked, quarantined or forgotten stands in the ledger alone. A store beside an
empty ledger would be served whole again. So a mark in `.ctx/state` and the pointer of the artifact
say which ledger they belong to, and how far it had come; one that is another, or less far, opens
nothing.
"""

from __future__ import annotations

import json
import os
import uuid
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from ctx_pipeline.config.settings import LoadedConfig, SourceConfig, load_config
from ctx_pipeline.errors import Corrupt, CtxError, NotFound
from ctx_pipeline.index.artifact import Layout, read_pointer
from ctx_pipeline.machine_faults import typed_system_errors
from ctx_pipeline.times import utc_now

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import LedgerSection
    from ctx_pipeline.index.embedder import Embedder
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger

MARK = "record.json"
"""In `.ctx/state`: which ledger this record belongs to, and up to which entry of the overlay it is
known to go.
"""

NOT_THERE = "there is none"


class Workspace:
    """One project's folder, settings, store, ledger, embedder and clock. Cheap to open: parts open
    when first used.

    `embedder` takes the place of the one that `ctx.toml` names. Close it, or use `with`, to release
    the ledger.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        clock: Callable[[], datetime] = utc_now,
        embedder: Embedder | None = None,
    ) -> None:
        self.loaded = loaded
        self.config = loaded.config
        self.home: Path = loaded.home
        self.layout = Layout(self.home)
        self.clock = clock
        self._embedder = embedder

    @classmethod
    def open(
        cls,
        home: str | Path,
        *,
        overrides: Mapping[str, object] | None = None,
        clock: Callable[[], datetime] = utc_now,
        embedder: Embedder | None = None,
    ) -> Workspace:
        """Open the project at `home`; `overrides` go over the keys of its `ctx.toml`.

        Raises:
            ConfigError: there is no `ctx.toml`, or it is wrong.
        """
        loaded = load_config(Path(home).resolve(), overrides=overrides)
        return cls(loaded, clock=clock, embedder=embedder)

    @cached_property
    def ledger(self) -> Ledger:
        """The record of snapshots, lifecycle and overlay; opened as `open_ledger` says."""
        return open_ledger(self.home, self.config.ledger)

    @cached_property
    def store(self) -> Store:
        """The item store."""
        from ctx_pipeline.index.store import Store

        return Store.of_project(self.home)

    @cached_property
    def embedder(self) -> Embedder:
        """What documents and queries are embedded with."""
        from ctx_pipeline.index.embedder import load_embedder

        return self._embedder or load_embedder(self.loaded.embedder_model)

    def source(self, name: str) -> SourceConfig:
        """Return a configured source.

        Raises:
            NotFound: `ctx.toml` has none of that name.
        """
        for source in self.config.sources:
            if source.name == name:
                return source
        raise NotFound(
            f"no source {name!r}", where="ctx.toml", fix="add a [[sources]] entry with this name"
        )

    def close(self) -> None:
        """Commit what is queued and release the ledger. Idempotent."""
        if "ledger" in self.__dict__:
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def state_folder(home: Path) -> Path:
    """Return where a project's durable record lies."""
    return home / ".ctx" / "state"


def read_ledger(home: Path, settings: LedgerSection) -> Ledger | None:
    """Open a project's ledger for reading only; None for a new project that has none yet.

    Raises:
        Unavailable: the database that the settings name has no ledger in it (`no_ledger`), or an
        older one. Corrupt: as `open_ledger`.
    """
    from ctx_pipeline.ledger import Ledger

    known = known_record(home)
    path = state_folder(home) / "ledger.db"
    if settings.url is not None:
        ledger = Ledger.open(settings.url.get_secret_value(), readonly=True)
    elif path.exists():
        ledger = Ledger.open(path, readonly=True)
    else:
        if known is not None:
            raise _missing(NOT_THERE, home)
        return None
    try:
        check_ledger(home, ledger, known)
    except BaseException:
        ledger.close()
        raise
    return ledger


def open_ledger(home: Path, settings: LedgerSection) -> Ledger:
    """Open a project's ledger; a new project gets a new one.

    Where its folder cannot be written it is opened for reading alone: a project serves from there.

    Raises:
        Unavailable: it is not there and cannot be made (`cannot_write`), or it cannot be read.
        Corrupt: store or artifacts belong to a ledger that is not there (`ledger_missing`), or had
        come further than it
            has (`ledger_behind`).
    """
    from ctx_pipeline.ledger import Ledger
    from ctx_pipeline.ledger.database import is_writable

    known = known_record(home)
    if settings.url is not None:
        url = settings.url.get_secret_value()
        ledger = Ledger.open(url, readonly=not is_writable(url))
    else:
        path = state_folder(home) / "ledger.db"
        if known is not None and not path.exists():
            raise _missing(NOT_THERE, home)
        with typed_system_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        ledger = Ledger.open(path, readonly=not is_writable(path))
    try:
        check_ledger(home, ledger, known)
        mark = partial(_mark, home, weakref.proxy(ledger))
        mark()
        ledger.after_overlay = mark
    except BaseException:
        ledger.close()
        raise
    return ledger


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """What store and artifact of a project say of the ledger that they belong to."""

    ledgers: frozenset[str]
    """Its number; none where it was written by a release that noted none."""
    overlay_sequence: int
    """The ledger goes at least up to this entry of the overlay ..."""
    store_sequence: int
    """... and has given away at least this number."""
    has_items: bool


def known_record(home: Path) -> KnownRecord | None:
    """Return what a project's store and artifact know of its ledger; None where it has neither."""
    try:
        pointer = read_pointer(Layout(home))
    except CtxError:
        # Whoever reads the index says what is wrong with its pointer.
        pointer = None
    has_store = any((state_folder(home) / "store").glob("*.lance"))
    if pointer is None and not has_store:
        return None
    mark = _read_mark(home)
    built = [] if pointer is None else [pointer["generation"]]
    if pointer is not None and (latest := pointer.get("pin", {}).get("latest")) is not None:
        built.append(latest["generation"])
    ledgers = {mark.get("ledger"), *(generation.get("ledger") for generation in built)} - {None, ""}
    overlays = [
        mark.get("overlay_sequence"),
        *(generation["overlay_sequence"] for generation in built),
    ]
    sequence = max((int(generation["store_sequence"]) for generation in built), default=0)
    return KnownRecord(
        ledgers=frozenset(str(name) for name in ledgers),
        overlay_sequence=max((number for number in overlays if isinstance(number, int)), default=0),
        store_sequence=sequence,
        has_items=has_store or sequence > 0,
    )


def check_ledger(home: Path, ledger: Ledger, known: KnownRecord | None) -> None:
    """Refuse a ledger that knows nothing, or too little, of what is stored.

    Raises:
        Corrupt: `ledger_missing` or `ledger_behind`.
    """
    if known is None:
        return
    given, said = ledger.last_number(), ledger.overlay_sequence()
    if known.ledgers - {ledger.identity()}:
        raise _missing("this is another one", home)
    if known.has_items and not given:
        raise _missing("this one is empty", home)
    if said < known.overlay_sequence:
        raise _behind(f"it ends at {said}, the record knows {known.overlay_sequence}")
    if given < known.store_sequence:
        raise _behind(
            f"it has given {given} numbers, the index was built up to {known.store_sequence}"
        )


def _missing(why: str, home: Path) -> Corrupt:
    return Corrupt(
        f"store and index belong to a ledger that is not here: {why}",
        where=str(state_folder(home)),
        fix="restore .ctx/state, or the ledger's database, from a backup as a "
        "whole. Without a backup move .ctx/state "
        "and .ctx/derived away and run `ctx build`: sources are read anew, and what people had "
        "retired, revoked or "
        "quarantined they have to take out again",
        code="ledger_missing",
    )


def _behind(why: str) -> Corrupt:
    return Corrupt(
        f"the ledger is older than the store and the index: {why}",
        where=".ctx/state",
        fix="restore .ctx/state from a backup as a whole, and delete .ctx/derived with it",
        code="ledger_behind",
    )


def _read_mark(home: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads((state_folder(home) / MARK).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as cause:
        raise Corrupt(
            "what says which ledger this record belongs to cannot be read",
            where=f".ctx/state/{MARK}",
            fix="restore .ctx/state from a backup as a whole",
        ) from cause
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _mark(home: Path, ledger: Ledger) -> None:
    """Note which ledger this record belongs to. On a disk that takes no writes the artifact's
    pointer says it.
    """
    wanted: Mapping[str, object] = {
        "ledger": ledger.identity(),
        "overlay_sequence": ledger.overlay_sequence(),
    }
    path = state_folder(home) / MARK
    with suppress(Corrupt):
        if _read_mark(home) == wanted:
            return
    fresh = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(wanted, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
