"""Files of object stores and archives, found and read through fsspec in the same shape as files on
disk.

`path = "s3://bucket/folder"`, a glob (`gs://bucket/**/*.md`) or a file inside an archive
(`zip://docs::archive.zip`). Credentials come from the environment alone, as each store's own tools
read them; an address that carries some is refused. Nothing is written, and a file is read only when
its adapter asks for it.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import unquote

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.config.source_rules import ON_DISK, REMOTE_EXTRAS, path_fault, protocol_of
from ctx_pipeline.contracts import FileCode, FileError, FileStatus, SourceFile
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources.files import FoundFile, Located, locate
from ctx_pipeline.text import repair, spelled

MAX_FILES = 20_000
MAX_DEPTH = 32
MAX_LISTED = 200_000
"""Entries looked at, folders and what is passed over included."""

PACKAGES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}
_ARCHIVES = frozenset(("zip", "tar"))


class _System(Protocol):
    """What is used of an fsspec file system, which has no types of its own."""

    def open(self, path: str, mode: str) -> BinaryIO: ...
    def info(self, path: str) -> dict[str, Any]: ...
    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]: ...
    def glob(self, path: str, *, maxdepth: int, detail: bool) -> dict[str, dict[str, Any]]: ...


class _Unreachable(Exception):
    """The store cannot be asked; the message names no address."""


@dataclass(frozen=True, slots=True)
class _RemoteContent:
    system: _System
    path: str

    def read(self, limit_bytes: int) -> bytes:
        try:
            with self.system.open(self.path, "rb") as stream:
                return stream.read(limit_bytes)
        except (
            Exception
        ) as error:  # each store has errors of its own; none of their texts may be shown
            raise OSError(f"cannot be read ({type(error).__name__})") from None


def locate_remote(source: SourceConfig, home: Path) -> Located:
    """Find the files that the source's path, an address with `://`, names, in sorted order.

    Hidden files and folders are not looked at. What is beyond the limits is an error; the files
    before it are read.

    Raises:
        ConfigError: the address carries credentials, its protocol is not supported, or the source's
            kind needs files on disk.
    """
    address = repair(source.path or "")
    links = [protocol_of(link) for link in address.split("::")]
    _check(source, address)
    if links[0] in ON_DISK:
        return locate(unquote(address.partition("://")[2]), home)
    try:
        system, root = _open(address, home, links)
        return _Listing(system, address, root).located()
    except _Unreachable as problem:
        return Located(
            errors=(FileError(path=address, code=FileCode.UNREADABLE, message=problem.args[0]),)
        )


def list_remote(source: SourceConfig, home: Path) -> dict[str, dict[str, Any]] | list[Path] | None:
    """Return what the store's listing says of each file of the source, or the files where they lie
    on this disk.

    None when the store cannot be asked now. No file is opened.

    Raises:
        ConfigError: as for `locate_remote`.
    """
    address = repair(source.path or "")
    links = [protocol_of(link) for link in address.split("::")]
    _check(source, address)
    if links[0] in ON_DISK:
        return [file.path for file in locate(unquote(address.partition("://")[2]), home).files]
    if len(links) > 1 and links[-1] in ("", *ON_DISK):
        # What is in an archive changes with the archive.
        return [Path(normpath(home / unquote(address.rsplit("::", 1)[1].rpartition("://")[2])))]
    try:
        system, root = _open(address, home, links)
        listing = _Listing(system, address, root)
        listing.located()
        return listing.facts
    except _Unreachable:
        return None


def _check(source: SourceConfig, address: str) -> None:
    fault = path_fault(source.kind, address)
    if fault is not None:
        where = f"ctx.toml, source {source.name!r}"
        raise ConfigError(fault.message, where=where, fix=fault.fix, code=fault.code)


def _open(address: str, home: Path, links: list[str]) -> tuple[_System, str]:
    """Return the file system of an address and the path in it."""
    core = import_module("fsspec.core")
    for protocol in filter(None, links):
        try:
            core.get_filesystem_class(protocol)
        except (ImportError, ValueError):
            extra = REMOTE_EXTRAS.get(protocol, protocol)
            package = PACKAGES.get(extra, protocol)
            raise _Unreachable(
                f"{protocol}:// needs the package {package}: pip install 'ctx-pipeline[{extra}]'"
            ) from None
    chain = address.split("::")
    if len(chain) > 1 and not links[-1]:
        chain[-1] = f"file://{normpath(home / chain[-1])}"
    options: dict[str, Any] = {} if links[0] in _ARCHIVES else {"use_listings_cache": False}
    try:
        return cast("tuple[_System, str]", core.url_to_fs("::".join(chain), **options))
    except Exception as error:  # each store has errors of its own; none of their texts may be shown
        raise _Unreachable(f"cannot be opened ({type(error).__name__}): {_ADVICE}") from None


_ADVICE = "check the path, the network and the credentials in the environment"


@dataclass(slots=True)
class _Listing:
    """Collects the files of one address."""

    system: _System
    shown: str
    root: str
    files: list[FoundFile] = field(default_factory=list[FoundFile])
    skipped: list[SourceFile] = field(default_factory=list[SourceFile])
    errors: list[FileError] = field(default_factory=list[FileError])
    facts: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """What the store says of each file, by its name."""
    looked_at: int = 0
    full: bool = False

    def located(self) -> Located:
        root = self.root.rstrip("/")
        if glob.has_magic(root):
            fixed = _fixed_part(root)
            self._matches(root, fixed)
        else:
            kind = self._kind(root)
            if kind is None:
                return self._missing()
            if kind == "file":
                self._add(root, _parent(root), self._ask(self.system.info, root))
            else:
                self._walk(root)
        if not self.files and not self.skipped and not self.errors and glob.has_magic(root):
            return self._missing()
        if self.full:
            message = (
                f"has more than {MAX_FILES:,} files or is too deep; what came "
                "first was read: name a folder in it"
            )
            self.errors.append(FileError(path=self.shown, code=FileCode.TOO_LARGE, message=message))
        return Located(tuple(self.files), tuple(self.skipped), tuple(self.errors))

    def _missing(self) -> Located:
        message = "no such file: check the source's path"
        return Located(errors=(FileError(path=self.shown, code=FileCode.MISSING, message=message),))

    def _ask(self, what: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return what(*arguments, **options)
        except FileNotFoundError:
            return None
        except (
            Exception
        ) as error:  # each store has errors of its own; none of their texts may be shown
            raise _Unreachable(f"cannot be listed ({type(error).__name__}): {_ADVICE}") from None

    def _kind(self, path: str) -> str | None:
        if not path:
            return "directory"
        info = self._ask(self.system.info, path)
        return None if info is None else str(info.get("type"))

    def _matches(self, pattern: str, fixed: str) -> None:
        found: dict[str, dict[str, Any]] = (
            self._ask(self.system.glob, pattern, maxdepth=MAX_DEPTH, detail=True) or {}
        )
        for path, info in sorted(found.items()):
            if info.get("type") == "file" and not self._take(path, fixed, info):
                return

    def _walk(self, root: str) -> None:
        pending = [root]
        while pending and not self.full:
            folder = pending.pop()
            entries = self._entries(folder)
            folders: list[str] = []
            for path, info in entries:
                if info.get("type") == "directory":
                    if _relative(path, root).count("/") + 1 >= MAX_DEPTH:
                        self.full = True
                    elif not _is_hidden(PurePosixPath(path).name):
                        folders.append(path)
                elif not self._take(path, root, info):
                    return
            pending.extend(reversed(folders))

    def _entries(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        listed = cast("list[dict[str, Any]]", self._ask(self.system.ls, folder, detail=True) or [])
        pairs = [(str(info["name"]).rstrip("/"), info) for info in listed]
        # Some stores list a folder as an entry of itself.
        return iter(
            sorted(
                (pair for pair in pairs if pair[0] != folder.rstrip("/")), key=lambda pair: pair[0]
            )
        )

    def _take(self, path: str, base: str, info: dict[str, Any]) -> bool:
        """Keep a file; say whether there is room for another."""
        self.looked_at += 1
        if len(self.files) >= MAX_FILES or self.looked_at > MAX_LISTED:
            self.full = True
            return False
        if not any(_is_hidden(part) for part in _relative(path, base).split("/")):
            self._add(path, base, info)
        return True

    def _add(self, path: str, base: str, info: dict[str, Any] | None) -> None:
        name = spelled(repair(_relative(path, base)))
        place = _fixed_part(self.shown) if glob.has_magic(self.shown) else self.shown.rstrip("/")
        shown = self.shown if path == self.root.rstrip("/") else _shown(place, name)
        if ".." in PurePosixPath(name).parts or name.startswith("/") or not name:
            message = "its name leads out of the folder: rename it"
            self.errors.append(FileError(path=shown, code=FileCode.OUTSIDE_ROOT, message=message))
            failed = SourceFile(
                path=shown, status=FileStatus.FAILED, reason=FileCode.OUTSIDE_ROOT.value
            )
            self.skipped.append(failed)
            return
        self.facts[name] = info or {}
        size = (info or {}).get("size")
        self.files.append(
            FoundFile(
                path=Path(name.replace("\0", "")),
                name=name,
                shown=shown,
                size_bytes=size if isinstance(size, int) and size > 0 else 0,
                content=_RemoteContent(self.system, path),
            )
        )


def _shown(place: str, name: str) -> str:
    """Return an address with a file's name in it; in a chain the name belongs to the first link."""
    first, chain, rest = place.partition("::")
    joined = f"{first}{name}" if first.endswith("/") else f"{first}/{name}"
    return f"{joined}{chain}{rest}"


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part not in (".", "..")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _relative(path: str, base: str) -> str:
    return path.removeprefix(base).lstrip("/") if path.startswith(base) else path


def _fixed_part(pattern: str) -> str:
    first, chain, rest = pattern.partition("::")
    fixed: list[str] = []
    for part in first.split("/"):
        if glob.has_magic(part):
            break
        fixed.append(part)
    return "/".join(fixed) + chain + rest
