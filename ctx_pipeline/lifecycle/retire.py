"""Take items out at once, and bring them back: what a person decides, where a build only finds out.

What is retired is hidden from every process with its next request, before any rebuild, and stays in
the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ctx_pipeline.building.ingest import apply_changes
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.building.source_plan import plan_refresh
from ctx_pipeline.building.source_record import Record, read_record
from ctx_pipeline.contracts import Lifecycle, RetiredItem, RetireReport
from ctx_pipeline.errors import InvalidRequest, NotFound
from ctx_pipeline.ledger.retirements import (
    BUILD,
    Key,
    entries_of,
    held_by_builds,
    held_by_people,
    said_again,
    steps,
)
from ctx_pipeline.sources import read_source

if TYPE_CHECKING:
    from ctx_pipeline.workspace import Workspace

SHOWN_ITEMS = 20
"""Items that a report names; `count` has them all."""
NAMED_ITEMS = 3
"""Items that the question whether to go on names."""
GONE = "the source no longer has it"


def retire_source(
    workspace: Workspace, name: str, *, confirmed: bool = False, actor: str | None = None
) -> RetireReport:
    """Retire what a source no longer has, after reading it once more; what it has that is new is
    stored as well.

    A source that cannot be read, or that `ctx.toml` no longer names, is taken to be gone as a
    whole. What comes back into the source is restored by the next build.

    Raises:
        InvalidRequest: something would be retired and `confirmed` is false (`not_confirmed`);
        nothing was changed. NotFound: there has never been a source of this name.
    """
    who = _actor(workspace, actor)
    record = read_record(name, workspace.store, workspace.ledger)
    source = next((source for source in workspace.config.sources if source.name == name), None)
    if source is None:
        return _retire_orphans(workspace, name, record, who, confirmed=confirmed)
    reading = read_source(source, workspace.home, tenant=workspace.config.project.tenant)
    gone = plan_refresh(
        source, reading, record, workspace.store, workspace.clock(), confirmed=True
    ).withdrawn
    if gone and not confirmed:
        raise _not_confirmed(name, gone, record)
    report = refresh_source(workspace, name, reading=reading, confirmed_by=who)
    return _report(
        "retired", gone, who, GONE, source=name, live=len(record.live()), count=report.retired
    )


def _retire_orphans(
    workspace: Workspace, name: str, record: Record, who: str, *, confirmed: bool
) -> RetireReport:
    """Retire every item of a source that `ctx.toml` no longer names."""
    if not record.stored:
        raise NotFound(
            f"no source {name!r}, and no item of one",
            where="ctx.toml",
            fix="see `ctx status`",
            code="no_source",
        )
    gone = tuple((*key, None) for key in sorted(record.live()))
    if gone and not confirmed:
        raise _not_confirmed(name, gone, record)
    with workspace.store.writer():
        apply_changes(record, gone, (), workspace.ledger, workspace.clock(), confirmed_by=who)
    return _report(
        "retired",
        gone,
        who,
        "ctx.toml no longer names the source",
        source=name,
        live=len(record.live()),
    )


def retire_item(
    workspace: Workspace,
    item_id: str,
    *,
    reason: str,
    version: str | None = None,
    tenant: str | None = None,
    actor: str | None = None,
) -> RetireReport:
    """Retire one item, or one version of it, whatever its source says, until `restore_item`.

    Repeating it changes nothing. The tenant is that of the command line's identity when None.

    Raises:
        InvalidRequest: no reason was given (`no_reason`).
        NotFound: the store has no such item version.
    """
    if not reason.strip():
        raise InvalidRequest(
            "a retirement needs its reason", where="--reason", fix="say why", code="no_reason"
        )
    who = _actor(workspace, actor)
    key = (_tenant(workspace, tenant), item_id, version)
    versions = _versions(workspace, key)
    with workspace.store.writer():
        held = held_by_people(workspace.ledger.overlay_since(0))
        news = [] if key in held or (*key[:2], None) in held else [key]
        now = workspace.clock()
        workspace.ledger.append_overlay(
            entries_of("retired", news, actor=who, reason=reason, now=now)
        )
        workspace.ledger.append_events(
            steps(
                workspace.ledger,
                [key],
                versions,
                Lifecycle.RETIRED,
                actor=who,
                reason=reason,
                now=now,
            )
        )
    return _report("retired", news, who, reason)


def restore_item(
    workspace: Workspace,
    item_id: str,
    *,
    reason: str = "",
    version: str | None = None,
    tenant: str | None = None,
    actor: str | None = None,
) -> RetireReport:
    """Take back what `retire_item` did. What the source itself no longer has stays retired.

    Raises:
        NotFound: nobody has retired it (`not_retired`), or the store has no such item version.
        InvalidRequest: one version was named, but the whole item is retired (`item_retired`).
    """
    who, why = _actor(workspace, actor), reason.strip() or "its retirement was taken back"
    key = (_tenant(workspace, tenant), item_id, version)
    versions = _versions(workspace, key)
    with workspace.store.writer():
        entries = workspace.ledger.overlay_since(0)
        _check_held(key, set(held_by_people(entries)))
        now = workspace.clock()
        withdrawn = held_by_builds(entries)
        again = list(said_again([key], withdrawn))
        workspace.ledger.append_overlay(
            [*entries_of("restored", [key], actor=who, reason=why, now=now), *again]
        )
        back = [
            (*key[:2], each)
            for each in (versions[key[:2]] if version is None else [version])
            if (*key[:2], None) not in withdrawn and (*key[:2], each) not in withdrawn
        ]
        workspace.ledger.append_events(
            steps(
                workspace.ledger, back, versions, Lifecycle.RESTORED, actor=who, reason=why, now=now
            )
        )
    return _report("restored", [key], who, why)


def _check_held(key: Key, held: set[Key]) -> None:
    if key in held or (key[2] is None and any(known[:2] == key[:2] for known in held)):
        return
    if (*key[:2], None) in held:
        raise InvalidRequest(
            "the whole item is retired, not this version alone",
            where=f"item {key[1]!r}",
            fix="leave --version out",
            code="item_retired",
        )
    raise NotFound(
        "nobody has retired this item",
        where=f"item {key[1]!r}",
        fix=f"see what hides it: ctx why-not {key[1]}",
        code="not_retired",
    )


def _versions(workspace: Workspace, key: Key) -> dict[tuple[str, str], list[str]]:
    """Return the stored versions of an item, oldest first."""
    import pyarrow.compute as pc

    tenant, item_id, version = key
    table = workspace.store.scan_keys()
    mine = pc.and_(
        pc.equal(table.column("item_id"), item_id), pc.equal(table.column("tenant"), tenant)
    )
    versions = list(dict.fromkeys(table.filter(mine).column("version").to_pylist()))
    if not versions or (version is not None and version not in versions):
        what = "item" if version is None else f"version {version!r}"
        raise NotFound(
            f"tenant {tenant!r} has no such {what}",
            where=f"item {item_id!r}",
            fix="list items with `ctx items`; name another tenant with --tenant",
            code="no_item",
        )
    return {(tenant, item_id): versions}


def _actor(workspace: Workspace, actor: str | None) -> str:
    """Return who decides; the name of builds is not a person's."""
    identity = workspace.config.identity
    name = actor or (identity.principal if identity is not None else "operator")
    return f"{name} (person)" if name == BUILD else name


