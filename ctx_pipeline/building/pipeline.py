"""The library halves of the asset graph: read a source, then the stages' batch halves, then publish.

Every method can be called alone, in any process, in the order of the graph; each writes one part that serving reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ctx_pipeline.claims.words import CLAIMS_VERSION
from ctx_pipeline.config.settings import SourceConfig, load_config
from ctx_pipeline.contracts import ContextItem, Sensitivity, SourceKind, SourceReport, WhenToLoad
from ctx_pipeline.errors import Corrupt, NotFound, Unavailable
from ctx_pipeline.index.artifact import Generation, Layout, Staging, read_pointer
from ctx_pipeline.index.facts import FACTS_VERSION, facts_table
from ctx_pipeline.index.memo import Compute, RowMemo
from ctx_pipeline.index.overlay import Patch, fold, forgotten_keys
from ctx_pipeline.index.rows import Row, latest_versions, make_rows, tenant_slices
from ctx_pipeline.security.visibility import EVERYONE, NEVER, ScopeLabel, micros
from ctx_pipeline.stages.blocks import RENDITION_VERSION
from ctx_pipeline.stages.rank.batch import SourceFacts
from ctx_pipeline.text import canonical_json, reference, short_hash
from ctx_pipeline.times import utc_now
from ctx_pipeline.workspace import open_ledger, state_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.embedder import Embedder
    from ctx_pipeline.index.store import Store
    from ctx_pipeline.ledger import Ledger
    from ctx_pipeline.sources import SourceReading

LOADED_ALWAYS = frozenset({SourceKind.INSTRUCTIONS})
"""Kinds that go into every pack unless `when_to_load` says otherwise."""

READ_AS_WRITER = frozenset({SourceKind.SEMANTIC_REGISTRY})
"""Kinds whose files are read and stored in one step, because publishing replaces both."""

SAMPLE_ROWS = 5
QUOTING_COLUMNS = frozenset({"title", "full", "compact", "pointer"})
"""Columns whose text is an item's own; run logs are read by people who may not read the items."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


