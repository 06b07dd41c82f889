"""How everything but a pack looks to a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ctx_pipeline.cli.skipped import skipped_files
from ctx_pipeline.cli.views import (
    ITEM_CELLS,
    TEXT_CELLS,
    Block,
    Column,
    Grid,
    Words,
    cell,
    error_words,
    number,
    short,
    way_in,
    why_in,
)
from ctx_pipeline.contracts.codes import LOADED_ALL_THE_SAME

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ctx_pipeline.config.settings import SettingRow
    from ctx_pipeline.contracts import (
        BuildReport,
        ContextDecisionTrace,
        ContextSnapshot,
        DiffEntry,
        IndexPin,
        LifecycleEvent,
        RetireReport,
        SnapshotDiff,
        SourceReport,
    )
    from ctx_pipeline.index.history import IndexChange, KeptArtifact
    from ctx_pipeline.inspection.items import ItemRow, Probe
    from ctx_pipeline.ledger import RecallNotice
    from ctx_pipeline.orchestration.backfill import BackfillReport
    from ctx_pipeline.orchestration.doctor import Diagnosis

Hint = Callable[..., str]

HASH_CHARS = 16
"""Characters of a content hash in tables."""


def moment(value: datetime | None) -> str:
    """Return a time as tables show it: UTC, to the second."""
    return "never" if value is None else f"{value:%Y-%m-%d %H:%M:%SZ}"


def made_view(home: Path, files: Sequence[Path], hint: Hint) -> list[Block]:
    """Return what `init` wrote."""
    names = "\n".join(f"  {path.relative_to(home).as_posix()}" for path in files)
    return [
        Words(f"Created a context project in {home}\n{names}"),
        Words(f"Next\n  {hint('build')}\n  {hint('assemble', 'what does GMV mean?')}"),
    ]


def demo_view(home: Path, snapshots: Mapping[str, str], hint: Hint) -> list[Block]:
    """Return what to try after the demo."""
    english, chinese = snapshots["en"], snapshots["zh"]
    lines = [
        (hint("replay", english), "the very text the model sees"),
        (hint("explain", chinese), "why each candidate is in or out"),
        (hint("diff", english, chinese), "what one question brings in and the other does not"),
        (hint("items", "--kind", "metric"), "the metric definitions you can see"),
        (
            hint("assemble", "why did GMV fall in October?", "--budget", "2000"),
            "your own question, on a small budget",
        ),
        (hint("status"), "how fresh each source is"),
    ]
    width = max(len(line) for line, _ in lines)
    text = "\n".join(f"  {line.ljust(width)}  # {words}" for line, words in lines)
    return [Words(f"The demo project is in {home}"), Words(f"What to try next\n{text}")]


def build_view(report: BuildReport, hint: Hint) -> list[Block]:
    """Return what a build did, source by source, and every file it could not load."""
    withheld = any(source.withheld for source in report.sources)
    shown = (
        "items added reused retired withheld files errors"
        if withheld
        else "items added reused retired files errors"
    )
    names = shown.split()
    columns = (
        Column("source", style="cyan"),
        Column("kind"),
        *(Column(name, right=True) for name in names),
    )
    rows = [
        (source.name, source.kind, *map(number, _counts(source, withheld)))
        for source in report.sources
    ]
    blocks: list[Block] = [Grid("Sources", columns, rows)] if rows else []
    lost = [error for error in report.errors if error.code not in LOADED_ALL_THE_SAME]
    noted = [error for error in report.errors if error.code in LOADED_ALL_THE_SAME]
    if lost:
        blocks.append(error_words(f"Not loaded: {len(lost)}; everything else is", lost, hint))
    if noted:
        blocks.append(error_words(f"Loaded, but not as it stands there: {len(noted)}", noted, hint))
    blocks += skipped_files(report)
    blocks.append(
        Words(
            f"{number(report.items)} live items, {number(report.embedded)} "
            f"embedded, {number(report.reused)} reused, "
            f"{number(report.retired)} retired in {report.seconds:.1f} s\n{artifact_words(report)}"
        )
    )
    return [*blocks, *pin_blocks(report, hint)]


def artifact_words(report: BuildReport) -> str:
    """Return what a build put before agents."""
    if report.artifact is not None:
        return f"artifact {report.artifact}"
    return (
        "nothing published" if report.pin is None else "nothing new is served: the index is pinned"
    )


def pin_blocks(report: BuildReport, hint: Hint) -> list[Block]:
    """Return what a build found of a pin, or made of it."""
    ended = report.pin_ended
    blocks = [] if ended is None else [Words(f"The index is no longer pinned: {ended}", "yellow")]
    return [*blocks, *([] if report.pin is None else [pin_words(report.pin, hint)])]


def _counts(source: SourceReport, withheld: bool) -> tuple[int, ...]:
    waiting = (source.withheld,) if withheld else ()
    return (
        source.items,
        source.added,
        source.reused,
        source.retired,
        *waiting,
        len(source.files),
        len(source.errors),
    )


def retire_view(report: RetireReport, hint: Hint, *, tenant: str | None = None) -> list[Block]:
    """Return what was retired or restored; `tenant` is the one that was named."""
    if not report.count:
        return [
            Words(
                f"Nothing to change: source {report.source!r} has everything it had"
                if report.source
                else "It is retired already"
            )
        ]
    words = "Restored" if report.action == "restored" else "Retired"
    of = f" of {number(report.live)} items of source {report.source!r}" if report.source else ""
    columns = (
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("tenant"),
    )
    rows = [(item.item_id, item.version or "all", item.tenant) for item in report.items]
    blocks: list[Block] = [
        Words(f"{words} {number(report.count)}{of}: {report.reason}"),
        Grid("", columns, rows),
    ]
    if report.count > len(rows):
        blocks.append(Words(f"and {number(report.count - len(rows))} more"))
    if report.source is None and report.action == "retired":
        item = report.items[0]
        flags = [
            *(["--version", item.version] if item.version else []),
            *(["--tenant", tenant] if tenant else []),
        ]
        blocks.append(Words(f"Back with\n  {hint('retire', '--undo', item.item_id, *flags)}"))
    return blocks


def pin_words(pin: IndexPin, hint: Hint) -> Block:
    """Return that the index is pinned, since when and why."""
    lines = [
        f"The index is pinned to {pin.artifact[:HASH_CHARS]} since "
        f"{moment(pin.since)}: {cell(pin.reason)}"
    ]
    if pin.waiting is not None:
        lines.append(f"Built meanwhile and not served: {pin.waiting[:HASH_CHARS]}")
    if pin.closed:
        lines.append(
            f"{number(pin.closed)} items in it have been closed to some since it was built"
        )
    return Words("\n".join([*lines, f"  {hint('index', 'unpin')}"]), "yellow")


def artifacts_view(kept: Sequence[KeptArtifact], pin: IndexPin | None, hint: Hint) -> list[Block]:
    """Return the artifacts that are kept."""
    if not kept:
        return [Words(f"Nothing built yet\n  {hint('build')}")]
    columns = (
        Column("artifact", style="cyan"),
        Column("built"),
        *(Column(name, right=True) for name in ("store", "overlay", "rows", "MiB")),
        Column("embedder"),
        Column("state"),
    )
    rows = [
        (
            one.artifact[:HASH_CHARS],
            moment(one.built_at),
            *map(number, (one.store_sequence, one.overlay_sequence, one.rows)),
            f"{one.bytes / 1024**2:,.1f}",
            one.embedder,
            "pinned" if one.pinned else "current" if one.current else "",
        )
        for one in kept
    ]
    return [Grid("", columns, rows), *([pin_words(pin, hint)] if pin else [])]


def index_change_view(change: IndexChange, hint: Hint) -> list[Block]:
    """Return what is served now."""
    same = change.before == change.now
    words = f"Serving {change.now[:HASH_CHARS]}" + (
        ", as before" if same else f", before {change.before[:HASH_CHARS]}"
    )
    return [Words(words), *([pin_words(change.pin, hint)] if change.pin else [])]


def backfill_view(report: BackfillReport) -> list[Block]:
    """Return what a build of partitions did."""
    columns = (
        Column("asset", style="cyan"),
        *(Column(name, right=True) for name in ("built", "built before")),
        Column("from"),
        Column("to"),
    )
    rows = [
        (
            part.asset,
            number(len(part.built)),
            number(part.skipped),
            part.built[0] if part.built else "",
            part.built[-1] if part.built else "",
        )
        for part in report.assets
    ]
    return [Grid("Partitions", columns, rows), Words(f"done in {report.seconds:.1f} s")]


def explain_view(
    snapshot_id: str, traces: Sequence[ContextDecisionTrace], hint: Hint
) -> list[Block]:
    """Return every candidate of a call: what went in, then what stayed out."""
    chosen = [trace for trace in traces if trace.selected]
    out = [trace for trace in traces if not trace.selected]
    head = f"Snapshot {snapshot_id}: {len(traces)} candidates, {len(chosen)} in, {len(out)} out"
    left = (
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("found by", flexible=TEXT_CELLS),
        Column("score", right=True),
        Column("authority", right=True),
        Column("tokens", right=True),
    )
    inside = [
        (*_candidate(trace), trace.rendition.value if trace.rendition else "", why_in(trace))
        for trace in chosen
    ]
    outside = [(*_candidate(trace), str(trace.excluded_reason), way_in(trace)) for trace in out]
    blocks: list[Block] = [
        Words(head),
        Grid("In", (*left, Column("shown"), Column("why in", flexible=TEXT_CELLS)), inside),
    ]
    if out:
        columns = (
            *left,
            Column("reason", style="yellow"),
            Column("what would let it in", flexible=TEXT_CELLS),
        )
        blocks.append(Grid("Out", columns, outside))
    if traces:
        blocks.append(
            Words(
                "Next\n  "
                f"{hint('why', snapshot_id, (out or chosen)[0].item_id)}\n  "
                f"{hint('replay', snapshot_id)}"
            )
        )
    return blocks


def _candidate(trace: ContextDecisionTrace) -> tuple[str, ...]:
    found = ", ".join(trace.discovered_by)
    return (
        trace.item_id,
        short(trace.version),
        found,
        f"{trace.score:.3f}",
        str(trace.authority),
        number(trace.token_cost),
    )


def why_view(traces: Sequence[ContextDecisionTrace]) -> list[Block]:
    """Return every trace of one item in full."""
    blocks: list[Block] = []
    for trace in traces:
        failed = [step.rule for step in trace.filters if not step.passed]
        facts = [
            ("decision", "in" if trace.selected else "out"),
            ("reason", why_in(trace) if trace.selected else str(trace.excluded_reason)),
            ("what would let it in", "" if trace.selected else way_in(trace)),
            ("title", trace.title),
            ("kind", trace.kind),
            ("found by", ", ".join(trace.discovered_by)),
            ("brought in by", trace.parent_item_id or ""),
            ("visibility", "passed every rule" if not failed else f"failed {', '.join(failed)}"),
            ("score", f"{trace.score:.4f}"),
            ("authority", str(trace.authority)),
            ("freshness", f"{trace.freshness:.2f}"),
            ("tokens", number(trace.token_cost)),
            ("shown", trace.rendition.value if trace.rendition else ""),
            *(
                (f"feature {name}", f"{value:.4f}")
                for name, value in sorted(trace.features.items())
            ),
        ]
        rows = [fact for fact in facts if fact[1]]
        blocks.append(
            Grid(
                f"{trace.item_id} @ {trace.version}",
                (Column("fact", style="cyan"), Column("value", flexible=TEXT_CELLS)),
                rows,
            )
        )
    return blocks


def probes_view(probes: Sequence[Probe], hint: Hint) -> list[Block]:
    """Return what the visibility rules say of each version of an item."""
    rows = [
        (
            probe.item_id,
            probe.version,
            "visible" if probe.visible else "hidden",
            str(probe.code or ""),
        )
        for probe in probes
    ]
    columns = (
        Column("item", flexible=ITEM_CELLS),
        Column("version"),
        Column("to you"),
        Column("reason", style="yellow"),
    )
    words = (
        "You may see it; whether it goes into a pack is decided per request"
        if any(p.visible for p in probes)
        else "No version is visible to you now"
    )
    return [
        Grid("", columns, rows),
        Words(f"{words}\n  {hint('items', 'history', probes[0].item_id)}" if probes else words),
    ]


def diff_view(diff: SnapshotDiff) -> list[Block]:
    """Return what changed between two snapshots, each with its reason."""
    kinds = (
        ("entered", diff.entered),
        ("left", diff.left),
        ("rendition changed", diff.rendition_changed),
        ("moved", diff.moved),
    )
    head = Words(f"From {diff.a}\nto   {diff.b}")
    rows = [
        (kind, entry.item_id, short(entry.version), _step(entry), entry.reason)
        for kind, entries in kinds
        for entry in entries
    ]
    if not rows:
        return [head, Words("Nothing changed")]
    columns = (
        Column("change", style="cyan"),
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("from, to"),
        Column("reason", flexible=TEXT_CELLS),
    )
    return [head, Grid("", columns, rows)]


def _step(entry: DiffEntry) -> str:
    if entry.before is None:
        return entry.after or ""
    return f"{entry.before} -> {entry.after or 'out'}"


def items_view(rows: Sequence[ItemRow], limit: int, hint: Hint) -> list[Block]:
    """Return the items that an identity can see."""
    if not rows:
        built, hidden = hint("status"), hint("why-not", "ITEM")
        return [
            Words(
                f"No items that you can see\n  {built}  # what has been "
                f"built\n  {hidden}  # why one is hidden"
            )
        ]
    columns = (
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("authority", right=True),
        Column("trust"),
        Column("tokens", right=True),
        Column("title", flexible=TEXT_CELLS),
    )
    lines = [
        (
            row.item_id,
            short(row.version),
            str(row.authority),
            row.trust,
            number(row.tokens),
            row.title,
        )
        for row in rows
    ]
    blocks: list[Block] = [Grid("", columns, lines)]
    if len(rows) == limit:
        blocks.append(
            Words(f"The first {limit}; raise --limit, or narrow with --kind and --source")
        )
    return blocks


def history_view(events: Sequence[LifecycleEvent]) -> list[Block]:
    """Return the life of an item in order."""
    if not events:
        return [Words("Nothing has happened to it yet")]
    columns = (
        Column("when"),
        Column("version", style="dim"),
        Column("from"),
        Column("to", style="cyan"),
        Column("reason"),
        Column("by"),
        Column("snapshot"),
    )
    rows = [
        (
            moment(event.at),
            short(event.version),
            str(event.from_state or ""),
            event.to_state.value,
            event.reason,
            event.actor,
            event.snapshot_id or "",
        )
        for event in events
    ]
    return [Grid("", columns, rows)]


def recalls_view(notices: Sequence[RecallNotice], limit: int, hint: Hint) -> list[Block]:
    """Return recall notices, oldest first."""
    if not notices:
        return [Words("Nothing that your calls were shown has been recalled")]
    columns = (
        Column("number", right=True),
        Column("when"),
        Column("item", flexible=ITEM_CELLS),
        Column("version", style="dim"),
        Column("code", style="yellow"),
        Column("shown in", right=True),
        Column("newest of yours"),
    )
    rows = [
        (
            str(notice.sequence),
            moment(notice.at),
            notice.item_id,
            short(notice.version),
            notice.code,
            number(notice.snapshots),
            next(iter(notice.snapshot_ids), ""),
        )
        for notice in notices
    ]
    blocks: list[Block] = [Grid("Recalled", columns, rows)]
    if len(notices) == limit:
        blocks.append(Words(f"The first {limit}; go on with --since {notices[-1].sequence}"))
    return [*blocks, Words(f"Next\n  {hint('items', 'history', notices[-1].item_id)}")]


def snapshots_view(snapshots: Sequence[ContextSnapshot], hint: Hint) -> list[Block]:
    """Return the latest snapshots, newest first."""
    if not snapshots:
        return [Words(f"No snapshots yet\n  {hint('assemble', 'what does GMV mean?')}")]
    columns = (
        Column("snapshot"),
        Column("clock"),
        Column("model"),
        Column("run"),
        Column("turn"),
        Column("items", right=True),
        Column("tokens", right=True),
    )
    rows = [
        (
            kept.snapshot_id,
            moment(kept.clock),
            kept.model_id,
            kept.run_id,
            kept.turn_id,
            number(len(kept.items)),
            number(kept.total_tokens),
        )
        for kept in snapshots
    ]
    return [
        Grid("Your latest snapshots", columns, rows),
        Words(f"Next\n  {hint('explain', snapshots[0].snapshot_id)}"),
    ]


def config_view(rows: Sequence[SettingRow], *, origin: bool) -> list[Block]:
    """Return the settings in force."""
    columns = (
        Column("key", style="cyan"),
        Column("value", flexible=TEXT_CELLS),
        *((Column("origin", style="dim"),) if origin else ()),
    )
    return [Grid("", columns, [tuple(row) if origin else (row.key, row.value) for row in rows])]


def doctor_view(diagnosis: Diagnosis) -> list[Block]:
    """Return every check with its fix."""
    rows = [(check.state, check.name, check.message, check.fix) for check in diagnosis.checks]
    counts = {
        state: sum(check.state == state for check in diagnosis.checks)
        for state in ("ok", "warn", "fail")
    }
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    return [
        Grid(
            "",
            (
                Column("state"),
                Column("check", style="cyan"),
                Column("finding", flexible=TEXT_CELLS),
                Column("fix", flexible=TEXT_CELLS),
            ),
            rows,
        ),
        Words(words),
    ]