def _tenant(workspace: Workspace, tenant: str | None) -> str:
    if tenant is not None:
        return tenant
    identity = workspace.config.identity_contract()
    return (identity.tenant if identity is not None else workspace.config.project.tenant) or ""


def _not_confirmed(name: str, gone: Sequence[Key], record: Record) -> InvalidRequest:
    named = ", ".join(item_id for _, item_id, _ in gone[:NAMED_ITEMS])
    more = len(gone) - NAMED_ITEMS
    return InvalidRequest(
        f"{len(gone)} of {len(record.live())} items would be retired: {named}"
        + (f" and {more} more" if more > 0 else ""),
        where=f"source {name!r}",
        fix=f"confirm it: ctx retire --source {name} --yes",
        code="not_confirmed",
    )


def _report(
    action: Literal["retired", "restored"],
    keys: Sequence[Key],
    actor: str,
    reason: str,
    *,
    source: str | None = None,
    live: int | None = None,
    count: int | None = None,
) -> RetireReport:
    return RetireReport(
        action=action,
        source=source,
        count=len(keys) if count is None else count,
        live=len(keys) if live is None else live,
        items=tuple(RetiredItem(tenant=t, item_id=i, version=v) for t, i, v in keys[:SHOWN_ITEMS]),
        actor=actor,
        reason=reason,
    )