def default_when_to_load(kind: SourceKind) -> WhenToLoad:
    """Return when a kind of source loads where `ctx.toml` does not say."""
    return WhenToLoad.ALWAYS if kind in LOADED_ALWAYS else WhenToLoad.ON_MATCH


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage asset shows of its part."""

    rows: int
    data_version: str
    facts: dict[str, Any]
    sample: tuple[dict[str, Any], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    """Name and type of each column written."""


class Pipeline:
    """Builds one project. Cheap to open; close it to release the ledger."""

    def __init__(
        self,
        home: Path,
        *,
        progress: Progress = ignore_progress,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.home = home.resolve()
        self.loaded = load_config(self.home)
        self.config = self.loaded.config
        self.layout = Layout(self.home)
        self.progress = progress
        self.clock = clock
        self.embedded = 0
        """Texts embedded by this object."""
        self._started: Generation | None = None
        """What the build that this object has begun is made from; what changes meanwhile is left to the next one."""

    @cached_property
    def ledger(self) -> Ledger:
        """The project's ledger."""
        return open_ledger(self.home, self.config.ledger)

    @cached_property
    def store(self) -> Store:
        """The project's item store."""
        from ctx_pipeline.index.store import Store

        return Store.of_project(self.home)

    @cached_property
    def embedder(self) -> Embedder:
        """The project's embedder."""
        from ctx_pipeline.index.embedder import load_embedder

        return load_embedder(self.loaded.embedder_model)

    def close(self) -> None:
        """Release the ledger."""
        if "ledger" in self.__dict__:
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def source(self, name: str) -> SourceConfig:
        """Return a configured source.

        Raises:
            NotFound: `ctx.toml` has none of that name.
        """
        for source in self.config.sources:
            if source.name == name:
                return source
        raise NotFound(
            f"no source {name!r}", where="ctx.toml", fix="add a [[sources]] entry with this name"
        )

    def read_source(self, name: str) -> SourceReading:
        """Return what a source holds now."""
        from ctx_pipeline.sources import read_source

        return read_source(self.source(name), self.home, tenant=self.config.project.tenant)

    def refresh_source(
        self, name: str, *, batch: SourceReading | None = None, confirmed_by: str | None = None
    ) -> SourceReport:
        """Read a source and store what changed.

        `batch` is what was read of it just now. `confirmed_by` is the person who says that what the source seems to
        have lost is really gone.
        """
        from ctx_pipeline.building.ingest import fingerprint, read_record, refresh, still_stored
        from ctx_pipeline.ledger import SourceObservation
        from ctx_pipeline.sources import read_source
        from ctx_pipeline.sources.units import UnitFile

        source, tenant = self.source(name), self.config.project.tenant
        now = self.clock()
        file = UnitFile(self.layout.derived, source, tenant=tenant)
        # What is published between the reading and the storing would be taken back by what was read before.
        with self.store.writer() if source.kind in READ_AS_WRITER else nullcontext():
            record = read_record(name, self.store, self.ledger)
            if batch is None:
                units = file.load(lambda known: still_stored(known, record))
                batch = read_source(source, self.home, tenant=tenant, units=units)
            report = refresh(
                source,
                batch,
                self.store,
                self.ledger,
                now,
                confirmed_by=confirmed_by,
                record=record,
                ceiling=self._ceiling(source),
                remember=file.save,
            )
            self._note_grants(source)
        self.ledger.record_source(
            SourceObservation(
                name=name,
                kind=source.kind.value,
                observed_at=now,
                fingerprint=fingerprint(batch),
                status="failed" if report.errors and not batch.count else "ok",
                items=batch.count,
                errors=report.errors,
                files=report.files,
            )
        )
        return report

    def _ceiling(self, source: SourceConfig) -> Callable[[ContextItem], ContextItem] | None:
        """Return what narrows items to what a source grants today; None when its grants are those of its last reading.

        A record may name a tenant that the source writes for: it stays there while the source names that tenant.
        """
        from ctx_pipeline.security.narrowing import narrowed
        from ctx_pipeline.sources.origin import Origin

        file = self._grants_file(source)
        if file.is_file() and file.read_text(encoding="utf-8") == self._grants(source):
            return None
        origin = Origin.of(source, tenant=self.config.project.tenant)

        def ceiling(item: ContextItem) -> ContextItem:
            own = item.scope.tenant
            tenant = own if own in source.tenants else origin.scope.tenant
            scope = origin.scope.model_copy(update={"tenant": tenant})
            return narrowed(item, scope, source.sensitivity, origin.trust)

        return ceiling

    def _note_grants(self, source: SourceConfig) -> None:
        """Note under which grants a source was read."""
        file, grants = self._grants_file(source), self._grants(source)
        if not file.is_file() or file.read_text(encoding="utf-8") != grants:
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".tmp")
            partial.write_text(grants, encoding="utf-8")
            partial.replace(file)

    def _grants_file(self, source: SourceConfig) -> Path:
        return state_folder(self.home) / "grants" / source.name

    def _grants(self, source: SourceConfig) -> str:
        from ctx_pipeline.sources.origin import Origin

        origin = Origin.of(source, tenant=self.config.project.tenant)
        sensitivity = None if source.sensitivity is None else source.sensitivity.value
        beyond = [source.may_widen, sorted(source.tenants)]
        grants = [origin.scope.model_dump(mode="json"), sensitivity, origin.trust.value, beyond]
        return short_hash(canonical_json(grants), 32)

    def source_facts(self) -> list[SourceFacts]:
        """Return what the stages know of each source, in the order of `ctx.toml`."""
        return [
            SourceFacts(
                name=source.name,
                kind=source.kind.value,
                when_to_load=source.when_to_load or default_when_to_load(source.kind),
                warn_after=NEVER
                if source.freshness is None
                else _micros(source.freshness.warn.total_seconds()),
                fail_after=NEVER
                if source.freshness is None
                else _micros(source.freshness.fail.total_seconds()),
            )
            for source in self.config.sources
        ]

    def _gone(self, rows: Sequence[Row]) -> frozenset[str]:
        """Return the sources that rows came from and `ctx.toml` no longer names."""
        return frozenset({row.source for row in rows} - {s.name for s in self.config.sources})

    def _source_labels(self) -> dict[str, ScopeLabel]:
        """Return what each source grants today where its records say nothing."""
        return {
            source.name: ScopeLabel(
                tenant=source.tenant or self.config.project.tenant,
                principals=tuple(sorted(source.principals)),
                groups=tuple(sorted(source.groups)),
                sensitivity=None if source.sensitivity is None else source.sensitivity.value,
                environment=source.environment,
                task_types=tuple(sorted(source.task_types)),
                agent_visibility=tuple(sorted(source.agent_visibility)),
                trust="",
            )
            for source in self.config.sources
        }

    def _facts_of(self, rows: Sequence[Row]) -> list[SourceFacts]:
        """Return the facts of every source that rows came from, those of `ctx.toml` first."""
        gone = sorted(self._gone(rows))
        return [
            *self.source_facts(),
            *(SourceFacts(name, "", WhenToLoad.ON_REQUEST, NEVER, NEVER) for name in gone),
        ]

    def generation(self) -> Generation:
        """Return what a build started now would be made from."""
        settings = {
            "sources": [
                [fact.name, fact.kind, fact.when_to_load.value, fact.warn_after, fact.fail_after]
                for fact in self.source_facts()
            ],
            "encodings": list(self.config.engine.encodings),
            "rendition": RENDITION_VERSION,
            "claims": CLAIMS_VERSION,
            **({"phases": phases} if (phases := self._phases()) else {}),
            "grants": [asdict(label) for label in self._source_labels().values()],
            "beyond": [[s.may_widen, sorted(s.tenants)] for s in self.config.sources],
        }
        sequence, head = self.store.head()
        return Generation(
            store_sequence=sequence,
            store_head=head[:16],
            overlay_sequence=self.ledger.overlay_sequence(),
            ledger=self.ledger.identity(),
            embedder=self.embedder.name,
            dim=self.embedder.dim,
            settings=short_hash(canonical_json(settings), 16),
        )

    def _phases(self) -> dict[str, tuple[str, ...]]:
        """Return the phases of the sources of tools that name some."""
        return {source.name: source.phases for source in self.config.sources if source.phases}

    def published_generation(self) -> Generation | None:
        """Return what the published artifact is made from; None when nothing is published."""
        pointer = read_pointer(self.layout)
        return None if pointer is None else Generation(**pointer["generation"])

    def _require_current_ledger(self, today: Generation) -> None:
        """Refuse to build with a ledger that is older than what was built from it: it would take retirements back."""
        try:
            built = self.built_generation()
        except Corrupt:
            return
        if built is not None and today.overlay_sequence < built.overlay_sequence:
            raise Corrupt(
                f"the ledger is older than the index: it ends at {today.overlay_sequence}, the index knows "
                f"{built.overlay_sequence}",
                where=".ctx/state",
                fix="restore .ctx/state from a backup as a whole, and delete .ctx/derived with it",
                code="ledger_behind",
            )

    def built_generation(self) -> Generation | None:
        """Return what the newest build was made from, published or, while the index is pinned, waiting."""
        from ctx_pipeline.index.history import built_generation

        return built_generation(self.layout)

    def discovered_items(self) -> StageResult:
        """Write identities, dependencies and vectors; embed what has not been embedded before."""
        from ctx_pipeline.index.embedder import embedding_text
        from ctx_pipeline.index.store import ensure_embeddings
        from ctx_pipeline.stages.discover import batch as discover

        self._started = self.generation()
        self._require_current_ledger(self._started)
        build = self._inputs()
        position = {row.embed_hash: at for at, row in enumerate(build.rows)}
        model = self.embedder
        embedded = ensure_embeddings(
            self.store,
            model,
            position,
            lambda hashes: [
                embedding_text(item) for item in build.items([position[key] for key in hashes])
            ],
            progress=self._embedding,
        )
        self.embedded += embedded
        if not build.has("discovered", "vectors", "quantised"):
            build.staging.write("discovered", discover.batch(build.rows))
            vectors = self.store.get_vectors(model.name, [row.embed_hash for row in build.rows])
            vectors = vectors.reshape(len(build.rows), model.dim)
            build.staging.write("vectors", discover.vector_table(vectors))
            build.staging.write("quantised", discover.quantised_table(vectors, build.rows))
        return build.result("discovered", {"embedded": embedded, "embedder": model.name})

    def filtered_items(self) -> StageResult:
        """Write the visibility labels and times of every row, and the lists of rows that each word is in."""
        from ctx_pipeline.index.lexical import (
            LEXICAL_PARTS,
            TERMS_VERSION,
            lexical_tables,
            terms_table,
        )
        from ctx_pipeline.stages import filter as filter_stage

        build = self._inputs()
        if not build.has("filtered"):
            table = filter_stage.batch(
                build.rows,
                build.patches,
                gone=self._gone(build.rows),
                source_labels=self._source_labels(),
                may_widen=frozenset(s.name for s in self.config.sources if s.may_widen),
            )
            build.staging.write("filtered", table)
        if not build.has(*LEXICAL_PARTS):
            terms = build.derived(
                "terms", TERMS_VERSION, lambda rows: terms_table(build.items(rows))
            )
            for part, table in lexical_tables(terms).items():
                build.staging.write(part, table)
        return build.result("filtered", {})

    def ranked_items(self) -> StageResult:
        """Write the ranking features that no request changes, and which claims contradict each other."""
        from ctx_pipeline.claims.extract import claims_table
        from ctx_pipeline.stages.rank import batch as rank
        from ctx_pipeline.stages.rank import conflicts, duplicates

        build = self._inputs()
        if not build.has("claims"):
            claims = build.derived(
                "claims", CLAIMS_VERSION, lambda rows: claims_table(build.items(rows))
            )
            build.staging.write("claims", conflicts.batch(build.rows, claims, build.patches))
        if not build.has("ranked"):
            marks = build.derived(
                "signatures",
                duplicates.signature_version(),
                lambda rows: duplicates.signatures(build.items(rows)),
            )
            build.staging.write("ranked", rank.batch(build.rows, self._facts_of(build.rows), marks))
        return build.result("ranked", {})

    def transformed_items(self) -> StageResult:
        """Write every rendition of every row, and what is known of tools beside their text."""
        from ctx_pipeline.language.tokens import count_many
        from ctx_pipeline.stages import routing
        from ctx_pipeline.stages.transform import batch as transform

        build = self._inputs()
        if not build.has("transformed", "tools"):
            blocks = build.blocks(transform.batch)
            items = build.items(routing.tool_places(build.rows))
            tools = routing.batch(
                build.rows,
                items,
                build.patches,
                self._phases(),
                self.config.engine.encodings[0],
                count_many,
            )
            build.staging.write("tools", tools)
            build.staging.write("transformed", routing.with_shown_names(blocks, tools))
        return build.result("transformed", {})

    def budgeted_items(self) -> StageResult:
        """Write the exact token counts of every rendition."""
        from ctx_pipeline.language.tokens import count_many
        from ctx_pipeline.stages import routing
        from ctx_pipeline.stages.budget import batch as budget
        from ctx_pipeline.stages.transform import batch as transform

        build = self._inputs()
        if not build.has("budgeted"):
            blocks, encodings = build.staging.read("transformed"), self.config.engine.encodings
            # Counts are kept by item; those of a tool under another name follow from the catalogue.
            renamed = routing.renamed_rows(build.staging.read("tools"))
            plain = build.blocks(transform.batch) if renamed else blocks
            counts = build.derived(
                "budgeted",
                canonical_json([RENDITION_VERSION, "plain", *encodings]),
                lambda rows: budget.batch(plain.take(rows), encodings, count_many),
            )
            if renamed:
                anew = budget.batch(blocks.take(renamed), encodings, count_many)
                counts = routing.replaced_rows(counts, renamed, anew)
            build.staging.write("budgeted", counts)
        return build.result("budgeted", {"encodings": list(self.config.engine.encodings)})

    def assembled_items(self) -> StageResult:
        """Publish the parts as the serving artifact."""
        from ctx_pipeline.index.history import end_outdated_pin
        from ctx_pipeline.stages import assemble

        build = self._inputs()
        facts = {
            "tenants": {tenant: list(span) for tenant, span in tenant_slices(build.rows).items()},
            "sources": [
                {
                    "name": fact.name,
                    "kind": fact.kind,
                    "warn_after": fact.warn_after,
                    "fail_after": fact.fail_after,
                }
                for fact in self._facts_of(build.rows)
            ],
            "encodings": list(self.config.engine.encodings),
            "rows": len(build.rows),
        }
        content_hash = assemble.batch(build.staging, facts, keep=self.config.artifact.keep)
        live = live_rows(build.staging.read("filtered"), micros(self.clock()))
        ended = end_outdated_pin(self.layout, build.staging.generation, self.store, self.clock())
        facts = {"artifact": content_hash, "live": live, **({"pin_ended": ended} if ended else {})}
        return StageResult(len(build.rows), content_hash, facts)

    def context_snapshots(self) -> StageResult:
        """Roll the stored snapshots up into how often each item was shown, for `ctx items`."""
        from ctx_pipeline.building.exposure import write_totals

        rows, digest, days = write_totals(self.layout.derived, self.ledger)
        return StageResult(rows, digest, {"finished_days": days})

    def _embedding(self, done: int, total: int) -> None:
        self.progress("embedding", done, total)

    def _inputs(self) -> _Build:
        generation = self._started or self.generation()
        key = (str(self.home), generation.name)
        if _CACHE.get("key") != key:
            last = generation.overlay_sequence
            patches = fold(
                entry for entry in self.ledger.overlay_since(0) if (entry.sequence or 0) <= last
            )
            keys = latest_versions(
                _until(self.store.scan_keys(), generation.store_sequence),
                forgotten=forgotten_keys(patches),
            )
            items: dict[int, ContextItem] = {}
            _CACHE.update(key=key, rows=self._rows(keys, items), patches=patches, items=items)
        staging = Staging(self.layout, generation)
        return _Build(_CACHE["rows"], _CACHE["patches"], staging, self.store, _CACHE["items"])

    def _rows(self, keys: pa.Table, items: dict[int, ContextItem]) -> list[Row]:
        """Return the catalogue; what had to be read for it is left in `items`."""
        seqs = keys.column("seq").to_numpy()
        facts = RowMemo(self.layout.derived, "facts", FACTS_VERSION).take(
            keys.column("item_hash").to_pylist(),
            lambda rows: facts_table(_read_items(self.store, seqs[rows].tolist(), items)),
        )
        return make_rows(keys, facts)


