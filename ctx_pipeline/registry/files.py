"""The files that are to be published: where each lies in the registry, and how all are put there or
none.
"""

from __future__ import annotations

import glob
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.errors import ConfigError, InvalidRequest, Unavailable
from ctx_pipeline.sources.files import FoundFile, HeldContent, locate, shown_path
from ctx_pipeline.sources.semantic.semantic_registry import REGISTRY_SUFFIXES

STAGED_SUFFIX = ".ctx-publish"
"""Of the hidden file that a published file is before it takes its place; what a killed process left
is overwritten."""


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """A file of definitions that does not lie on disk, or is to have another
    name in the registry.
    """

    name: str | None
    """Its name relative to the registry's folder; None where `path` says it."""
    path: Path | None = None
    content: bytes | None = None
    """None: what `path` holds."""


@dataclass(frozen=True, slots=True)
class Target:
    """One file and its place in the registry."""

    path: Path
    name: str
    """Relative to the registry's folder."""
    shown: str
    """Relative to the project."""
    content: bytes
    before: bytes | None
    """What lies there now; None: nothing."""

    @property
    def status(self) -> str:
        """What publishing does to the file itself."""
        if self.before is None:
            return "created"
        return "unchanged" if self.before == self.content else "replaced"

    def found(self) -> FoundFile:
        """Return the file as the registry's reader takes it, with its new content."""
        return FoundFile(
            path=self.path,
            name=self.name,
            shown=self.shown,
            size_bytes=len(self.content),
            content=HeldContent(self.content),
        )


def find_targets(
    source: SourceConfig, home: Path, files: Sequence[Path | str | DefinitionFile]
) -> tuple[Target, ...]:
    """Return each file with its place in the registry.

    Raises:
        InvalidRequest: a file cannot be read (`unreadable_file`), has no place in the registry
            (`not_in_registry`) or the place of another one (`same_target`).
        ConfigError: the registry is not on this disk (`registry_not_local`).
    """
    if not source.path or "://" in source.path:
        raise ConfigError(
            "definitions are published into files, and this registry has none on this disk",
            where=f"ctx.toml, source {source.name!r}",
            fix="publish where its files are kept",
            code="registry_not_local",
        )
    places = {found.path: found for found in locate(source.path, home).files}
    targets: dict[Path, Target] = {}
    for given in files:
        file = given if isinstance(given, DefinitionFile) else DefinitionFile(None, Path(given))
        target = _target(file, source, home, places)
        if target.path in targets:
            message = "two of the files have the same place in the registry"
            raise InvalidRequest(
                message, where=target.shown, fix="publish one of them", code="same_target"
            )
        targets[target.path] = target
    return tuple(targets.values())


def _target(
    file: DefinitionFile, source: SourceConfig, home: Path, places: dict[Path, FoundFile]
) -> Target:
    path, name = _place(file, source, home, places)
    content = file.content if file.content is not None else _read(file.path, source.max_file_bytes)
    before = _read(path, None) if path.exists() else None
    return Target(path, name, shown_path(path, home), content, before)


def _read(path: Path | None, limit_bytes: int | None) -> bytes:
    try:
        if path is None:
            raise FileNotFoundError
        with path.open("rb") as stream:
            # One byte more than is allowed: the reader of the registry refuses the file by its
            # size.
            return stream.read(-1 if limit_bytes is None else limit_bytes + 1)
    except OSError:
        raise InvalidRequest(
            "the file cannot be read",
            where=str(path),
            fix="check its name and its permissions; `-` reads standard input",
            code="unreadable_file",
        ) from None


