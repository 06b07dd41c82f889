"""The library halves of the stage assets: each writes one part that serving reads, the last one
publishes them.

Every method can be called alone, in any process, in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ctx_pipeline.building.generation import (
    current_generation,
    facts_of_rows,
    gone_sources,
    require_current_ledger,
    source_labels,
    source_phases,
)
from ctx_pipeline.building.stage_result import StageResult, live_rows, without_content
from ctx_pipeline.claims.words import CLAIMS_VERSION
from ctx_pipeline.contracts import ContextItem
from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index.artifact import Generation, Staging
from ctx_pipeline.index.facts import FACTS_VERSION, facts_table
from ctx_pipeline.index.memo import Compute, RowMemo
from ctx_pipeline.index.overlay import Patch, fold, forgotten_keys
from ctx_pipeline.index.rows import Row, latest_versions, make_rows, tenant_slices
from ctx_pipeline.security.visibility import micros
from ctx_pipeline.stages.blocks import RENDITION_VERSION
from ctx_pipeline.text import canonical_json
from ctx_pipeline.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.index.store import Store

SAMPLE_ROWS = 5

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""


def ignore_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


class Pipeline:
    """The stages' batch halves over one workspace. In one process they share what the first of them
    read.
    """

    def __init__(self, workspace: Workspace, *, progress: Progress = ignore_progress) -> None:
        self.workspace = workspace
        self.progress = progress
        self.embedded = 0
        """Texts embedded by this object."""
        self._started: Generation | None = None
        """What the build that this object has begun is made from; what changes meanwhile is left to
        the next one.
        """
        self._read: _Read | None = None

    @property
    def generation(self) -> Generation:
        """What is being built from: as the first stage found it, else as it is now."""
        return self._started or current_generation(self.workspace)

    def discovered_items(self) -> StageResult:
        """Write identities, dependencies and vectors; embed what has not been embedded before."""
        from ctx_pipeline.index.embedder import embedding_text
        from ctx_pipeline.index.store import ensure_embeddings
        from ctx_pipeline.stages.discover import batch as discover

        self._started = current_generation(self.workspace)
        require_current_ledger(self.workspace.layout, self._started)
        build = self._inputs()
        position = {row.embed_hash: at for at, row in enumerate(build.rows)}
        model = self.workspace.embedder
        embedded = ensure_embeddings(
            self.workspace.store,
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
            vectors = self.workspace.store.get_vectors(
                model.name, [row.embed_hash for row in build.rows]
            )
            vectors = vectors.reshape(len(build.rows), model.dim)
            build.staging.write("vectors", discover.vector_table(vectors))
            build.staging.write("quantised", discover.quantised_table(vectors, build.rows))
        return build.result("discovered", {"embedded": embedded, "embedder": model.name})

    def filtered_items(self) -> StageResult:
        """Write the visibility labels and times of every row, and the lists of rows that each word
        is in.
        """
        from ctx_pipeline.building.not_replaced import not_replaced
        from ctx_pipeline.index.lexical import (
            LEXICAL_PARTS,
            TERMS_VERSION,
            lexical_tables,
            terms_table,
        )
        from ctx_pipeline.stages import filter as filter_stage

        build = self._inputs()
        grants = source_labels(self.workspace.config)
        widening = frozenset(s.name for s in self.workspace.config.sources if s.may_widen)
        if not build.has("filtered"):
            table = filter_stage.batch(
                build.rows,
                build.patches,
                gone=gone_sources(self.workspace.config, build.rows),
                source_labels=grants,
                may_widen=widening,
            )
            build.staging.write("filtered", table)
        if not build.has(*LEXICAL_PARTS):
            terms = build.derived(
                "terms", TERMS_VERSION, lambda rows: terms_table(build.items(rows))
            )
            for part, table in lexical_tables(terms).items():
                build.staging.write(part, table)
        table = build.staging.read("filtered")
        refused = filter_stage.refused_replacements(
            build.rows, table, source_labels=grants, may_widen=widening
        )
        items = build.items([each.row for each in refused])
        return replace(
            build.result("filtered", {}), errors=not_replaced(self.workspace.home, refused, items)
        )

    def ranked_items(self) -> StageResult:
        """Write the ranking features that no request changes, and which claims contradict each
        other.
        """
        from ctx_pipeline.stages.rank import batch as rank
        from ctx_pipeline.stages.rank import conflicts, duplicates

        build = self._inputs()
        if not build.has("claims"):
            # Compiling its patterns takes 0.2 s, which a build of nothing new does without.
            from ctx_pipeline.claims.extract import claims_table

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
            build.staging.write(
                "ranked",
                rank.batch(build.rows, facts_of_rows(self.workspace.config, build.rows), marks),
            )
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
                source_phases(self.workspace.config),
                self.workspace.config.engine.encodings[0],
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
            blocks, encodings = (
                build.staging.read("transformed"),
                self.workspace.config.engine.encodings,
            )
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
        return build.result("budgeted", {"encodings": list(self.workspace.config.engine.encodings)})

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
                for fact in facts_of_rows(self.workspace.config, build.rows)
            ],
            "encodings": list(self.workspace.config.engine.encodings),
            "rows": len(build.rows),
        }
        content_hash = assemble.batch(
            build.staging, facts, keep=self.workspace.config.artifact.keep
        )
        live = live_rows(build.staging.read("filtered"), micros(self.workspace.clock()))
        ended = end_outdated_pin(
            self.workspace.layout,
            build.staging.generation,
            self.workspace.store,
            self.workspace.clock(),
        )
        facts = {"artifact": content_hash, "live": live, **({"pin_ended": ended} if ended else {})}
        return StageResult(len(build.rows), content_hash, facts)

    def context_snapshots(self) -> StageResult:
        """Roll the stored snapshots up into how often each item was shown, for `ctx items`."""
        from ctx_pipeline.building.exposure import write_totals

        rows, digest, days = write_totals(self.workspace.layout.derived, self.workspace.ledger)
        return StageResult(rows, digest, {"finished_days": days})

    def _embedding(self, done: int, total: int) -> None:
        self.progress("embedding", done, total)

    def _inputs(self) -> _Build:
        today = self.generation
        if self._read is None or self._read.generation != today:
            self._read = self._read_store(today)
        return _Build(self._read, Staging(self.workspace.layout, today), self.workspace.store)

    def _read_store(self, today: Generation) -> _Read:
        overlay = self.workspace.ledger.overlay_since(0)
        last = today.overlay_sequence
        patches = fold(entry for entry in overlay if (entry.sequence or 0) <= last)
        keys = latest_versions(
            _until(self.workspace.store.scan_keys(), today.store_sequence),
            forgotten=forgotten_keys(patches),
        )
        items: dict[int, ContextItem] = {}
        return _Read(today, self._rows(keys, items), patches, items)

    def _rows(self, keys: pa.Table, items: dict[int, ContextItem]) -> list[Row]:
        """Return the catalogue; what had to be read for it is left in `items`."""
        seqs = keys.column("seq").to_numpy()
        facts = RowMemo(self.workspace.layout.derived, "facts", FACTS_VERSION).take(
            keys.column("item_hash").to_pylist(),
            lambda rows: facts_table(_read_items(self.workspace.store, seqs[rows].tolist(), items)),
        )
        return make_rows(keys, facts)


KNOWN_ITEMS = 100_000
"""Items kept for the stages after the one that read them: several kilobytes each."""


def _read_items(
    store: Store, seqs: Sequence[int], known: dict[int, ContextItem]
) -> list[ContextItem]:
    """Return the items under some numbers, and keep them in `known` while
    these are not too many.
    """
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
class _Read:
    """What was read for one generation."""

    generation: Generation
    rows: Sequence[Row]
    patches: dict[tuple[str, str, str | None], Patch]
    items: dict[int, ContextItem]
    """Items by their number in the store: those that a stage needed so far."""


@dataclass(frozen=True, slots=True)
class _Build:
    read: _Read
    staging: Staging
    store: Store

    @property
    def rows(self) -> Sequence[Row]:
        return self.read.rows

    @property
    def patches(self) -> dict[tuple[str, str, str | None], Patch]:
        return self.read.patches

    def items(self, positions: Iterable[int]) -> list[ContextItem]:
        """Return the items of some rows."""
        return _read_items(self.store, [self.rows[at].seq for at in positions], self.read.items)

    def derived(self, kind: str, version: str, compute: Compute) -> pa.Table:
        """Return columns that follow from each row's item alone; only what is new is computed."""
        memo = RowMemo(self.staging.layout.derived, kind, version)
        return memo.take([row.item_hash for row in self.rows], compute)

    def blocks(self, make: Callable[[Sequence[ContextItem]], pa.Table]) -> pa.Table:
        """Return the renditions of all rows, every tool under its own name; `make` returns those of
        items.
        """
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
        sample = tuple(without_content(row, known.label) for row, known in shown)
        columns = tuple((field.name, str(field.type)) for field in table.schema)
        return StageResult(table.num_rows, digest, facts, sample, columns)


def _until(stored: pa.Table, last: int) -> pa.Table:
    import pyarrow.compute as pc

    return stored.filter(pc.less_equal(stored.column("seq"), last))
