"""Code: one item per file (outline, imports, tests) and one per class, function or method, from
syntax trees.

Lines of a locator are exact. What is too long for an item is cut at a line and the rest named by
its lines. Files that are not the project's own text (ignored by git, vendored, generated, minified,
huge) are skipped with the reason.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.sources.code.grammars import EXTRA, Grammar, GrammarMissing, grammar_of
from ctx_pipeline.sources.code.graph import Graph, build_graph
from ctx_pipeline.sources.code.ignore import (
    IgnoreRules,
    foreign_reason,
    source_folder,
    unreadable_reason,
)
from ctx_pipeline.sources.code.parse import ParsedFile, Symbol, parse_code
from ctx_pipeline.sources.code.projects import (
    MAX_PROJECT_BYTES,
    Projects,
    is_project_file,
    read_projects,
)
from ctx_pipeline.sources.files import FoundFile, read_text, suffix_of
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.sources.reading import ReadingBuilder, SourceReading
from ctx_pipeline.sources.record_item import Draft, make_item
from ctx_pipeline.text import normalise, repair, short_hash

MAX_CODE_BYTES = 1024 * 1024
"""A larger file of code is data or output."""
MAX_SYMBOL_CHARS = 6_000
"""Text of one symbol: about 1,500 tokens, more than nine in ten functions need."""
MAX_DOC_CHARS = 1_200
MAX_TOP_LEVEL_CHARS = 3_000
MAX_OUTLINE_LINES = 200
MAX_LISTED = 20
"""Tests, or external imports, that a file's item names."""
MAX_FOREIGN_LISTED = 200
"""Skipped files of one folder that are accounted for one by one; more are one entry with their
number."""


@dataclass(frozen=True, slots=True)
class _CodeFile:
    found: FoundFile
    grammar: Grammar
    parsed: ParsedFile
    lines: list[str]
    members: dict[int | None, list[Symbol]] = field(default_factory=dict[int | None, list[Symbol]])
    """Symbols by the position of their container."""


def read_code(files: tuple[FoundFile, ...], origin: Origin) -> SourceReading:
    """Turn each file into `code:<source>/<path>` and each symbol into
    `code:<source>/<path>::<qualified name>`.

    A file depends on the files of the source that it imports, a test also on the file it covers; a
    symbol depends on its file. The item of a covered file names its tests.
    """
    batch = ReadingBuilder()
    code: dict[str, _CodeFile] = {}
    settings: dict[str, str] = {}
    own = _own_files(files, batch)
    for found in own:
        if is_project_file(found.name):
            _take_settings(found, origin, batch, settings)
            continue
        taken = _take(found, origin, batch)
        if taken is not None:
            code[found.name] = taken
    graph = _graph(code, read_projects(settings))
    for file in code.values():
        batch.add(file.found, _file_item(file, graph, origin), *_symbol_items(file, origin))
    return batch.build()


def _own_files(files: Sequence[FoundFile], batch: ReadingBuilder) -> list[FoundFile]:
    """Return the files that may be the project's own text; account for the others."""
    rules = _rules(files)
    own: list[FoundFile] = []
    foreign: dict[tuple[str, str], list[FoundFile]] = defaultdict(list)
    for found in files:
        reason = foreign_reason(found.name)
        if reason is None and found.content is None and rules.ignores(found.path):
            reason = "ignored by .gitignore"
        if reason is None:
            own.append(found)
        else:
            foreign[(reason, found.name.split("/", 1)[0])].append(found)
    for (reason, top), group in foreign.items():
        if len(group) > MAX_FOREIGN_LISTED:
            batch.skip(_folder_entry(top, group), f"{reason}: {len(group):,} files")
        else:
            for found in group:
                batch.skip(found, reason)
    return own


def _rules(files: Sequence[FoundFile]) -> IgnoreRules:
    first = next((found for found in files if found.content is None), None)
    if first is None:
        return IgnoreRules(None)
    folder = source_folder(first)
    rules = IgnoreRules.of(folder)
    # Who names an ignored folder as a source wants what lies in it.
    return IgnoreRules(None) if rules.ignores(folder, is_folder=True) else rules