KNOWN_ITEMS = 100_000
"""Items kept for the stages after the one that read them: several kilobytes each."""
_CACHE: dict[str, Any] = {}
"""What the last generation in this process was read into: in one process the stages share it."""


def _read_items(
    store: Store, seqs: Sequence[int], known: dict[int, ContextItem]
) -> list[ContextItem]:
    """Return the items under some numbers, and keep them in `known` while these are not too many."""
    if len(known) + len(seqs) > KNOWN_ITEMS:
        known.clear()
    known.update(store.read_seqs([seq for seq in seqs if seq not in known]))
    missing = sum(seq not in known for seq in seqs)
    if missing:
        raise Corrupt(
            f"{missing} item versions vanished while they were read",
            where="store",
            fix="run `ctx build` again",
        )
    return [known[seq] for seq in seqs]


@dataclass(frozen=True, slots=True)
class _Build:
    rows: Sequence[Row]
    patches: dict[tuple[str, str, str | None], Patch]
    staging: Staging
    store: Store
    known: dict[int, ContextItem]
    """Items that were read, by their number in the store."""

    def items(self, positions: Iterable[int]) -> list[ContextItem]:
        """Return the items of some rows."""
        return _read_items(self.store, [self.rows[at].seq for at in positions], self.known)

    def derived(self, kind: str, version: str, compute: Compute) -> pa.Table:
        """Return columns that follow from each row's item alone; only what is new is computed."""
        memo = RowMemo(self.staging.layout.derived, kind, version)
        return memo.take([row.item_hash for row in self.rows], compute)

    def blocks(self, make: Callable[[Sequence[ContextItem]], pa.Table]) -> pa.Table:
        """Return the renditions of all rows, every tool under its own name; `make` returns those of items."""
        return self.derived("transformed", RENDITION_VERSION, lambda rows: make(self.items(rows)))

    def has(self, *parts: str) -> bool:
        return all(self.staging.is_whole(part) for part in parts)

    def result(self, part: str, facts: dict[str, Any]) -> StageResult:
        digest = self.staging.digest(part)
        if digest is None:
            raise Unavailable(
                f"part {part!r} was not written",
                where="build",
                fix="run `ctx build`",
                code="stage_missing",
            )
        table = self.staging.read(part)
        shown = zip(table.slice(0, SAMPLE_ROWS).to_pylist(), self.rows, strict=False)
        sample = tuple(_without_content(row, known.label) for row, known in shown)
        columns = tuple((field.name, str(field.type)) for field in table.schema)
        return StageResult(table.num_rows, digest, facts, sample, columns)


