"""A context project, opened: the composition root. It wires engine, index and ledger, and decides
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ctx_pipeline.building.exposure import shown_counts
from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import (
    ContextDecisionTrace,
    ContextPack,
    ContextPolicy,
    ContextRequest,
    ContextSnapshot,
    Identity,
    ModelProfile,
    PackItem,
    PackWarning,
    Rendition,
    SnapshotDiff,
    ToolContextItem,
)
from ctx_pipeline.engine import Engine, GateRefusal
from ctx_pipeline.errors import CtxError, InvalidRequest, NotPermitted
from ctx_pipeline.inspection.freshness import ProjectStatus, project_status, stale_items
from ctx_pipeline.inspection.items import (
    ItemRow,
    Probe,
    inspect_expand,
    inspect_items,
    inspect_recalls,
    inspect_tools,
    inspect_why_not,
)
from ctx_pipeline.inspection.snapshots import SnapshotReader
from ctx_pipeline.language.tokens import load_while
from ctx_pipeline.security.policy_guard import policy_guard
from ctx_pipeline.security.policy_service import PolicyGuard
from ctx_pipeline.security.visibility import Clock, Viewer, micros
from ctx_pipeline.stages.call import Call
from ctx_pipeline.stages.discover.period_fiscal import Calendar
from ctx_pipeline.text import canonical_json, repair_json
from ctx_pipeline.workspace import Workspace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ctx_pipeline.contracts import LifecycleEvent
    from ctx_pipeline.index.embedder import Embedder
    from ctx_pipeline.index.reranker import Reranker
    from ctx_pipeline.index.serving import ServingIndex
    from ctx_pipeline.ledger import Ledger, RecallNotice, SnapshotRecord


SNAPSHOT_NOT_KEPT = "snapshot_not_kept"
"""Warning of a pack whose record could not be written."""


class ContextProject:
    """One context project. Cheap to open, safe to share between threads; close it, or use `with`.

    Every method that shows something takes `identity`. None means the identity of `ctx.toml` and is
    meant for a local process; a surface that serves others always passes the caller's.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.config = workspace.config
        self.home: Path = workspace.home
        self.policy: ContextPolicy = workspace.config.policy_contract()
        self._engine = Engine(self._embed_query, lambda: self.reranker)
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, home: str | Path, *, overrides: Mapping[str, object] | None = None
    ) -> ContextProject:
        """Open the project at `home`.

        Raises:
            ConfigError: there is no `ctx.toml`, or it is wrong.
        """
        return cls(Workspace.open(home, overrides=overrides))

    def close(self) -> None:
        """Commit what is queued and release everything. Idempotent."""
        with self._lock:
            self.workspace.close()
            if (guard := self.__dict__.get("_guard")) is not None:
                guard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def ledger(self) -> Ledger:
        """The project's record of snapshots, lifecycle and overlay."""
        return self.workspace.ledger

    @cached_property
    def _guard(self) -> PolicyGuard | None:
        return policy_guard(self.config.policy_service, self.home)

    @cached_property
    def index(self) -> ServingIndex:
        """The published index."""
        from ctx_pipeline.index.serving import ServingIndex

        return ServingIndex(
            self.home,
            overlay_sequence=self.ledger.overlay_sequence,
            overlay_since=self.ledger.overlay_since,
            guard=self._guard,
        )

    @property
    def embedder(self) -> Embedder:
        """The embedder that queries are embedded with."""
        return self.workspace.embedder

    @cached_property
    def reranker(self) -> Reranker | None:
        """What looks again at the best candidates; None unless
        `[engine] reranker` names a model.
        """
        from ctx_pipeline.index.reranker import load_reranker

        named = self.workspace.loaded.reranker_model
        return None if named is None else load_reranker(named)

    def _embed_query(self, text: str) -> NDArray[np.float32]:
        with self._lock:
            embedder = self.embedder
        return embedder.embed_query(text)

    @cached_property
    def _records(self) -> SnapshotReader:
        return SnapshotReader(self.ledger, self.index, self.policy.trust_floor)

    def identity(self, identity: Identity | None = None) -> Identity:
        """Return who asks: the given identity, else the one of `ctx.toml`.

        Raises:
            NotPermitted: nobody said who asks.
        """
        chosen = identity or self.config.identity_contract()
        if chosen is None:
            raise NotPermitted(
                "no identity was given and ctx.toml has none",
                where="identity",
                fix="pass --tenant and --principal, or add an [identity] table to ctx.toml",
                code="no_identity",
            )
        return chosen

    def _calendar(self) -> Calendar:
        """Return how the project counts its time."""
        section = self.config.calendar
        return Calendar(section.fiscal_start(), 6 if section.week_starts == "sunday" else 0)

    def profile(self, request: ContextRequest) -> ModelProfile:
        """Return the model profile a request names, else the project's default."""
        chosen = request.model_profile
        if isinstance(chosen, ModelProfile):
            return chosen
        return model_profile(chosen or self.config.project.default_model, self.config.models)

    def assemble(
        self,
        request: ContextRequest,
        at: datetime | None = None,
        durable: bool = False,
        *,
        seconds: dict[str, float] | None = None,
    ) -> ContextPack:
        """Turn a request into a pack and keep its snapshot.

        `at` is the clock (authorization and freshness), now when None. `durable` returns only when
        the snapshot is synced to disk; else it follows, and a process that is killed before loses
        it (see `Ledger.submit_snapshot`). Where the record cannot be written, nothing is kept and
        the pack warns with `snapshot_not_kept`. `seconds` collects wall time per stage.

        Raises:
            InvalidRequest: the request cannot be served; `BudgetTooSmall` and `GateFailed` say why.
            NotPermitted: nobody said who asks. Unavailable: nothing has been built yet, or
            `durable` and the record cannot be written (`ledger_readonly`).
        """
        moment = _aware(at)
        identity = self.identity(request.identity)
        profile = self.profile(request)
        load_while(profile.encoding)
        call = Call(
            request=request
            if request.identity is not None
            else request.model_copy(update={"identity": identity}),
            identity=identity,
            profile=profile,
            policy=self.policy,
            at=moment,
            refreshed={
                name: micros(when) for name, when in sorted(self.ledger.source_times().items())
            },
            calendar=self._calendar(),
        )
        view = self.index.view()
        self._check_embedder(view.reader.manifest["embedder"])
        try:
            result = self._engine.assemble(call, view, seconds=seconds)
        except GateRefusal as refusal:
            record = refusal.result.record
            if not self.ledger.readonly:
                self.ledger.submit_snapshot(
                    lambda: _refused(record()),
                    snapshot_id=refusal.result.pack.snapshot_id,
                    durable=True,
                )
            raise refusal.as_error() from None
        if self.ledger.readonly and not durable:
            return _not_kept(result.pack)
        self.ledger.submit_snapshot(
            result.record, snapshot_id=result.pack.snapshot_id, durable=durable
        )
        return result.pack

    def _check_embedder(self, built_with: str) -> None:
        """Refuse to compare vectors of two models."""
        if built_with != self.embedder.name:
            raise InvalidRequest(
                f"the index was built with embedder {built_with!r}, ctx.toml names "
                f"{self.embedder.name!r}",
                where="[embedder] model",
                fix="run `ctx build`, or name the model the index was built with",
                code="embedder_changed",
            )

    def expand(
        self,
        item_id: str,
        level: str = "full",
        *,
        identity: Identity | None = None,
        at: datetime | None = None,
        as_of: datetime | None = None,
    ) -> PackItem:
        """Return an item that a pack showed only in part, at `full`, `compact` or `pointer` level.

        Raises:
            NotFound: no such item for this identity.
        """
        try:
            rendition = Rendition(level)
        except ValueError:
            raise InvalidRequest(
                f"unknown level {level!r}",
                where="expand",
                fix="use full, compact or pointer",
                code="unknown_level",
            ) from None
        viewer, clock = self._looking(identity, at, as_of)
        return inspect_expand(self.index.view(), item_id, rendition, viewer, clock, self._encoding)

    @property
    def _encoding(self) -> str:
        return self.config.engine.encodings[0]

    def _looking(
        self, identity: Identity | None, at: datetime | None, as_of: datetime | None
    ) -> tuple[Viewer, Clock]:
        viewer = Viewer.of(self.identity(identity), trust_floor=self.policy.trust_floor)
        return viewer, Clock(
            at=micros(_aware(at)), as_of=None if as_of is None else micros(_aware(as_of))
        )

    def items(
        self,
        *,
        identity: Identity | None = None,
        kind: str | None = None,
        source: str | None = None,
        at: datetime | None = None,
        as_of: datetime | None = None,
        limit: int = 100,
    ) -> tuple[ItemRow, ...]:
        """List the items this identity can see, by item id."""
        viewer, clock = self._looking(identity, at, as_of)
        return inspect_items(
            self.index.view(),
            viewer,
            clock,
            kind=kind,
            source=source,
            limit=limit,
            encoding=self._encoding,
            shown=shown_counts(self.workspace.layout.derived, self.ledger, viewer.tenant),
        )

    def tools(
        self,
        *,
        identity: Identity | None = None,
        at: datetime | None = None,
        as_of: datetime | None = None,
    ) -> tuple[ToolContextItem, ...]:
        """List what is known of the tools that this identity can see beside
        their text, by item id.
        """
        viewer, clock = self._looking(identity, at, as_of)
        return inspect_tools(self.index.view(), viewer, clock)

    def history(
        self, item_id: str, *, identity: Identity | None = None
    ) -> tuple[LifecycleEvent, ...]:
        """Return the life of an item, all versions that this identity may know of, in order.

        Raises:
            NotFound: no such item for this identity.
        """
        viewer, clock = self._looking(identity, None, None)
        named = {
            probe.version for probe in inspect_why_not(self.index.view(), item_id, viewer, clock)
        }
        return tuple(
            event
            for event in self.ledger.events_for(viewer.tenant, item_id)
            if event.version in named
        )

    def recalls(
        self, *, since: int = 0, limit: int = 100, identity: Identity | None = None
    ) -> tuple[RecallNotice, ...]:
        """Return word of item versions that calls were shown and that are out of use now, oldest
        first.

        Only versions that this identity may know of, each with this identity's own snapshots;
        `snapshots` counts all. `since` is the `sequence` of the last notice already seen.
        """
        who = self.identity(identity)
        viewer, clock = self._looking(who, None, None)
        found: list[RecallNotice] = []
        while len(found) < limit and (
            page := self.ledger.recalls(who.tenant, since=since, limit=limit)
        ):
            since = page[-1].sequence or 0
            found += inspect_recalls(
                self.index.view(), page, viewer, clock, lambda key: self._owns(key, who)
            )
        return tuple(found[:limit])

    def _owns(self, snapshot_id: str, who: Identity) -> bool:
        kept = self.ledger.snapshot(snapshot_id) or self.ledger.pruned(snapshot_id)
        return kept is not None and (kept.tenant, kept.principal) == (who.tenant, who.principal)

    def snapshots(
        self, *, identity: Identity | None = None, limit: int = 20
    ) -> tuple[ContextSnapshot, ...]:
        """Return this identity's latest snapshots, newest first."""
        return self._records.latest(self.identity(identity), limit)

    def explain(
        self, snapshot_id: str, identity: Identity | None = None
    ) -> tuple[ContextDecisionTrace, ...]:
        """Return why each candidate of a call went in or stayed out.

        What this identity may no longer see is left out.

        Raises:
            NotFound: no such snapshot for this identity.
        """
        return self._records.explain(snapshot_id, self.identity(identity))

    def why(
        self, snapshot_id: str, item_id: str, identity: Identity | None = None
    ) -> tuple[ContextDecisionTrace, ...]:
        """Return the traces of one item, every version, in one call.

        Raises:
            NotFound: the item was no candidate of that call, for this identity.
        """
        return self._records.why(snapshot_id, item_id, self.identity(identity))

    def why_not(
        self,
        item_id: str,
        *,
        identity: Identity | None = None,
        at: datetime | None = None,
        as_of: datetime | None = None,
    ) -> tuple[Probe, ...]:
        """Probe every version of one item with the caller's own rights.

        Raises:
            NotFound: no such item for this identity; a denied item answers the same.
        """
        viewer, clock = self._looking(identity, at, as_of)
        return inspect_why_not(self.index.view(), item_id, viewer, clock)

    def replay(self, snapshot_id: str, identity: Identity | None = None) -> ContextPack:
        """Rebuild a pack byte for byte from the record, whatever has happened to the sources.

        Raises:
            NotFound: no such snapshot for this identity, or its content was erased (`erased`).
            NotPermitted: this identity may no longer see something in it.
            Corrupt: the stored bytes are not what was written.
        """
        return self._records.replay(snapshot_id, self.identity(identity))

    def diff(self, a: str, b: str, identity: Identity | None = None) -> SnapshotDiff:
        """Return what entered, left, changed rendition or moved from snapshot `a` to `b`, each with
        its reason.
        """
        return self._records.diff(a, b, self.identity(identity))

    def report_used(
        self, snapshot_id: str, item_ids: Sequence[str], identity: Identity | None = None
    ) -> None:
        """Record which shown items an answer cited."""
        self._records.own(snapshot_id, self.identity(identity))
        self.ledger.report_used(snapshot_id, item_ids, datetime.now(UTC))

    def report_usage(
        self, snapshot_id: str, usage: Mapping[str, Any], identity: Identity | None = None
    ) -> None:
        """Record a provider's token figures for a call, for example `cached_input_tokens`.

        Raises:
            NotFound: the caller has no such snapshot.
            InvalidRequest: a figure is not JSON, for example NaN.
        """
        self._records.own(snapshot_id, self.identity(identity))
        try:
            figures = repair_json(dict(usage))
            canonical_json(figures)
        except (TypeError, ValueError) as cause:
            raise InvalidRequest(
                "the usage is not a JSON object",
                where="usage",
                fix="give names with numbers, text, lists or objects of them; no NaN or infinity",
                code="invalid_usage",
            ) from cause
        self.ledger.report_usage(snapshot_id, figures)

    def status(self, *, at: datetime | None = None) -> ProjectStatus:
        """Return how fresh each source and its items are, and what is published."""
        moment = _aware(at)
        try:
            stale = stale_items(self.index.view(), self.ledger.source_times(), moment)
        except CtxError:
            # Nothing is built, or what is built is damaged: other commands say so, and the sources
            # have a state still.
            stale = None
        return project_status(self.workspace.loaded, self.ledger, moment, stale)


def _aware(moment: datetime | None) -> datetime:
    if moment is None:
        return datetime.now(UTC)
    if moment.tzinfo is None:
        raise InvalidRequest(
            "the time has no zone",
            where="at",
            fix="write it with an offset, for example 2026-01-31T00:00:00Z",
            code="naive_time",
        )
    return moment.astimezone(UTC)


def _not_kept(pack: ContextPack) -> ContextPack:
    message = "the record cannot be written: this snapshot can be neither explained nor replayed"
    warning = PackWarning(code=SNAPSHOT_NOT_KEPT, message=message)
    return pack.model_copy(update={"warnings": (*pack.warnings, warning)})


def _refused(record: SnapshotRecord) -> SnapshotRecord:
    """A refused call keeps its trace and no pack."""
    from dataclasses import replace

    return replace(record, pack_json=None, status="refused", blobs={})
