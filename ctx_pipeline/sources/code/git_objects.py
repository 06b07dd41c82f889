"""A git repository read through plumbing commands: no work tree, no hooks, no network, no settings
but ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from types import TracebackType

TIMEOUT_SECONDS = 60.0
"""Of one command."""
SESSION_SECONDS = 600.0
"""Of the process that hands out file contents."""
MAX_LISTING_BYTES = 256 * 1024 * 1024
MAX_COMMIT_BYTES = 1024 * 1024
MAX_DRAINED_BYTES = 8 * 1024 * 1024
"""An unwanted rest of an object up to this size is read over; for a larger one a new process is
cheaper."""

# The repository's own settings may name programs; those that plumbing could run are turned off.
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "core.quotePath=false",
    "core.useReplaceRefs=false",
    "diff.external=",
    "diff.renames=false",
    "log.showSignature=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
)


class GitProblem(Exception):
    """Why a repository cannot be read; the message names no content."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a commit's tree."""

    mode: str
    kind: str
    sha: str
    size_bytes: int
    path: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """What is shown of a commit: no names, no addresses."""

    sha: str
    committed_at: int
    """Seconds since 1970 in UTC."""
    summary: str


class Repository:
    """A bare repository or a work tree, at its HEAD. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Find the repository in `path` itself; folders above are not looked at.

        Raises:
            GitProblem: git is not installed, or there is no repository.
        """
        program = shutil.which("git")
        if program is None:
            raise GitProblem("git is not installed: install it to read this source")
        self.program = program
        self.path = path
        self.folder = _git_folder(path)
        self._objects: subprocess.Popen[bytes] | None = None
        self._timer: Timer | None = None

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._objects is not None:
            for stream in (self._objects.stdin, self._objects.stdout):
                if stream is not None:
                    stream.close()
            self._objects.kill()
            self._objects.wait()
            self._objects = None

    def head(self) -> str | None:
        """Return the commit of HEAD; None while there is none."""
        done = self._start(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
        sha = done.stdout.decode("ascii", "replace").strip()
        if done.returncode not in (0, 1) or (done.returncode and done.stderr):
            raise GitProblem(self._refusal(done.stderr))
        return sha or None

    def tree(self, commit: str) -> Iterator[TreeEntry]:
        """Yield every entry of a commit's tree, folders entered, in the order of their paths."""
        for line in self._run(["ls-tree", "-r", "-z", "-l", "--full-tree", commit]).split(b"\0"):
            head, tab, path = line.partition(b"\t")
            if not tab:
                continue
            mode, kind, sha, size = head.decode("ascii", "replace").split()
            yield TreeEntry(mode, kind, sha, int(size) if size.isdigit() else 0, path)

    def commits(self, start: str, limit: int, *, first_parent: bool = False) -> list[str]:
        """Return the newest commits that lead to `start`, it first."""
        arguments = [
            "rev-list",
            f"--max-count={limit}",
            *(["--first-parent"] if first_parent else []),
            start,
        ]
        return self._run(arguments).decode("ascii", "replace").split()

    def commit(self, sha: str) -> Commit | None:
        """Return a commit's date and first line; None if it is damaged or not there."""
        content = self.read(sha, MAX_COMMIT_BYTES)
        head, _, message = content.partition(b"\n\n")
        committed = next(
            (line for line in head.split(b"\n") if line.startswith(b"committer ")), b""
        ).split()
        if len(committed) < 3 or not committed[-2].isdigit():
            return None
        summary = message.decode("utf-8", "replace").strip().split("\n", 1)[0]
        return Commit(sha, int(committed[-2]), summary)

    def last_changes(self, commits: Sequence[str]) -> dict[bytes, str]:
        """Return, by path, the newest of `commits` (newest first, a chain of first parents) that
        changed the file.
        """
        arguments = [
            "diff-tree",
            "--stdin",
            "-r",
            "-m",
            "--first-parent",
            "--root",
            "--name-only",
            "-z",
            "--no-renames",
        ]
        output = self._run(arguments, stdin="".join(f"{sha}\n" for sha in commits).encode("ascii"))
        known = {sha.encode("ascii"): sha for sha in commits}
        changed: dict[bytes, str] = {}
        current: str | None = None
        for token in output.split(b"\0"):
            # A commit's line ends in a newline or a NUL, depending on the version of git.
            head, newline, rest = token.partition(b"\n")
            if newline and head in known:
                current, token = known[head], rest
            elif token in known:
                current = known[token]
                continue
            if token and current is not None:
                changed.setdefault(token, current)
        return changed

    def read(self, sha: str, limit_bytes: int) -> bytes:
        """Return up to `limit_bytes` bytes of an object.

        Raises:
            OSError: it is missing, or git stopped answering.
        """
        process = self._object_process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{sha}\n".encode("ascii"))
        process.stdin.flush()
        head = process.stdout.readline().split()
        if len(head) != 3 or not head[2].isdigit():
            raise OSError("git has no such object")
        left = int(head[2])
        content = process.stdout.read(min(left, limit_bytes))
        left -= len(content)
        if left > MAX_DRAINED_BYTES:
            self._stop()
            return content
        rest = process.stdout.read(left + 1)
        if len(rest) != left + 1:
            raise OSError("git stopped in the middle of an object")
        return content

    def _object_process(self) -> subprocess.Popen[bytes]:
        if self._objects is None:
            self._objects = subprocess.Popen(  # noqa: S603 - the program is git, found by its name; no shell
                self._command(["cat-file", "--batch"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
            self._timer = Timer(SESSION_SECONDS, self._objects.kill)
            self._timer.daemon = True
            self._timer.start()
        return self._objects

    def _command(self, arguments: Sequence[str]) -> list[str]:
        settings = [*_SETTINGS, f"safe.directory={self.path}", f"safe.directory={self.folder}"]
        flags = [part for setting in settings for part in ("-c", setting)]
        return [
            self.program,
            "--no-pager",
            "--no-replace-objects",
            *flags,
            f"--git-dir={self.folder}",
            *arguments,
        ]

    def _start(
        self, arguments: Sequence[str], stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603 - the program is git, found by its name; no shell
                self._command(arguments),
                input=stdin,
                capture_output=True,
                check=False,
                timeout=TIMEOUT_SECONDS,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            raise GitProblem(
                f"git {arguments[0]} took longer than {TIMEOUT_SECONDS:.0f} s"
            ) from None
        except OSError:
            raise GitProblem("git cannot be started") from None

    def _run(self, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        done = self._start(arguments, stdin)
        if done.returncode:
            raise GitProblem(self._refusal(done.stderr))
        if len(done.stdout) > MAX_LISTING_BYTES:
            raise GitProblem(f"git {arguments[0]} lists more than {MAX_LISTING_BYTES:,} bytes")
        return done.stdout

    @staticmethod
    def _refusal(stderr: bytes) -> str:
        if b"dubious ownership" in stderr:
            return "belongs to another user, and git refuses it: change its owner"
        return "is not a git repository that can be read: run git fsck in it"


def _git_folder(path: Path) -> Path:
    """Return the folder of the repository's data: `.git`, where a file `.git` leads, or the path of
    a bare one.
    """
    inside = path / ".git"
    if inside.is_dir():
        return inside
    if inside.is_file():
        try:
            with inside.open("rb") as stream:
                text = stream.read(4096).decode("utf-8", "replace")
        except OSError:
            raise GitProblem("its file .git cannot be read: check permissions") from None
        key, _, target = text.partition(":")
        folder = path / target.strip()
        if key.strip() == "gitdir" and target.strip() and folder.is_dir():
            return folder
        raise GitProblem("its file .git leads nowhere: run git worktree repair")
    if (path / "HEAD").is_file() and (path / "objects").is_dir():
        return path
    raise GitProblem("is not a git repository: set path to a work tree or to a bare repository")


def _environment() -> dict[str, str]:
    """Return the variables git runs with: none of the caller's but the search path."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM": "0",
    }
