"""Finding and reading the files of a source: sorted, contained in their folder, bounded, decoded as
UTF-8.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ctx_pipeline.contracts import FileCode, FileError, FileStatus, SourceFile
from ctx_pipeline.text import repair, spelled

MAX_NUL_SHARE = 0.1
"""Above this share of NUL bytes a file is binary, or UTF-16 without a mark, even where it decodes
as UTF-8."""


class Content(Protocol):
    """The bytes of a file that does not lie on this machine's disk."""

    def read(self, limit_bytes: int) -> bytes:
        """Return the first `limit_bytes` bytes, or all if there are fewer.

        Raises:
            OSError: they cannot be read now.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldContent:
    """The bytes of a file that have been read already."""

    content: bytes

    def read(self, limit_bytes: int) -> bytes:
        """Return the first `limit_bytes` bytes, or all if there are fewer."""
        return self.content[:limit_bytes]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file of a source."""

    path: Path
    """Where it is on disk; only a name where `content` is set."""
    name: str
    """Path relative to the source's folder, forward slashes; the file name for a single file."""
    shown: str
    """Path relative to the project's home, forward slashes: what errors and locators say."""
    size_bytes: int
    content: Content | None = None
    """Where its bytes come from; None: from `path`."""


@dataclass(frozen=True, slots=True)
class Located:
    """The files of a source, and what was found but is not to be read."""

    files: tuple[FoundFile, ...] = ()
    skipped: tuple[SourceFile, ...] = ()
    errors: tuple[FileError, ...] = ()


@dataclass(slots=True)
class _Finder:
    """Collects while a folder is walked; `root` is what no file may leave through a symbolic
    link.
    """

    home: Path
    base: Path
    root: Path
    through_links: bool = False
    """Whether a path may lead through a linked folder: a glob follows them, a walk does not."""
    files: list[FoundFile] = field(default_factory=list[FoundFile])
    skipped: list[SourceFile] = field(default_factory=list[SourceFile])
    errors: list[FileError] = field(default_factory=list[FileError])

    def add(self, path: Path) -> None:
        shown = shown_path(path, self.home)
        try:
            linked = self.through_links or path.is_symlink()
            if linked and not path.resolve(strict=True).is_relative_to(self.root):
                return self.fail(
                    shown,
                    FileCode.OUTSIDE_ROOT,
                    "symbolic link leaves the source's folder: copy the file",
                )
            status = path.stat()
        except (OSError, RuntimeError, ValueError):
            return self.fail(
                shown, FileCode.UNREADABLE, "cannot be opened: check the link and the permissions"
            )
        if stat.S_ISDIR(status.st_mode):
            return self.skip(shown, "symbolic link to a folder that is read where it is")
        if not stat.S_ISREG(status.st_mode):
            return self.skip(shown, "not a regular file")
        name = spelled(repair(path.relative_to(self.base).as_posix()))
        self.files.append(FoundFile(path=path, name=name, shown=shown, size_bytes=status.st_size))

    def fail(self, shown: str, code: FileCode, message: str) -> None:
        self.errors.append(FileError(path=shown, code=code, message=message))
        self.skipped.append(SourceFile(path=shown, status=FileStatus.FAILED, reason=code.value))

    def skip(self, shown: str, reason: str) -> None:
        self.skipped.append(SourceFile(path=shown, status=FileStatus.SKIPPED, reason=reason))

    def located(self) -> Located:
        return Located(tuple(self.files), tuple(self.skipped), tuple(self.errors))


def locate(path: str, home: Path) -> Located:
    """Find the files that `path` (a file, a folder or a glob, relative to `home`) names, in sorted
    order.

    Hidden files and folders are not looked at. Links inside a folder are followed only to files of
    that folder; the configured path itself may lie anywhere, because the operator wrote it.
    """
    absolute = Path(os.path.normpath(home / repair(path)))
    if absolute.is_dir():
        finder = _Finder(home=home, base=absolute, root=absolute.resolve())
        for file in _walk(absolute, finder):
            finder.add(file)
        return finder.located()
    if absolute.exists():
        finder = _Finder(home=home, base=absolute.parent, root=absolute.resolve().parent)
        finder.add(absolute)
        return finder.located()
    if glob.has_magic(path):
        located = _locate_glob(absolute, home)
        if located.files or located.skipped:
            return located
    error = FileError(
        path=repair(path), code=FileCode.MISSING, message="no such file: check the source's path"
    )
    return Located(errors=(error,))


def _locate_glob(pattern: Path, home: Path) -> Located:
    fixed: list[str] = []
    for part in pattern.parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    base = Path(*fixed)
    finder = _Finder(home=home, base=base, root=base.resolve(), through_links=True)
    for match in sorted(glob.glob(str(pattern), recursive=True)):
        found = Path(match)
        if found.is_symlink() or not found.is_dir():
            finder.add(found)
    return finder.located()


def _walk(folder: Path, finder: _Finder) -> Iterator[Path]:
    """Yield files and symbolic links below `folder`, parents before children, by name."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        finder.fail(
            shown_path(folder, finder.home),
            FileCode.UNREADABLE,
            "folder cannot be listed: check permissions",
        )
        return
    visible = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in visible:
        if not entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)
    for entry in visible:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), finder)


def shown_path(path: Path, home: Path) -> str:
    """Return `path` relative to `home` with forward slashes, `..` included where it lies
    outside.
    """
    try:
        return spelled(repair(Path(os.path.relpath(path, home)).as_posix()))
    except ValueError:  # another drive
        return spelled(repair(path.as_posix()))


def read_bytes(found: FoundFile, limit_bytes: int) -> bytes | FileError:
    """Return the whole file, or the error that says why not."""
    try:
        if found.content is not None:
            content = found.content.read(limit_bytes + 1)
        else:
            with found.path.open("rb") as stream:
                content = stream.read(limit_bytes + 1)
    except OSError:
        return FileError(
            path=found.shown, code=FileCode.UNREADABLE, message="cannot be read: check permissions"
        )
    if len(content) > limit_bytes:
        size = max(found.size_bytes, len(content))
        message = (
            f"has {size:,} bytes, the limit is {limit_bytes:,}: raise the source's "
            "max_file_bytes or split the file"
        )
        return FileError(path=found.shown, code=FileCode.TOO_LARGE, message=message)
    return content


def decode(found: FoundFile, content: bytes) -> str | FileError:
    """Decode UTF-8, with or without a byte order mark."""
    if content.count(0) > len(content) * MAX_NUL_SHARE:
        return FileError(
            path=found.shown,
            code=FileCode.NOT_UTF8,
            message="is binary or UTF-16: save it as UTF-8",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return FileError(
            path=found.shown,
            line=line,
            code=FileCode.NOT_UTF8,
            message="not UTF-8: save it as UTF-8",
        )


def read_text(found: FoundFile, limit_bytes: int) -> str | FileError:
    """Return the file's text with one kind of newline, or the error that says why not."""
    content = read_bytes(found, limit_bytes)
    if isinstance(content, FileError):
        return content
    text = decode(found, content)
    return text if isinstance(text, FileError) else text.replace("\r\n", "\n").replace("\r", "\n")


def suffix_of(found: FoundFile) -> str:
    """Return the lower-case suffix with its dot, or an empty string."""
    return Path(found.name).suffix.lower()
