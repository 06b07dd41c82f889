"""Publish metric definitions: check them, show whom they reach, and make them live for every process at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.config.settings import SourceConfig, load_config
from ctx_pipeline.contracts import BuildReport
from ctx_pipeline.contracts.publish import PublishedFile, PublishReport
from ctx_pipeline.errors import InvalidRequest, Unavailable
from ctx_pipeline.index.artifact import read_pointer
from ctx_pipeline.index.labels import is_tie
from ctx_pipeline.index.overlay import ItemKey, Patch, fold
from ctx_pipeline.orchestration.build import build as build_project
from ctx_pipeline.registry.files import DefinitionFile, Target, find_targets, write_targets
from ctx_pipeline.registry.review import Review, choose_registry, review
from ctx_pipeline.registry.stored import Version, read_versions
from ctx_pipeline.security.visibility import micros
from ctx_pipeline.times import utc_now
from ctx_pipeline.workspace import state_folder

if TYPE_CHECKING:
    from ctx_pipeline.ledger import Ledger, OverlayEntry

__all__ = ["DefinitionFile", "check", "publish"]

ACTOR = "publish"
BUILD_LOCK_SECONDS = 2.0
"""How long publishing waits for a build that runs; what is live does not depend on it."""
MAX_NAMED = 5

File = Path | str | DefinitionFile


def check(
    home: str | Path,
    files: Sequence[File],
    *,
    source: str | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> PublishReport:
    """Say what is wrong with files of definitions and what publishing them would change. Writes nothing.

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

    with _open_record(loaded.home, loaded.config.ledger.url is not None) as ledger:
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


def _open_record(home: Path, remote: bool) -> Ledger | nullcontext[None]:
    """Open the ledger for reading; None when there is none yet."""
    from ctx_pipeline.ledger import Ledger

    if remote:
        url = load_config(home).config.ledger.url
        assert url is not None
        return Ledger.open(url.get_secret_value(), readonly=True)
    path = state_folder(home) / "ledger.db"
    return Ledger.open(path, readonly=True) if path.exists() else nullcontext()


def publish(
    home: str | Path,
    files: Sequence[File],
    *,
    source: str | None = None,
    yes: bool = False,
    build: bool = True,
    progress: bool = False,
    clock: Callable[[], datetime] = utc_now,
) -> PublishReport:
    """Put files of definitions into a registry and make them live; when one has an error, nothing is written.

    A file takes the place of the one of the same name in the registry's folder; one that lies there is published as it
    is. Once this returns, no process shows a version that was replaced and whose successor has begun, nor a definition
    that was removed. New versions are shown when they are built: by this call, or with `build=False` by the next build.

    Publishing the same again changes nothing, and finishes what a killed call has left. A file that lies in the
    registry and is not named is read as it is there: its changes become live as well.

    Args:
        home: Folder of `ctx.toml`.
        files: Paths, or contents with their names.
        source: The registry; None: the only one.
        yes: Whether definitions may be removed.
        build: Whether to build what agents are shown. A build that runs is not waited for.
        progress: Whether the build tells on stderr how far it is.
        clock: The time at which it takes effect.

    Returns:
        The report; `published` is False when a finding is an error.

    Raises:
        ConfigError, NotFound: there is no such registry.
        InvalidRequest: a file cannot be read, has no place in the registry, or would remove definitions without `yes`
            (`removal_not_confirmed`).
        Unavailable: the registry or the store cannot be written.
    """
    with Pipeline(Path(home).expanduser(), clock=clock) as pipeline:
        registry = choose_registry(pipeline.config, source)
        with pipeline.store.writer():
            now = clock()
            targets = find_targets(registry, pipeline.home, files)
            found = review(
                pipeline.home,
                pipeline.config,
                registry,
                targets,
                store=pipeline.store,
                ledger=pipeline.ledger,
                now=now,
            )
            report = _report(registry, targets, found, now)
            if found.is_refused:
                return report
            if found.removed and not yes:
                raise _unconfirmed(found)
            replaced = _write(pipeline, registry, targets, found, now)
        report = _live(report, replaced)
        behind = _is_behind(pipeline)
    return _with_build(report, pipeline.home, wanted=build, behind=behind, progress=progress)


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
    pipeline: Pipeline,
    registry: SourceConfig,
    targets: Sequence[Target],
    found: Review,
    now: datetime,
) -> list[OverlayEntry]:
    """Write files, store and overlay, in this order; return what is superseded. Each step is repeated safely."""
    write_targets(targets)
    pipeline.refresh_source(
        registry.name, batch=found.batch, confirmed_by=ACTOR if found.removed else None
    )
    patches = fold(pipeline.ledger.overlay_since(0))
    versions = read_versions(pipeline.store.scan(), registry.name, patches)
    entries = list(_supersessions(versions, patches, _absorbed(pipeline), now))
    pipeline.ledger.append_overlay(entries)
    return entries


