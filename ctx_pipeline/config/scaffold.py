"""A new context project: a commented `ctx.toml` and one small example of each kind of input."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ctx_pipeline.errors import Conflict, InvalidRequest
from ctx_pipeline.text import normalise, repair

FOLDERS = ("semantic", "documents", "memories", "tools", "skills", "artifacts", "policies", "evals")
"""Folders of a new project; each holds an example."""

STATE_IGNORED = ".ctx/"
MAX_NAME_CHARS = 128


def init_project(target: Path, *, name: str | None = None, force: bool = False) -> list[Path]:
    """Write a new project into `target` and return its files, sorted.

    Nothing is written when a file is in the way, unless `force` replaces it. An existing
    `.gitignore` is kept and gets the line that keeps `.ctx/` out of version control. `name` is the
    folder's name by default.

    Raises:
        Conflict: files exist already (`already_exists`).
        InvalidRequest: the target is not a folder or cannot be written (`cannot_write`), or the
            name is empty or too long (`invalid_name`).
    """
    target = target.expanduser().resolve()
    contents = {target / path: text for path, text in _rendered(_project_name(name, target))}
    ignore = target / ".gitignore"
    if target.exists() and not target.is_dir():
        raise InvalidRequest("the target is not a folder", where=str(target), code="cannot_write")
    if not force:
        _refuse_existing(target, [path for path in contents if path != ignore])
    try:
        if ignore.is_file():
            contents[ignore] = _with_line(ignore.read_text(encoding="utf-8"), STATE_IGNORED)
        _write_all(contents)
    except (OSError, UnicodeError) as refused:
        reason = refused.strerror if isinstance(refused, OSError) else ".gitignore is not UTF-8"
        raise InvalidRequest(
            f"the project cannot be written: {reason}",
            where=str(target),
            fix="choose a folder that you may write to",
            code="cannot_write",
        ) from refused
    return sorted(contents)


def _project_name(name: str | None, target: Path) -> str:
    chosen = " ".join(normalise(repair(target.name or "project" if name is None else name)).split())
    if not 0 < len(chosen) <= MAX_NAME_CHARS:
        raise InvalidRequest(
            f"a project's name has 1 to {MAX_NAME_CHARS} characters",
            where="project name",
            fix="pass another --name",
            code="invalid_name",
        )
    return chosen


def _rendered(name: str) -> Iterator[tuple[Path, str]]:
    root = files("ctx_pipeline.config") / "starter"
    # JSON escapes are TOML escapes; normalised text holds no character that only TOML refuses.
    quoted = json.dumps(name, ensure_ascii=False)
    for path, entry in _entries(root, Path()):
        text = entry.read_text(encoding="utf-8")
        if path.name == "gitignore":
            yield path.with_name(".gitignore"), text
        else:
            yield path, text.replace('"@NAME@"', quoted)


def _entries(folder: Traversable, prefix: Path) -> Iterator[tuple[Path, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _entries(entry, prefix / entry.name)
        else:
            yield prefix / entry.name, entry


def _refuse_existing(target: Path, paths: list[Path]) -> None:
    taken = sorted(path.relative_to(target).as_posix() for path in paths if os.path.lexists(path))
    if taken:
        raise Conflict(
            f"files exist already: {', '.join(taken[:5])}{' and more' if len(taken) > 5 else ''}",
            where=str(target),
            fix="choose another folder, or replace them with --force",
            code="already_exists",
        )


def _with_line(text: str, line: str) -> str:
    if line in text.splitlines():
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def _write_all(contents: dict[Path, str]) -> None:
    """Write every file beside its place first, so that a full disk or a refused folder leaves no
    half project.
    """
    mark = f".{secrets.token_hex(4)}.new"
    staged: dict[Path, Path] = {}
    try:
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}{mark}")
            staged[beside] = path
            beside.write_text(text, encoding="utf-8", newline="\n")
        for beside, path in staged.items():
            os.replace(beside, path)
    finally:
        for beside in staged:
            beside.unlink(missing_ok=True)
