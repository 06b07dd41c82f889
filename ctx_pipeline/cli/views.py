"""How things look to a person: blocks of words and tables, with colour on a terminal and plain
columns elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from ctx_pipeline.text import legible

if TYPE_CHECKING:
    from rich.table import Table

    from ctx_pipeline.contracts import (
        ConflictRecord,
        ContextDecisionTrace,
        ContextPack,
        FileError,
        PackWarning,
    )

PLAIN_WIDTH = 100_000
"""Columns where nobody looks at a screen: nothing is folded or cut, so that other programs can read
the lines."""
ITEM_CELLS = 24
TEXT_CELLS = 10
"""Least width of ids and of words on a terminal."""
ROOMY = 100
"""Columns of a terminal below which every column of a table may be folded."""
BAR_CELLS = 30
SHOWN_ERRORS = 50
"""Errors of files that a build names on screen; `--json` has them all."""
SHOWN_OUT = 15
"""Rows of what stayed out; `ctx explain` has them all."""
VERSION_CHARS = 20

WAYS_IN = {
    "not_yet_valid": "an --as-of after it begins",
    "expired": "an --as-of before it ends",
    "superseded": "an --as-of before the newer version",
    "stale": "a fresh source: ctx build",
    "quarantined": "its release from quarantine",
    "retired": "its return to the source",
    "out_of_scope": "another --task-type",
    "role_denied": "another --role",
    "low_rank": "a closer match to the text",
    "over_budget": "a larger --budget",
    "conflict_lost": "a higher authority than the winner's",
    "duplicate": "nothing: the same text is in already",
}
"""By exclusion code, for traces that name no counterfactual of their own."""

MOST_TELLING = (
    "conflict_lost",
    "superseded",
    "expired",
    "not_yet_valid",
    "stale",
    "over_budget",
    "gate_removed",
    "not_routed",
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    right: bool = False
    """Numbers stand right."""
    style: str = ""
    flexible: int = 0
    """Gives way first where a terminal is narrow, down to this many cells; 0 keeps its lines whole
    while it can."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with a title."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Words:
    """Lines of text, styled as a whole."""

    text: str
    style: str = ""


Block = Grid | Words


def waiting_words(waiting: int, build: str) -> list[Block]:
    """Return that item versions wait for a build, and the command that builds; nothing for none."""
    if not waiting:
        return []
    counted = "1 item version is" if waiting == 1 else f"{number(waiting)} item versions are"
    served = "what was served before is served still"
    return [Words(f"{counted} recorded and not built yet: {served}\n  {build}", "yellow")]


def cell(value: object) -> str:
    """Return a value as one line without control characters, so that content cannot drive the
    terminal.
    """
    text = legible("" if value is None else str(value)).replace("\t", " ")
    return " ".join(text.split("\n"))


def error_words(title: str, errors: Sequence[FileError], hint: Callable[..., str]) -> Words:
    """Return what was wrong with files, the first `SHOWN_ERRORS` of it."""
    lines = [
        f"  {_place(error)} {error.code.value}: {cell(error.message)}"
        for error in errors[:SHOWN_ERRORS]
    ]
    more = len(errors) - SHOWN_ERRORS
    tail = [f"  and {more} more: {hint('build', '--json')}"] if more > 0 else []
    return Words("\n".join([title, *lines, *tail]), "yellow")


def _place(error: FileError) -> str:
    return cell(error.path) if error.line is None else f"{cell(error.path)}:{error.line}"


def number(value: int) -> str:
    """Return a count with thousands apart."""
    return f"{value:,}"


def short(version: str) -> str:
    """Return a version as tables show it; long hashes are cut."""
    return version if len(version) <= VERSION_CHARS else version[: VERSION_CHARS - 1] + "…"


def layout(blocks: Sequence[Block], stream: TextIO) -> str:
    """Return blocks as text for a stream: coloured and fitted for a terminal, plain and unfolded
    for anything else.
    """
    import io

    from rich.console import Console
    from rich.text import Text

    terminal = stream.isatty()
    page = io.StringIO()
    if terminal:
        seen = Console(file=stream)
        console = Console(
            file=page,
            width=seen.width,
            force_terminal=True,
            color_system="auto" if seen.color_system else None,
            no_color=seen.no_color,
        )
    else:
        console = Console(file=page, width=PLAIN_WIDTH, color_system=None, force_terminal=False)
    for place, block in enumerate(blocks):
        if place:
            console.line()
        if isinstance(block, Words):
            console.print(Text(block.text, style=block.style if terminal else ""), soft_wrap=True)
        else:
            console.print(_table(block, console.width, terminal=terminal))
    lines = [line.rstrip() for line in page.getvalue().split("\n")]
    return "\n".join(lines)


