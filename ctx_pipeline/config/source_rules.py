"""What a `[[sources]]` entry may not say, found in the settings alone: no file, network or database
is asked.

The adapters ask the same rules, so that a source that was not made from `ctx.toml` is refused
alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from ctx_pipeline.config.layers import Layer, Problem, dotted
from ctx_pipeline.contracts import SourceKind

REMOTE_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs",
    "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure",
}  # fmt: skip
"""Protocol -> the optional dependencies that speak it."""
PROTOCOLS = tuple(sorted({*REMOTE_EXTRAS, "memory", "zip", "tar", "file", "local"}))
ON_DISK = frozenset(("file", "local"))

POSTGRES = "postgresql"
SQLITE = "sqlite"
DUCKDB = "duckdb"
_DATABASES = {"postgresql": POSTGRES, "postgres": POSTGRES, "sqlite": SQLITE, "duckdb": DUCKDB}
DATABASE_FIX = (
    "set url to postgresql://user@host/database, sqlite:///file.db or duckdb:///file.duckdb"
)

ADDRESSED = frozenset((SourceKind.SQL, SourceKind.WEB))
"""Kinds that read a `url`."""
KEYS_OF_KINDS: Mapping[str, frozenset[SourceKind]] = {
    "url": ADDRESSED,
    "path": frozenset(SourceKind) - {SourceKind.SQL},
    "max_file_bytes": frozenset(SourceKind) - {SourceKind.SQL},
    "phases": frozenset((SourceKind.TOOLS,)),
    "allow_private": frozenset((SourceKind.WEB,)),
}
"""Keys that not every kind reads, and the kinds that do."""
NOT_READ = frozenset((SourceKind.SESSION_HISTORY,))
"""Kinds that have a name and no adapter."""
READ = tuple(sorted(kind.value for kind in SourceKind if kind not in NOT_READ))

_ENGINE_READS_FILES = frozenset((SourceKind.SCHEMA_METADATA,))
_CONTAINER_AT_ACCOUNT = frozenset(("abfs", "abfss", "az", "adl"))
_SIGNED = re.compile(
    r"[?&](?:sig|sv|se|sp|X-Amz-[\w-]+|AWSAccessKeyId|Signature|X-Goog-[\w-]+|token)=",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one key of a source; it never repeats an address."""

    key: str
    message: str
    fix: str
    code: str = "invalid_value"


