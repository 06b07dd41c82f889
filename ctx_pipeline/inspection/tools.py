"""Lint and compare catalogues that lie in files, or that a project reads."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.tools.drift import ToolDrift, diff
from ctx_pipeline.tools.findings import CODES, SEVERITIES, LintTool, Severity, ToolFinding
from ctx_pipeline.tools.linting import as_lint_tool, lint

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import SourceConfig
    from ctx_pipeline.contracts import FileError
    from ctx_pipeline.sources.files import Located

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Largest file of tools that is read."""
STDIN = "-"


@dataclass(frozen=True, slots=True)
class ToolReport:
    """What was found in one or more catalogues."""

    tools: int
    """Definitions that were looked at."""
    servers: tuple[str, ...]
    findings: tuple[ToolFinding, ...]
    """The worst first."""

    def count(self, severity: Severity) -> int:
        """Return how many findings have a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def codes(self) -> dict[str, int]:
        """How often each code was found, the worst first."""
        return dict(Counter(finding.code for finding in self.findings))


@dataclass(frozen=True, slots=True)
class _Read:
    """What the files of a catalogue gave."""

    tools: tuple[LintTool, ...]
    findings: tuple[ToolFinding, ...]


def lint_files(paths: Sequence[str]) -> ToolReport:
    """Lint the tools in files and folders, `-` being standard input; each is one server, named
    after it.

    A file may be a `tools/list` result, a list, one definition, or one on each line.

    Raises:
        InvalidRequest: a path does not exist.
    """
    return _report([_read_path(path) for path in paths])


def lint_project(home: Path) -> ToolReport:
    """Lint the tools of every `tools` source of a project, as they are now; each source is one
    server.

    Raises:
        InvalidRequest: the project has no such source.
    """
    from ctx_pipeline.config.settings import load_config
    from ctx_pipeline.contracts import SourceKind

    sources = [
        source for source in load_config(home).config.sources if source.kind is SourceKind.TOOLS
    ]
    if not sources:
        raise InvalidRequest(
            "the project has no source of kind 'tools'",
            where="ctx.toml",
            fix="name a file: ctx tools lint FILE",
        )
    return _report([_read_source(source, home) for source in sources])


def diff_files(old: str, new: str) -> ToolDrift:
    """Compare two catalogues in files or folders; `-` is standard input.

    Raises:
        InvalidRequest: a path does not exist, or a file cannot be read.
    """
    if old == new == STDIN:
        raise InvalidRequest(
            "standard input cannot be both catalogues", where="-", fix="name a file", code="usage"
        )
    sides: list[tuple[LintTool, ...]] = []
    for path in (old, new):
        read = _read_path(path, server="")
        if read.findings:
            first = read.findings[0]
            raise InvalidRequest(
                first.message, where=first.where, fix=first.fix, code="invalid_tool"
            )
        sides.append(read.tools)
    return diff(*sides)


def _report(catalogues: Sequence[_Read]) -> ToolReport:
    tools = [tool for read in catalogues for tool in read.tools]
    found = [*(finding for read in catalogues for finding in read.findings), *lint(tools)]
    servers = tuple(dict.fromkeys(tool.server for tool in tools))
    return ToolReport(
        len(tools),
        servers,
        tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))),
    )


def _read_path(path: str, server: str | None = None) -> _Read:
    from ctx_pipeline.contracts import FileCode
    from ctx_pipeline.sources.files import FoundFile, HeldContent, Located, locate

    if path == STDIN:
        content = HeldContent(sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
        found = FoundFile(Path(STDIN), "stdin.json", STDIN, len(content.content), content)
        return _read(Located((found,)), "stdin" if server is None else server, MAX_FILE_BYTES)
    located = locate(path, Path.cwd())
    if any(error.code is FileCode.MISSING for error in located.errors):
        raise InvalidRequest(
            "there is no such file or folder",
            where=path,
            fix="name one that there is",
            code="usage",
        )
    return _read(located, Path(path).stem if server is None else server, MAX_FILE_BYTES)


def _read_source(source: SourceConfig, home: Path) -> _Read:
    from ctx_pipeline.sources.read import locate_source

    return _read(locate_source(source, home), source.name, source.max_file_bytes)


def _read(located: Located, server: str, limit_bytes: int) -> _Read:
    from ctx_pipeline.contracts import FileError
    from ctx_pipeline.sources.tools import TOOL_SUFFIXES, tool_records

    tools: list[LintTool] = []
    findings = [_unreadable(error, server) for error in located.errors]
    for found in located.files:
        if Path(found.name).suffix.lower() not in TOOL_SUFFIXES:
            continue
        records = tool_records(found, limit_bytes)
        if isinstance(records, FileError):
            findings.append(_unreadable(records, server))
            continue
        for number, record in enumerate(records):
            place = f"{found.shown}:{record.line}" if record.line else f"{found.shown}[{number}]"
            origin = found.shown if len(records) == 1 else place
            tool = as_lint_tool(record.value, server=server, origin=origin)
            if isinstance(tool, LintTool):
                tools.append(tool)
            else:
                findings.append(tool)
    return _Read(tuple(tools), tuple(findings))


def _unreadable(error: FileError, server: str) -> ToolFinding:
    where = error.path if error.line is None else f"{error.path}:{error.line}"
    severity, fix = CODES["unreadable_file"]
    return ToolFinding(
        code="unreadable_file",
        severity=severity,
        tool="",
        server=server,
        where=where,
        message=f"{error.code.value}: {error.message}",
        fix=fix,
    )