def _without_content(row: Mapping[str, Any], label: ScopeLabel) -> dict[str, Any]:
    """Return a row for people who run builds: of what quotes an item, only its length."""
    shown = {
        name: len(value or "") if name in QUOTING_COLUMNS else value for name, value in row.items()
    }
    return {**shown, "item_id": shown_id(row["item_id"], label)} if "item_id" in row else shown


def shown_id(item_id: str, label: ScopeLabel) -> str:
    """Return an item's id as logs show it, which people read who may not read the item.

    An id is the name of a file, a tool, a table. It is shown where everybody of a tenant may know it, else its hash.
    """
    is_open = EVERYONE in label.groups and label.sensitivity in (
        Sensitivity.PUBLIC,
        Sensitivity.INTERNAL,
    )
    closed = label.environment is not None or label.task_types or label.agent_visibility
    return item_id if is_open and not closed else reference(item_id)


def live_rows(filtered: pa.Table, now: int) -> int:
    """Return how many rows are valid at `now` (microseconds): not superseded, retired, expired or set aside."""
    import pyarrow.compute as pc

    rules = (
        pc.less_equal(filtered.column("valid_from"), now),
        pc.greater(filtered.column("valid_until"), now),
        pc.greater(filtered.column("superseded_at"), now),
        pc.equal(filtered.column("retired_at"), NEVER),
        pc.equal(filtered.column("state"), 0),
    )
    alive = rules[0]
    for rule in rules[1:]:
        alive = pc.and_(alive, rule)
    return int(pc.sum(alive).as_py() or 0)


def _until(stored: pa.Table, last: int) -> pa.Table:
    import pyarrow.compute as pc

    return stored.filter(pc.less_equal(stored.column("seq"), last))


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