def _folder_entry(top: str, group: Sequence[FoundFile]) -> FoundFile:
    first = group[0]
    prefix = first.shown.removesuffix(first.name)
    size = sum(found.size_bytes for found in group)
    return FoundFile(
        path=source_folder(first) / top, name=top, shown=f"{prefix}{top}", size_bytes=size
    )


def _take_settings(
    found: FoundFile, origin: Origin, batch: ReadingBuilder, settings: dict[str, str]
) -> None:
    text = read_text(found, min(origin.limit_bytes, MAX_PROJECT_BYTES))
    if isinstance(text, FileError):
        batch.skip(found, f"project file that is not read for import names: {text.code.value}")
    else:
        settings[found.name] = text
        batch.part(found, "read for the names of imports")


def _take(found: FoundFile, origin: Origin, batch: ReadingBuilder) -> _CodeFile | None:
    grammar = grammar_of(suffix_of(found))
    if grammar is None:
        batch.skip(found, f"suffix {suffix_of(found)!r} is not code of a known language")
        return None
    if MAX_CODE_BYTES < found.size_bytes <= origin.limit_bytes:
        batch.skip(
            found,
            (
                f"has {found.size_bytes:,} bytes; above {MAX_CODE_BYTES:,} a "
                "file of code is data or output"
            ),
        )
        return None
    text = read_text(found, origin.limit_bytes)
    if isinstance(text, FileError):
        batch.fail(found, text)
        return None
    text = repair(text)
    batch.open(found)
    if not text.strip():
        return None
    reason = unreadable_reason(text)
    if reason is not None:
        batch.skip(found, reason)
        return None
    try:
        parsed = parse_code(text, grammar)
    except GrammarMissing:
        message = (
            f"the grammar of {grammar.name} is not installed: pip install 'ctx-pipeline[{EXTRA}]'"
        )
        batch.fail(
            found, FileError(path=found.shown, code=FileCode.UNSUPPORTED_TYPE, message=message)
        )
        return None
    members: dict[int | None, list[Symbol]] = defaultdict(list)
    for symbol in parsed.symbols:
        members[symbol.parent].append(symbol)
    return _CodeFile(found, grammar, parsed, text.removesuffix("\n").split("\n"), members)


def _graph(code: dict[str, _CodeFile], projects: Projects) -> Graph:
    first = next(iter(code.values()), None)
    return build_graph(
        {name: file.parsed for name, file in code.items()},
        {name: file.grammar.name for name, file in code.items()},
        projects,
        root_name="" if first is None else source_folder(first.found).name,
    )


def _file_item(file: _CodeFile, graph: Graph, origin: Origin) -> ContextItem:
    name = file.found.name
    content = normalise("\n".join(_file_lines(file, graph)))
    draft = Draft(
        found=file.found,
        kind=ItemKind.CODE,
        name=name,
        title=name,
        content=content,
        subject=f"file:{name}",
        source_version=short_hash("\n".join(file.lines)),
        line_start=1,
        line_end=len(file.lines),
        depends_on=tuple(
            origin.item_id(ItemKind.CODE.value, target) for target in graph.needs[name]
        ),
    )
    return make_item(draft, origin)


def _file_lines(file: _CodeFile, graph: Graph) -> Iterator[str]:
    name, parsed = file.found.name, file.parsed
    yield f"file: {name}"
    yield f"language: {file.grammar.name}"
    yield f"lines: {len(file.lines):,}"
    if parsed.broken:
        yield "syntax errors: the outline may be incomplete"
    tests = graph.tests.get(name, ())
    if tests:
        yield f"tests: {_listed(tests)}"
    if graph.needs[name]:
        yield f"imports files: {_listed(graph.needs[name])}"
    if graph.external[name]:
        yield f"imports: {_listed(graph.external[name])}"
    if parsed.doc:
        yield f"doc: {_cut(parsed.doc, MAX_DOC_CHARS)}"
    if parsed.symbols:
        yield "outline:"
        yield from _outline(file)
    rest = _top_level(file)
    if rest:
        yield "top-level code:"
        yield from _bounded(rest, file, MAX_TOP_LEVEL_CHARS if parsed.symbols else MAX_SYMBOL_CHARS)


