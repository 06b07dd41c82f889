"""Publish metric definitions: check them, show whom they reach, and switch every process to them in
one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.config.settings import SourceConfig, load_config
from ctx_pipeline.contracts import BuildReport
from ctx_pipeline.contracts.publish import PublishedFile, PublishReport
from ctx_pipeline.errors import InvalidRequest, Unavailable
from ctx_pipeline.index.artifact import read_pointer
from ctx_pipeline.index.labels import is_tie
from ctx_pipeline.index.overlay import fold
from ctx_pipeline.orchestration.build import LOCK_SECONDS
from ctx_pipeline.orchestration.build import build as build_project
from ctx_pipeline.registry.files import DefinitionFile, Target, find_targets, write_targets
from ctx_pipeline.registry.review import Review, choose_registry, review
from ctx_pipeline.registry.stored import Version, read_versions
from ctx_pipeline.times import utc_now
from ctx_pipeline.workspace import Workspace, read_ledger

__all__ = ["DefinitionFile", "check", "publish"]

ACTOR = "publish"
MAX_NAMED = 5
_LATER = (
    "the next `ctx build`, or the superseded_versions sensor, serves the new versions; "
    "until then the ones before are"
)

File = Path | str | DefinitionFile


def check(
    home: str | Path,
    files: Sequence[File],
    *,
    source: str | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> PublishReport:
    """Say what is wrong with files of definitions and what publishing them would change. Writes
    nothing.

    Works before anything has been built: then every definition is new, and tables are not checked.

    Raises:
        ConfigError, NotFound: there is no such registry.
        InvalidRequest: a file cannot be read or has no place in the registry.
    """
    loaded = load_config(Path(home).expanduser().resolve())
    registry = choose_registry(loaded.config, source)
    now = clock()
    targets = find_targets(registry, loaded.home, files)
    from ctx_pipeline.index.store import Store

    with read_ledger(loaded.home, loaded.config.ledger) or nullcontext() as ledger:
        found = review(
            loaded.home,
            loaded.config,
            registry,
            targets,
            store=Store.of_project(loaded.home),
            ledger=ledger,
            now=now,
        )
    return _report(registry, targets, found, now)


def publish(
    home: str | Path,
    files: Sequence[File],
    *,
    source: str | None = None,
    yes: bool = False,
    build: bool = True,
    progress: bool = False,
    lock_seconds: float = LOCK_SECONDS,
    clock: Callable[[], datetime] = utc_now,
) -> PublishReport:
    """Put files of definitions into a registry and make them live; when one has an error, nothing
    is written.

    A file takes the place of the one of the same name in the registry's folder; one that lies there
    is published as it is. Readers go from an old version to the new one in one step, with the
    pointer of the artifact that has both: at every instant exactly one is live, whenever this call
    is killed. Once it returns with `served`, no process shows a version that was replaced and whose
    successor has begun. With `build=False` the old versions stay until the next build. Definitions
    that are removed are shown by no process from then on, built or not.

    Publishing the same again changes nothing, and finishes what a killed call has left. A file that
    lies in the registry and is not named is read as it is there: its changes become live as well.

    Args:
        home: Folder of `ctx.toml`.
        files: Paths, or contents with their names.
        source: The registry; None: the only one.
        yes: Whether definitions may be removed.
        build: Whether to build what agents are shown.
        progress: Whether the build tells on stderr how far it is.
        lock_seconds: How long to wait for another build that runs.
        clock: The time at which it takes effect.

    Returns:
        The report; `published` is False when a finding is an error.

    Raises:
        ConfigError, NotFound: there is no such registry.
        InvalidRequest: a file cannot be read, has no place in the registry, or would remove
            definitions without `yes` (`removal_not_confirmed`).
        Unavailable: the registry or the store cannot be written.
        CtxError: what the build raised; the old versions are served until one succeeds.
    """
    with Workspace.open(Path(home).expanduser(), clock=clock) as workspace:
        report, last = _record(workspace, files, source, yes=yes)
        if report.published:
            report = _with_build(
                report, workspace, wanted=build, progress=progress, lock_seconds=lock_seconds
            )
        return report.model_copy(
            update={"served": report.published and last <= _absorbed(workspace)}
        )


def _record(
    workspace: Workspace, files: Sequence[File], source: str | None, *, yes: bool
) -> tuple[PublishReport, int]:
    """Check the files, and write and record them where nothing is wrong; also return the store's
    last number.
    """
    registry = choose_registry(workspace.config, source)
    with workspace.store.writer():
        now = workspace.clock()
        targets = find_targets(registry, workspace.home, files)
        found = review(
            workspace.home,
            workspace.config,
            registry,
            targets,
            store=workspace.store,
            ledger=workspace.ledger,
            now=now,
        )
        report = _report(registry, targets, found, now)
        if not found.is_refused:
            if found.removed and not yes:
                raise _unconfirmed(found)
            _write(workspace, registry, targets, found)
            report = _written(report, _replaced(workspace, registry, now))
        return report, workspace.store.max_seq()


def _report(
    registry: SourceConfig, targets: Sequence[Target], found: Review, now: datetime
) -> PublishReport:
    counts = Counter(change.change for change in found.changes)
    files = [
        PublishedFile.model_validate({"path": target.shown, "status": target.status})
        for target in targets
    ]
    return PublishReport(
        source=registry.name,
        published=False,
        at=now,
        files=tuple(files),
        findings=found.findings,
        changes=found.changes,
        added=counts["added"],
        changed=counts["changed"],
        removed=counts["removed"],
        unchanged=counts["unchanged"],
    )


def _unconfirmed(found: Review) -> InvalidRequest:
    names = [
        change.item_id if change.new_version is None else f"{change.item_id}@{change.old_version}"
        for change in found.removed
    ]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return InvalidRequest(
        f"publishing would remove {', '.join(names[:MAX_NAMED])}{more}; nothing was written",
        where="publish",
        fix="see who uses them with --check, and confirm with --yes",
        code="removal_not_confirmed",
    )


def _write(
    workspace: Workspace, registry: SourceConfig, targets: Sequence[Target], found: Review
) -> None:
    """Write files and store, in this order.

    Each step is repeated safely, and none is seen before a build.
    """
    write_targets(targets)
    refresh_source(
        workspace,
        registry.name,
        reading=found.reading,
        confirmed_by=ACTOR if found.removed else None,
    )


def _written(report: PublishReport, replaced: Sequence[tuple[str, datetime]]) -> PublishReport:
    return report.model_copy(
        update={
            "published": True,
            "superseded": tuple(name for name, _ in replaced),
            "superseded_from": tuple(end for _, end in replaced),
        }
    )


def _replaced(
    workspace: Workspace, registry: SourceConfig, now: datetime
) -> list[tuple[str, datetime]]:
    """Return what the published artifact shows and the record has a successor of, and from when
    that counts.
    """
    patches = fold(workspace.ledger.overlay_since(0))
    versions = read_versions(workspace.store.scan(), registry.name, patches)
    return list(_overtaken(versions, _absorbed(workspace), now))


def _absorbed(workspace: Workspace) -> int:
    """Return up to which sequence the published artifact knows the store."""
    pointer = read_pointer(workspace.layout)
    return 0 if pointer is None else int(pointer["generation"]["store_sequence"])


def _overtaken(
    versions: Mapping[tuple[str, str], tuple[Version, ...]], absorbed: int, now: datetime
) -> Iterator[tuple[str, datetime]]:
    """Yield every version that a later one replaces which the published artifact does not know yet,
    and when. Pure.

    It ends when the first successor begins.
    """
    for (_, item_id), chain in versions.items():
        for at, version in enumerate(chain):
            later = [
                (max(now, other.item.valid_from or now), other.seq <= absorbed)
                for other in chain[at + 1 :]
                if not is_tie(version.item, other.item)
            ]
            known = [end for end, is_known in later if is_known]
            new = [end for end, is_known in later if not is_known]
            if new and not (known and min(known) <= min(new)):
                yield f"{item_id}@{version.item.version}", min(new)


def _is_behind(workspace: Workspace) -> bool:
    """Whether the published artifact does not know all that the record holds."""
    pointer = read_pointer(workspace.layout)
    if pointer is None:
        return True
    known = pointer["generation"]
    sequences = (workspace.store.max_seq(), workspace.ledger.overlay_sequence())
    return (int(known["store_sequence"]), int(known["overlay_sequence"])) != sequences


def _with_build(
    report: PublishReport,
    workspace: Workspace,
    *,
    wanted: bool,
    progress: bool,
    lock_seconds: float,
) -> PublishReport:
    if not _is_behind(workspace):
        return report.model_copy(update={"note": "what agents are shown is up to date"})
    if not wanted:
        return report.model_copy(update={"note": f"not built: {_LATER}"})
    try:
        built: BuildReport = build_project(
            workspace.home,
            select=f"sources/{report.source}+",
            progress=progress,
            lock_seconds=lock_seconds,
        )
    except Unavailable as busy:
        if busy.stable_code != "build_busy":
            raise
        return report.model_copy(update={"note": f"another build runs: {_LATER}"})
    return report.model_copy(update={"build": built})