def _table(grid: Grid, width: int, *, terminal: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    roomy = terminal and width >= ROOMY
    table = Table(
        title=Text(grid.title, style="bold" if terminal else "") if grid.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD if terminal else None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="dim" if terminal else "",
    )
    for column in grid.columns:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            style=column.style if terminal else None,
            overflow="fold",
            no_wrap=roomy and not column.flexible,
            min_width=column.flexible or None if roomy else None,
        )
    for row in grid.rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def bar(used: int, usable: int) -> str:
    """Return how full a budget is, as a bar and as numbers."""
    share = min(1.0, used / usable) if usable else 1.0
    filled = round(share * BAR_CELLS)
    percent = f"{100 * used / usable:.1f} %" if usable else "full"
    return (
        f"[{'█' * filled}{'░' * (BAR_CELLS - filled)}] {number(used)} of "
        f"{number(usable)} usable tokens, {percent}"
    )


def pack_view(
    pack: ContextPack,
    traces: Sequence[ContextDecisionTrace],
    hint: Callable[..., str],
    *,
    title: str = "",
    kept: bool = True,
) -> list[Block]:
    """Return a pack as people read it: what is in and why, the budget, what stayed out and why, and
    what to do next.

    `hint` makes a command line that this caller can run as it stands; of a pack whose snapshot was
    not `kept`, none names it.
    """
    by_key = {(trace.item_id, trace.version): trace for trace in traces}
    blocks: list[Block] = []
    if title:
        blocks.append(Words(title, "bold"))
    blocks += [_shown(pack, by_key), *_budget(pack)]
    if pack.conflicts:
        blocks.append(_conflicts(pack.conflicts))
    if pack.warnings:
        blocks.append(_warnings(pack.warnings))
    out = [trace for trace in traces if not trace.selected]
    if pack.denied:
        blocks.append(
            Words(f"Denied by permission, counted and never named: {_counts(pack.denied)}")
        )
    blocks += stayed_out(out, hint("explain", pack.snapshot_id))
    blocks.append(_next(pack, out, hint, kept=kept))
    return blocks


def _warnings(warnings: Sequence[PackWarning]) -> Grid:
    """Return warnings as a table; where none is about an item, no column speaks of items."""
    code, message = Column("code", style="yellow"), Column("message", flexible=TEXT_CELLS)
    if not any(warning.item_id for warning in warnings):
        return Grid(
            "Warnings", (code, message), [(warning.code, warning.message) for warning in warnings]
        )
    rows = [(warning.code, warning.item_id or "", warning.message) for warning in warnings]
    return Grid("Warnings", (code, Column("item", flexible=ITEM_CELLS), message), rows)


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{code} {number(count)}" for code, count in sorted(numbers.items()))


def _shown(pack: ContextPack, traces: dict[tuple[str, str], ContextDecisionTrace]) -> Grid:
    rows = [
        (
            section.name,
            item.item_id,
            short(item.version),
            item.rendition.value,
            number(item.tokens),
            why_in(traces.get((item.item_id, item.version))),
        )
        for section in pack.sections
        for item in section.items
    ]
    rows += [
        (
            "tools",
            tool.item_id,
            short(tool.version),
            "schema" if tool.rendition.value == "full" else f"{tool.rendition.value} schema",
            number(tool.tokens),
            why_in(traces.get((tool.item_id, tool.version))),
        )
        for tool in pack.capabilities
    ]
    columns = (
        Column("section", style="cyan"),
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("shown"),
        Column("tokens", right=True),
        Column("why in", flexible=TEXT_CELLS),
    )
    return Grid(
        f"In the pack: {len(pack.items)} items, {len(pack.capabilities)} tools", columns, rows
    )


def why_in(trace: ContextDecisionTrace | None) -> str:
    """Return the reason and the score of what was selected."""
    if trace is None:
        return ""
    reason = trace.selected_reason or "selected"
    if reason == "protected":
        return reason
    score = f"score {trace.score:.2f}"
    return score if reason == "score" else f"{reason}, {score}"