def _place(
    file: DefinitionFile, source: SourceConfig, home: Path, places: dict[Path, FoundFile]
) -> tuple[Path, str]:
    """Return where a file belongs, and its name there."""
    assert source.path is not None
    whole = Path(os.path.normpath(home / source.path))
    if whole.is_file() or (
        not whole.exists() and whole.suffix.lower() in REGISTRY_SUFFIXES and not _is_glob(whole)
    ):
        return whole, whole.name
    base = _fixed_part(whole)
    name = file.name
    if name is None:
        name = _name_in(file.path, base, {found.name for found in places.values()})
    path = Path(os.path.normpath(base / name))
    known = next((found for place, found in places.items() if place == path), None)
    if known is not None and not known.path.is_symlink():
        return known.path, known.name
    if not _may_be_new(name, path, base, whole):
        raise InvalidRequest(
            "the registry would not read a file of this name",
            where=f"{source.path}: {name}",
            fix=(
                "name a file, not a link, that ends in .yaml, .yml or "
                ".json, without hidden folders and .."
            ),
            code="not_in_registry",
        )
    return path, name


def _is_glob(path: Path) -> bool:
    return any(glob.has_magic(part) for part in path.parts)


def _fixed_part(path: Path) -> Path:
    parts: list[str] = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)


def _name_in(path: Path | None, base: Path, names: set[str]) -> str:
    """Return a file's name in the registry: where it lies there, else the longest end of its path
    that is known.
    """
    if path is None:
        raise InvalidRequest(
            "what comes from standard input has no name",
            where="-",
            fix="give one with --as",
            code="unnamed_file",
        )
    absolute = Path(os.path.normpath(Path.cwd() / path))
    for folder in (base, base.resolve()):
        if absolute.is_relative_to(folder):
            return absolute.relative_to(folder).as_posix()
    parts = absolute.parts[1:]
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if end in names), absolute.name)


def _may_be_new(name: str, path: Path, base: Path, whole: Path) -> bool:
    """Say whether the registry would read a new file of this name."""
    pure = PurePosixPath(name)
    plain = (
        not pure.is_absolute()
        and "\0" not in name
        and not any(part.startswith(".") for part in pure.parts)
    )
    # What a link means is read under its own name as well: that is the file to publish.
    if not plain or path.is_symlink() or path.suffix.lower() not in REGISTRY_SUFFIXES:
        return False
    if not path.resolve().is_relative_to(base.resolve()) or (path.exists() and not path.is_file()):
        return False
    return not _is_glob(whole) or _matches(name, whole.relative_to(base).as_posix())


def _matches(name: str, pattern: str) -> bool:
    """Say whether a glob finds a file of this name: tried, because its rules are those of `glob`
    alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return name in {
            Path(found).as_posix() for found in glob.glob(pattern, root_dir=folder, recursive=True)
        }


def write_targets(targets: Sequence[Target]) -> None:
    """Put every file that differs in its place, or none of them; each is replaced whole and synced.

    Raises:
        Unavailable: the registry cannot be written (`registry_readonly`); its files are as they
            were.
    """
    changed = [target for target in targets if target.status != "unchanged"]
    done: list[Target] = []
    try:
        for target in changed:
            _stage(target.path, target.content)
        for target in changed:
            os.replace(_staged(target.path), target.path)
            done.append(target)
        for folder in dict.fromkeys(target.path.parent for target in changed):
            _sync_folder(folder)
    except OSError as cause:
        for target in reversed(done):
            with suppress(OSError):
                _put_back(target)
        for target in changed:
            with suppress(OSError):
                _staged(target.path).unlink(missing_ok=True)
        raise Unavailable(
            "the registry's files cannot be written",
            where=changed[len(done)].shown if len(done) < len(changed) else "registry",
            fix="check permissions and free space; nothing was published",
            code="registry_readonly",
        ) from cause


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}{STAGED_SUFFIX}")


def _stage(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _staged(path).open("wb") as stream:
        stream.write(content)
        stream.flush()
        if path.exists():
            os.chmod(stream.fileno(), stat.S_IMODE(path.stat().st_mode))
        os.fsync(stream.fileno())


def _put_back(target: Target) -> None:
    if target.before is None:
        target.path.unlink(missing_ok=True)
    else:
        _stage(target.path, target.before)
        os.replace(_staged(target.path), target.path)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable where folders can be synced."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
