"""Git: the code and the text documents of a repository at its HEAD, and its recent history.

Files are read as the commit holds them, whatever the work tree says. Every item names the commit
that last changed its file, so that a later commit leaves the items of untouched files as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import normpath
from pathlib import Path, PurePosixPath

from ctx_pipeline.contracts import (
    ContextItem,
    FileCode,
    FileError,
    FileStatus,
    ItemKind,
    SourceFile,
)
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources.code.code import read_code
from ctx_pipeline.sources.code.git_objects import Commit, GitProblem, Repository, TreeEntry
from ctx_pipeline.sources.code.grammars import CODE_SUFFIXES
from ctx_pipeline.sources.code.projects import is_project_file
from ctx_pipeline.sources.documents.documents import MARKDOWN_SUFFIXES, read_documents
from ctx_pipeline.sources.files import FoundFile, shown_path, suffix_of
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item
from ctx_pipeline.text import normalise, repair, spelled

MAX_FILES = 50_000
HISTORY_COMMITS = 50
"""Commits that the history item shows."""
BLAME_COMMITS = 5_000
"""How far back the last change of a file is looked for; an older file's version is the id of its
blob."""
MAX_SUMMARY_CHARS = 200
HISTORY_NAME = "@history"

_TEXT_SUFFIXES = (*MARKDOWN_SUFFIXES, ".txt", ".rst")
_TEXT_NAMES = frozenset((
    "README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CHANGELOG", "CHANGES", "CONTRIBUTING",
    "INSTALL", "NEWS",
    "SECURITY", "Makefile", "Dockerfile", "CODEOWNERS",
))  # fmt: skip
_LINK_MODE = "120000"


@dataclass(frozen=True, slots=True)
class _Blob:
    """Content of a file, read when asked for."""

    repository: Repository
    sha: str

    def read(self, limit_bytes: int) -> bytes:
        return self.repository.read(self.sha, limit_bytes)


def read_git(origin: Origin, home: Path) -> SourceReading:
    """Read a local repository, bare or a work tree.

    Code gives the items of kind `code`, Markdown and text those of kind `document`, under the same
    ids as the sources of these kinds; the newest commits are the one item `code:<source>/@history`.
    Other files are accounted for.

    Raises:
        ConfigError: the source names no path.
    """
    source = origin.source
    if not source.path or "://" in source.path:
        raise ConfigError(
            "a git source reads a local repository",
            where=f"ctx.toml, source {source.name!r}",
            fix="set path to a work tree or to a bare repository; clone a remote one first",
        )
    folder = Path(normpath(home / repair(source.path).replace("\0", "\ufffd")))
    if not folder.is_dir():
        return _failed(source.path, FileCode.MISSING, "no such folder: check the source's path")
    try:
        with Repository(folder) as repository:
            head = repository.head()
            if head is None:
                return _failed(source.path, FileCode.MISSING, "the repository has no commit yet")
            return _read(repository, head, origin, shown_path(folder, home))
    except GitProblem as problem:
        return _failed(source.path, FileCode.UNREADABLE, problem.args[0])


def _failed(path: str, code: FileCode, message: str) -> SourceReading:
    return SourceReading((), (FileError(path=path, code=code, message=message),), ())


def _read(repository: Repository, head: str, origin: Origin, shown: str) -> SourceReading:
    skipped: list[SourceFile] = []
    code: list[FoundFile] = []
    texts: list[FoundFile] = []
    shas: dict[str, tuple[bytes, str]] = {}
    entries = [*repository.tree(head)]
    for entry in entries[:MAX_FILES]:
        found = _found(entry, repository, shown)
        shas[found.shown] = (entry.path, entry.sha)
        reason = _reason(entry, found)
        if reason is not None:
            skipped.append(
                SourceFile(
                    path=found.shown,
                    status=FileStatus.SKIPPED,
                    bytes=entry.size_bytes,
                    reason=reason,
                )
            )
        elif suffix_of(found) in CODE_SUFFIXES or is_project_file(found.name):
            code.append(found)
        else:
            texts.append(found)
    batches = [read_code(tuple(code), origin), read_documents(tuple(texts), origin)]
    versions = _versions(repository, head, shas)
    items = [_at_commit(item, versions) for batch in batches for item in batch.items]
    history = _history(repository, head, origin, shown)
    errors = [error for batch in batches for error in batch.errors]
    if len(entries) > MAX_FILES:
        message = (
            f"has {len(entries):,} files, the first {MAX_FILES:,} were "
            "read: split it into several sources"
        )
        errors.append(
            FileError(path=origin.source.path or shown, code=FileCode.TOO_LARGE, message=message)
        )
    files = [*skipped, *(file for batch in (*batches, history) for file in batch.files)]
    return SourceReading(
        items=(*items, *history.items),
        errors=(*errors, *history.errors),
        files=tuple(sorted(files, key=lambda file: file.path)),
    )


def _found(entry: TreeEntry, repository: Repository, shown: str) -> FoundFile:
    name = spelled(repair(entry.path.decode("utf-8", "replace")))
    return FoundFile(
        path=repository.path / name.replace("\0", "\ufffd"),
        name=name,
        shown=_inside(shown, name),
        size_bytes=entry.size_bytes,
        content=_Blob(repository, entry.sha),
    )


def _inside(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _reason(entry: TreeEntry, found: FoundFile) -> str | None:
    """Say why a file of the tree is not read; None if it is."""
    if entry.kind != "blob":
        return "submodule: add it as a source of its own"
    if entry.mode == _LINK_MODE:
        return "symbolic link"
    parts = PurePosixPath(found.name).parts
    if any(part.startswith(".") for part in parts):
        return "hidden file or folder"
    suffix = suffix_of(found)
    if suffix in CODE_SUFFIXES or suffix in _TEXT_SUFFIXES or is_project_file(found.name):
        return None
    if not suffix and parts[-1] in _TEXT_NAMES:
        return None
    return f"suffix {suffix!r} is neither code of a known language nor a text document"


def _versions(
    repository: Repository, head: str, shas: dict[str, tuple[bytes, str]]
) -> dict[str, str]:
    """Return by shown path the commit that last changed a file, or its blob where that lies too far
    back.
    """
    try:
        changed = repository.last_changes(
            repository.commits(head, BLAME_COMMITS, first_parent=True)
        )
    except GitProblem:  # too slow on this machine; blobs are versions too
        changed: dict[bytes, str] = {}
    return {shown: changed.get(path, f"blob:{sha}") for shown, (path, sha) in shas.items()}


def _at_commit(item: ContextItem, versions: dict[str, str]) -> ContextItem:
    version = versions.get(item.provenance.locator.path or "")
    if version is None:
        return item
    return item.model_copy(
        update={"provenance": item.provenance.model_copy(update={"source_version": version})}
    )


def _history(repository: Repository, head: str, origin: Origin, shown: str) -> SourceReading:
    """Return the item of the newest commits: id, day and first line of each, no names of people."""
    found = FoundFile(
        path=repository.path / HISTORY_NAME,
        name=HISTORY_NAME,
        shown=_inside(shown, HISTORY_NAME),
        size_bytes=0,
    )
    batch = ReadingBuilder()
    batch.open(found)
    try:
        commits = [repository.commit(sha) for sha in repository.commits(head, HISTORY_COMMITS + 1)]
    except OSError:
        message = "the history cannot be read: run git fsck in the repository"
        batch.fail(found, FileError(path=found.shown, code=FileCode.UNREADABLE, message=message))
        return batch.build()
    known = [commit for commit in commits if commit is not None]
    draft = Draft(
        found=found,
        kind=ItemKind.CODE,
        name=HISTORY_NAME,
        title=f"Recent commits of {origin.name}",
        content=normalise("\n".join(_history_lines(head, known))),
        subject=f"history:{origin.name}",
        source_version=head,
    )
    batch.add(found, make_item(draft, origin))
    return batch.build()


def _history_lines(head: str, commits: Sequence[Commit]) -> list[str]:
    lines = [f"HEAD: {head}", "commits, newest first:"]
    for commit in commits[:HISTORY_COMMITS]:
        summary = repair(commit.summary)[:MAX_SUMMARY_CHARS]
        lines.append(f"- {commit.sha[:10]} {_day(commit.committed_at)} {summary}".rstrip())
    if len(commits) > HISTORY_COMMITS:
        lines.append("[truncated: older commits are not listed]")
    return lines


def _day(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return "unknown date"
