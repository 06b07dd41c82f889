"""One asset per `[[sources]]` entry: reading it brings the store up to date."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg

from ctx_pipeline.assets.checks import (
    past_changes,
    source_check_results,
    source_check_specs,
    tool_check_results,
    tools_in_use,
)
from ctx_pipeline.assets.definition_check import definition_check_results
from ctx_pipeline.assets.metadata import (
    SAMPLE_ROWS,
    errors_table,
    files_table,
    freshness_policy,
    is_open,
    owner_of,
    stays_fresh,
)
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.building.stage_result import shown_id
from ctx_pipeline.contracts import FileCode
from ctx_pipeline.index.facts import scope_label
from ctx_pipeline.index.lance import FORMAT_VERSION
from ctx_pipeline.resources import BuildSession
from ctx_pipeline.sources.fingerprint import source_fingerprint
from ctx_pipeline.sources.units import reading_version

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import ProjectConfig, SourceConfig
    from ctx_pipeline.contracts import SourceReport
    from ctx_pipeline.workspace import Workspace

GROUP = "sources"
STORE_POOL = "ctx_store"
"""Assets that append to the item store; the store takes one writer at a time."""
NETWORK_RETRIES = dg.RetryPolicy(
    max_retries=2, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)
"""Two more attempts, after about 2 and 6 seconds; what lasts longer is left to the next reading."""
_PASSING = frozenset({FileCode.UNREADABLE, FileCode.FETCH_FAILED})
_ON_THIS_DISK = ("file://", "local://", "memory://", "sqlite:", "duckdb:", "zip://", "tar://")
LOOK = "looked_like"
"""Metadata: the fingerprint that the source had right before it was read."""


def source_key(name: str) -> dg.AssetKey:
    """Return the asset key of a source."""
    return dg.AssetKey([GROUP, name])


def source_assets(config: ProjectConfig) -> list[dg.AssetsDefinition]:
    """Return one asset per source, in the order of `ctx.toml`."""
    return [_source_asset(source) for source in config.sources]


def _source_asset(source: SourceConfig) -> dg.AssetsDefinition:
    key = source_key(source.name)
    retries = NETWORK_RETRIES if is_remote(source) else None

    @dg.asset(
        key=key,
        group_name=GROUP,
        kinds={source.kind.value, "lancedb"},
        owners=owner_of(source.owner),
        description=_description(source),
        code_version=f"store-{FORMAT_VERSION}+reading-{reading_version()[:12]}",
        freshness_policy=None if source.freshness is None else freshness_policy(source.freshness),
        automation_condition=stays_fresh(bootstrap=True),
        check_specs=source_check_specs(source, key),
        pool=STORE_POOL,
        retry_policy=retries,
        tags={"ctx/when_to_load": source.when_to_load.value} if source.when_to_load else None,
    )
    # Dagster compares the annotation with the bare class.
    def read_source(  # pyright: ignore[reportUnknownParameterType]
        ctx_session: dg.ResourceParam[BuildSession],
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:  # pyright: ignore[reportMissingTypeArgument]
        yield from _read(source, ctx_session, retries)

    return read_source


def _read(
    source: SourceConfig, session: BuildSession, retries: dg.RetryPolicy | None
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:  # pyright: ignore[reportMissingTypeArgument]
    """Read a source; yield what its checks found, then what it holds."""
    key = source_key(source.name)
    workspace = session.workspace
    with session.step(key.to_user_string()):
        # Before reading: what changes meanwhile looks different afterwards, and is read once more.
        look = source_fingerprint(source, workspace.home)
        before, tools = workspace.store.max_seq(), tools_in_use(source, workspace)
        started = time.monotonic()
        report = refresh_source(workspace, source.name)
        seconds = round(time.monotonic() - started, 3)
        if retries is not None and _is_unreachable(report):
            _try_again(retries)
        session.sources.append(report)
        observed = workspace.ledger.sources()[source.name]
        sample = _sample(workspace, source)
        past = past_changes(dg.AssetExecutionContext.get().instance, key)
        changes = source_check_results(source, workspace, report, before, past)
        sound, drift = tool_check_results(source, workspace, tools)
        checks = [*changes, *definition_check_results(source, workspace), *sound]
    if report.errors:
        message = (
            f"{len(report.errors)} errors in files of source {source.name!r}; the rest was read"
        )
        dg.AssetExecutionContext.get().log.warning(message)
    yield from checks
    if observed.status == "failed":
        # A reading that failed must not count as a fresh one, here as little as in packs and in `ctx status`.
        session.unread.add(key.to_python_identifier())
        raise _unread(source, report)
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(observed.fingerprint),
        metadata={
            **_metadata(source, report, sample),
            **drift,
            "seconds": seconds,
            **({} if look is None else {LOOK: look.digest}),
        },
    )


def _unread(source: SourceConfig, report: SourceReport) -> dg.Failure:
    return dg.Failure(
        f"nothing could be read from source {source.name!r}; what it had before is still served",
        metadata={"code": report.errors[0].code.value, "error_table": _errors(source, report)},
        allow_retries=False,
    )


def is_remote(source: SourceConfig) -> bool:
    """Return whether reading a source asks somebody else: a database server, a web site or an object store."""
    address = source.url or source.path or ""
    return any("://" in link and not link.startswith(_ON_THIS_DISK) for link in address.split("::"))


def _is_unreachable(report: SourceReport) -> bool:
    """Return whether nothing was read, for a reason that may pass."""
    return report.items == 0 and any(error.code in _PASSING for error in report.errors)


def _try_again(retries: dg.RetryPolicy) -> None:
    """Ask for another attempt after a while, unless this was the last: then the source is reported as it is."""
    attempt = dg.AssetExecutionContext.get().retry_number
    if attempt < retries.max_retries:
        wait = retries.calculate_delay(attempt + 1)
        raise dg.RetryRequested(max_retries=retries.max_retries, seconds_to_wait=wait)


def _description(source: SourceConfig) -> str:
    place = f"`{source.path}`" if source.path else "its configured address"
    window = (
        "No freshness window is set."
        if source.freshness is None
        else f"It is stale {_hours(source.freshness.fail.total_seconds())} after it was last read."
    )
    return (
        f"Reads the source `{source.name}` (kind `{source.kind.value}`) from {place} and appends every new item "
        f"version to the item store. What the source no longer has is retired at once, for every reader. A file that "
        f"cannot be read is reported and the others are loaded. {window}"
    )


def _hours(seconds: float) -> str:
    if seconds % 86_400 == 0:
        return f"{seconds / 86_400:.0f} d"
    return f"{seconds / 3_600:g} h" if seconds >= 3_600 else f"{seconds / 60:g} min"


def _errors(source: SourceConfig, report: SourceReport) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(errors_table(report.errors, named=is_open(source)))


def _metadata(source: SourceConfig, report: SourceReport, sample: list[str]) -> dict[str, Any]:
    failed = sum(1 for file in report.files if file.status.value == "failed")
    return {
        "dagster/row_count": report.items,
        "added": report.added,
        "reused": report.reused,
        "retired": report.retired,
        "withheld": report.withheld,
        "files": len(report.files),
        "failed_files": failed,
        "errors": len(report.errors),
        "file_table": dg.MetadataValue.md(files_table(report.files, named=is_open(source))),
        **({"error_table": _errors(source, report)} if report.errors else {}),
        "sample_ids": dg.MetadataValue.json(sample),
    }


def _sample(workspace: Workspace, source: SourceConfig) -> list[str]:
    """Return ids of up to five of the source's newest item versions; hashes of ids that not everybody may know."""
    import pyarrow.compute as pc

    keys = workspace.store.scan_keys()
    keys = keys.filter(pc.equal(keys.column("source"), source.name))
    newest = keys.sort_by([("seq", "descending")]).slice(0, SAMPLE_ROWS).column("seq").to_pylist()
    items = workspace.store.read_seqs(newest)
    return [
        shown_id(items[seq].item_id, scope_label(items[seq])) + f"@{items[seq].version}"
        for seq in newest
    ]