def _outline(file: _CodeFile) -> Iterator[str]:
    depth: list[int] = []
    for symbol in file.parsed.symbols:
        depth.append(0 if symbol.parent is None else depth[symbol.parent] + 1)
    pairs = [*zip(file.parsed.symbols, depth, strict=True)]
    if len(pairs) > MAX_OUTLINE_LINES:  # the outermost say most
        pairs = [pair for pair in pairs if pair[1] == 0]
    for symbol, level in pairs[:MAX_OUTLINE_LINES]:
        yield f"{'  ' * level}- {symbol.signature} [{_range(symbol.line_start, symbol.line_end)}]"
    hidden = len(file.parsed.symbols) + file.parsed.dropped - min(len(pairs), MAX_OUTLINE_LINES)
    if hidden:
        yield f"[truncated: {hidden:,} more symbols]"
    if file.parsed.dropped:
        yield f"[truncated: {file.parsed.dropped:,} symbols have no item of their own]"


def _top_level(file: _CodeFile) -> list[tuple[int, str]]:
    """Return the lines, with their numbers, that stand in no symbol and are neither import nor the
    file's doc.
    """
    covered = set(file.parsed.import_lines)
    if file.parsed.doc_lines:
        covered.update(range(file.parsed.doc_lines[0], file.parsed.doc_lines[1] + 1))
    for symbol in file.members.get(None, ()):
        covered.update(range(symbol.line_start, symbol.line_end + 1))
    return [
        (number, line)
        for number, line in enumerate(file.lines, start=1)
        if number not in covered and line.strip() and not line.startswith("#!")
    ]


def _symbol_items(file: _CodeFile, origin: Origin) -> Iterator[ContextItem]:
    name = file.found.name
    file_id = origin.item_id(ItemKind.CODE.value, name)
    for position, symbol in enumerate(file.parsed.symbols):
        head = f"{symbol.kind} {symbol.name} in {name} ({file.grammar.name})"
        body = _bounded(_body(file, position, symbol), file, MAX_SYMBOL_CHARS)
        content = normalise(f"{head}\n{textwrap.dedent(chr(10).join(body))}")
        draft = Draft(
            found=file.found,
            kind=ItemKind.CODE,
            name=f"{name}::{repair(symbol.name)}",
            title=f"{symbol.name} ({PurePosixPath(name).name})",
            content=content,
            subject=f"symbol:{symbol.name.partition('#')[0]}",
            source_version=short_hash(content),
            line_start=symbol.line_start,
            line_end=symbol.line_end,
            depends_on=(file_id,),
        )
        yield make_item(draft, origin)


def _body(file: _CodeFile, position: int, symbol: Symbol) -> list[tuple[int, str]]:
    """Return a symbol's lines with their numbers; members that have items of their own are their
    signatures alone.
    """
    shown: list[tuple[int, str]] = []
    at = symbol.line_start
    for member in file.members.get(position, ()):
        if member.line_start <= symbol.head_line:
            continue
        between = enumerate(file.lines[at - 1 : member.line_start - 1], start=at)
        shown += (pair for pair in between if pair[1].strip())
        first = file.lines[member.head_line - 1]
        indent = first[: len(first) - len(first.lstrip())]
        shown.append((member.line_start, f"{indent}{member.signature} …"))
        at = max(at, member.line_end + 1)
    return [*shown, *enumerate(file.lines[at - 1 : symbol.line_end], start=at)]


def _bounded(lines: Sequence[tuple[int, str]], file: _CodeFile, limit_chars: int) -> Iterator[str]:
    used = 0
    for at, (number, line) in enumerate(lines):
        used += len(line) + 1
        if used > limit_chars and at:
            left = _range(number, lines[-1][0])
            yield f"[truncated: {len(lines) - at:,} more lines, {left} of {file.found.shown}]"
            return
        yield _cut(line, limit_chars)


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _cut(text: str, limit_chars: int) -> str:
    return text if len(text) <= limit_chars else f"{text[:limit_chars].rstrip()} [truncated]"


def _listed(names: Iterable[str]) -> str:
    shown = [*names]
    more = f" and {len(shown) - MAX_LISTED:,} more" if len(shown) > MAX_LISTED else ""
    return ", ".join(shown[:MAX_LISTED]) + more