def _live(report: PublishReport, replaced: Sequence[OverlayEntry]) -> PublishReport:
    return report.model_copy(
        update={
            "published": True,
            "superseded": tuple(f"{entry.item_id}@{entry.version}" for entry in replaced),
            "superseded_from": tuple(entry.effective_at for entry in replaced),
        }
    )


def _absorbed(pipeline: Pipeline) -> int:
    """Return up to which sequence the published artifact knows the store."""
    pointer = read_pointer(pipeline.layout)
    return 0 if pointer is None else int(pointer["generation"]["store_sequence"])


def _supersessions(
    versions: Mapping[tuple[str, str], tuple[Version, ...]],
    patches: Mapping[ItemKey, Patch],
    absorbed: int,
    now: datetime,
) -> Iterator[OverlayEntry]:
    """Yield an entry for every version whose successor the published artifact does not know yet. Pure.

    It takes effect when the first successor begins. A version that is marked already is not marked again.
    """
    from ctx_pipeline.ledger import OverlayEntry

    for (tenant, item_id), chain in versions.items():
        for at, version in enumerate(chain):
            later = [
                (max(now, other.item.valid_from or now), other.seq <= absorbed, other.item.version)
                for other in chain[at + 1 :]
                if not is_tie(version.item, other.item)
            ]
            known = [end for end, is_known, _ in later if is_known]
            new = [(end, successor) for end, is_known, successor in later if not is_known]
            if not new or (known and min(known) <= min(new)[0]):
                continue
            ends, successor = min(new)
            patch = patches.get((tenant, item_id, version.item.version))
            if (
                patch is not None
                and patch.marked_at is not None
                and patch.marked_at <= micros(ends)
            ):
                continue
            yield OverlayEntry(
                code="superseded",
                tenant=tenant,
                item_id=item_id,
                version=version.item.version,
                effective_at=ends,
                recorded_at=now,
                actor=ACTOR,
                reason=f"version {successor} was published",
            )


def _is_behind(pipeline: Pipeline) -> bool:
    """Whether the published artifact does not know all that the record holds."""
    pointer = read_pointer(pipeline.layout)
    if pointer is None:
        return True
    known = pointer["generation"]
    sequences = (pipeline.store.max_seq(), pipeline.ledger.overlay_sequence())
    return (int(known["store_sequence"]), int(known["overlay_sequence"])) != sequences


def _with_build(
    report: PublishReport, home: Path, *, wanted: bool, behind: bool, progress: bool
) -> PublishReport:
    if not behind:
        return report.model_copy(update={"note": "what agents are shown is up to date"})
    if not wanted:
        note = "not built: the next `ctx build` or the superseded_versions sensor shows the new versions"
        return report.model_copy(update={"note": note})
    try:
        built: BuildReport = build_project(
            home,
            select=f"sources/{report.source}+",
            progress=progress,
            lock_seconds=BUILD_LOCK_SECONDS,
        )
    except Unavailable as busy:
        if busy.stable_code != "build_busy":
            raise
        note = "another build runs: the next one, or the superseded_versions sensor, shows the new versions"
        return report.model_copy(update={"note": note})
    return report.model_copy(update={"build": built})