def _entries(layer: Layer, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the tables of an array as they were written, whatever else is wrong with them."""
    values = layer.values.get(table)
    if isinstance(values, (list, tuple)):
        for index, entry in enumerate(cast("list[Any]", values)):
            if isinstance(entry, dict):
                yield index, cast("dict[str, Any]", entry)


def source_problems(layer: Layer) -> list[Problem]:
    """Return what is wrong with every source, before anything of any of them is read."""
    found: list[Problem] = []
    for index, raw in _entries(layer, "sources"):
        for fault in source_faults(raw):
            path = ("sources", index, fault.key)
            message = f"{dotted(path, layer.values)!r}: {fault.message}"
            found.append(Problem(layer.origin(path) or "ctx.toml", message, fault.fix, fault.code))
    return found


def duplicates(layer: Layer) -> list[Problem]:
    """Return sources and models of one name, and sources that cannot be told apart."""
    found: list[Problem] = []
    for table, key, told_apart in (("sources", "name", source_place), ("models", "model_id", str)):
        names = [
            (index, name)
            for index, raw in _entries(layer, table)
            if isinstance(name := raw.get(key), str)
        ]
        found.extend(_taken(table, key, names, layer, told_apart))
    return found


def source_place(name: str) -> str:
    """Return what the asset graph and the folders of a project know a source by.

    There `-` is `_`, and on some disks upper case is lower case.
    """
    return name.replace("-", "_").casefold()


def _taken(
    table: str,
    key: str,
    names: Iterable[tuple[int, str]],
    layer: Layer,
    told_apart: Callable[[str], str],
) -> Iterator[Problem]:
    """Yield a problem for each table whose name an earlier one has, or cannot be told from it."""
    seen: dict[str, tuple[int, str]] = {}
    for index, name in names:
        first, earlier = seen.setdefault(told_apart(name), (index, name))
        if first == index:
            continue
        taken = (
            "is taken"
            if earlier == name
            else f"cannot be told from {earlier!r} in the asset graph or in folders"
        )
        yield Problem(
            layer.origin((table, index, key)) or table,
            f"{key} {name!r} {taken}",
            f"rename it; the other is at {layer.origin((table, first, key))}",
            f"duplicate_{table.removesuffix('s')}",
        )


def source_faults(raw: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with a source as it was written, beside what its types say."""
    try:
        kind = SourceKind(raw.get("kind"))
    except ValueError:
        return
    if kind in NOT_READ:
        yield unread_kind(kind)
        return
    for key, kinds in KEYS_OF_KINDS.items():
        if key in raw and kind not in kinds:
            yield _wrong_key(kind, key, kinds)
    yield from _place(kind, raw)


def unread_kind(kind: SourceKind) -> Fault:
    """Return what is wrong with a kind that no adapter reads."""
    fix = f"use one of the supported kinds: {', '.join(READ)}"
    return Fault(
        "kind", f"no adapter reads sources of kind {kind.value!r}", fix, "unsupported_source_kind"
    )


def _wrong_key(kind: SourceKind, key: str, kinds: frozenset[SourceKind]) -> Fault:
    if key == "path":
        return Fault(
            key, "a source of kind 'sql' has no path: its database is named by url", DATABASE_FIX
        )
    if key == "url":
        fix = "remove it and set path to a file, a folder or a glob, or use kind 'web' or 'sql'"
        return Fault(key, f"a source of kind {kind.value!r} reads no url", fix)
    if len(kinds) == 1:
        (only,) = kinds
        return Fault(
            key,
            f"belongs to sources of kind {only.value!r}",
            f"remove it, or use kind {only.value!r}",
        )
    return Fault(key, f"a source of kind {kind.value!r} does not read it", "remove it")


def _place(kind: SourceKind, raw: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with where a source lies."""
    path, url = raw.get("path"), raw.get("url")
    if kind is SourceKind.SQL:
        if url is None:
            yield Fault("url", "the source has no url", DATABASE_FIX)
        elif isinstance(url, str) and url and (fault := database_fault(url)) is not None:
            yield fault
        return
    if (
        kind is SourceKind.WEB
        and isinstance(url, str)
        and url
        and (fault := _page_fault(url)) is not None
    ):
        yield fault
    if path is None and url is None:
        fix = "set path to a file, a folder or a glob" + (
            ", or url to a page" if kind is SourceKind.WEB else ""
        )
        yield Fault("path", "the source has no path", fix)
    elif isinstance(path, str) and path and (fault := path_fault(kind, path)) is not None:
        yield fault


def path_fault(kind: SourceKind, path: str) -> Fault | None:
    """Return what is wrong with a path, be it of this disk, of an object store or in an archive."""
    if kind is SourceKind.GIT and "://" in path:
        fix = "set path to a work tree or to a bare repository; clone a remote one first"
        return Fault("path", "a git source reads a local repository", fix)
    if "://" not in path:
        return None
    links = path.split("::")
    for link in links:
        protocol = protocol_of(link)
        # Without a protocol the last link of a chain is a file on disk.
        if protocol not in PROTOCOLS and (protocol or link != links[-1] or len(links) == 1):
            fix = f"use one of: {', '.join(PROTOCOLS)}; or copy the files to a folder"
            return Fault(
                "path",
                f"addresses of protocol {protocol!r} are not read",
                fix,
                "unsupported_protocol",
            )
        if protocol and _has_credentials(link, protocol):
            fix = "remove them from the path and set them in the environment of the build"
            return Fault(
                "path", "the path carries credentials or options", fix, "credentials_in_path"
            )
    if kind in _ENGINE_READS_FILES and protocol_of(links[0]) not in ON_DISK:
        fix = "copy the files to a folder, or describe a database by kind = 'sql'"
        return Fault(
            "path",
            f"a source of kind {kind.value!r} reads files on disk",
            fix,
            "unsupported_protocol",
        )
    return None


def protocol_of(link: str) -> str:
    """Return the protocol of one link of an address, in lower case; empty for a plain path."""
    head, separator, _ = link.partition("://")
    return head.lower() if separator else ""


def _has_credentials(link: str, protocol: str) -> bool:
    user, at, _ = link.partition("://")[2].partition("/")[0].rpartition("@")
    # abfs://container@account.host is an address, not a user.
    named = bool(at) and (protocol not in _CONTAINER_AT_ACCOUNT or ":" in user)
    return named or _SIGNED.search(link) is not None


def database_kind(url: str) -> str | None:
    """Return which database a URL names; None for one that is not read, or for
    no address at all.
    """
    name, found, _ = url.partition("://")
    return _DATABASES.get(name.partition("+")[0].lower()) if found else None


def database_fault(url: str) -> Fault | None:
    """Return what is wrong with the address of a database."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(url)
    except (ArgumentError, ValueError):
        return Fault("url", "the url is not a database address", DATABASE_FIX)
    if database_kind(url) is None:
        return Fault(
            "url", "databases of this kind are not read", DATABASE_FIX, "unsupported_database"
        )
    return None


def _page_fault(url: str) -> Fault | None:
    try:
        parts = urlsplit(url)
        plain = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
    except ValueError:
        plain = False
        parts = None
    if not plain:
        return Fault("url", "the url is not a web address", "write it as https://host/path")
    if parts is not None and (parts.username is not None or parts.password is not None):
        return Fault(
            "url",
            "the url has a user name or password",
            "take it out; pages are read without a login",
        )
    return None