def _budget(pack: ContextPack) -> list[Block]:
    budget = pack.budget
    words = (
        f"Budget  {bar(pack.total_tokens, budget.usable)}\n"
        f"        counted with {pack.tokenizer}; aiming for {number(budget.soft_target)}; "
        f"{number(budget.output_reserve)} reserved for the answer, "
        f"{number(budget.headroom)} headroom"
    )
    rows = [
        (part.section, number(part.planned), number(part.used), _share(part.used, part.planned))
        for part in budget.sections
        if part.planned or part.used
    ]
    columns = (
        Column("share", style="cyan"),
        Column("planned", right=True),
        Column("used", right=True),
        Column("filled", right=True),
    )
    return [Words(words), Grid("", columns, rows)]


def _share(used: int, planned: int) -> str:
    """Return how much of what was planned is used; what goes beyond was left
    over by other shares.
    """
    if not planned:
        return ""
    beyond = f" and {number(used - planned)} left by others" if used > planned else ""
    return f"{min(100, round(100 * used / planned))} %{beyond}"


def _conflicts(conflicts: Sequence[ConflictRecord]) -> Grid:
    rows = [
        (
            conflict.subject,
            "unresolved"
            if conflict.winner is None
            else f"{conflict.winner.item_id} @ {short(conflict.winner.version)}",
            ", ".join(f"{side.item_id} @ {short(side.version)}" for side in conflict.losers),
            conflict.question or conflict.reason,
        )
        for conflict in conflicts
    ]
    return Grid(
        "Conflicts",
        (
            Column("subject", style="cyan"),
            Column("winner", flexible=TEXT_CELLS),
            Column("losers", flexible=TEXT_CELLS),
            Column("reason"),
        ),
        rows,
    )


def stayed_out(out: Sequence[ContextDecisionTrace], all_of_them: str) -> list[Block]:
    """Return the table of what stayed out, the most telling reasons first."""
    if not out:
        return []
    ranked = most_telling(out)
    rows = [
        (trace.item_id, short(trace.version), str(trace.excluded_reason), way_in(trace))
        for trace in ranked[:SHOWN_OUT]
    ]
    columns = (
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("reason", style="yellow"),
        Column("what would let it in", flexible=TEXT_CELLS),
    )
    blocks: list[Block] = [Grid(f"Stayed out: {len(out)}", columns, rows)]
    if len(out) > SHOWN_OUT:
        blocks.append(Words(f"and {len(out) - SHOWN_OUT} more: {all_of_them}"))
    return blocks


def most_telling(out: Sequence[ContextDecisionTrace]) -> list[ContextDecisionTrace]:
    """Return what stayed out, the reasons that say most about the sources first, then by score."""
    order = {code: place for place, code in enumerate(MOST_TELLING)}
    return sorted(
        out, key=lambda trace: (order.get(trace.excluded_reason or "", len(order)), -trace.score)
    )


def way_in(trace: ContextDecisionTrace) -> str:
    """Return what would have let an excluded item in."""
    return trace.counterfactual or WAYS_IN.get(trace.excluded_reason or "", "")


def _next(
    pack: ContextPack, out: Sequence[ContextDecisionTrace], hint: Callable[..., str], *, kept: bool
) -> Words:
    snapshot = pack.snapshot_id
    # What came with the request (task, state, messages) is not in the index, so it is no example to
    # look up.
    shown = (
        item.item_id
        for item in pack.items
        if not item.item_id.partition(":")[2].startswith("request/")
    )
    item = next((trace.item_id for trace in most_telling(out)), None) or next(shown, "ITEM")
    if not kept:
        return Words(f"Next\n  {hint('why-not', item)}  # may you see it at all")
    lines = (
        (hint("explain", snapshot), "every candidate, in or out, and why"),
        (hint("why", snapshot, item), "one of them in full"),
        (hint("why-not", item), "may you see it at all"),
        (hint("replay", snapshot), "the very text the model sees"),
        (hint("diff", snapshot, "OTHER"), "what changed since another snapshot"),
    )
    width = max(len(line) for line, _ in lines)
    return Words("Next\n" + "\n".join(f"  {line.ljust(width)}  # {words}" for line, words in lines))
