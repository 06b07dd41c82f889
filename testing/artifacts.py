"""Projects made of given items: the real store, ledger, stages and reader, with an embedder that
needs no model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.contracts import (
    ContextItem,
    Identity,
    ItemKind,
    Locator,
    Provenance,
    Scope,
    Sensitivity,
    Trust,
)
from ctx_pipeline.index.store import Store, StoredItem
from ctx_pipeline.ledger import Ledger, OverlayEntry
from ctx_pipeline.project import ContextProject
from ctx_pipeline.workspace import Workspace

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
STAGES = (
    "discovered_items",
    "filtered_items",
    "ranked_items",
    "transformed_items",
    "budgeted_items",
    "assembled_items",
)
ANA = Identity(
    principal="ana", tenant="acme", groups=("analysts",), clearance=Sensitivity.CONFIDENTIAL
)


class WordEmbedder:
    """Feature hashing of lower-case words and single Han characters: like texts get like vectors,
    in every process.
    """

    name = "test-words/1"
    dim = 48

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return (
            np.stack([self.embed_query(text) for text in texts])
            if texts
            else np.zeros((0, self.dim), np.float32)
        )

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(self.dim, np.float32)
        for word in _words(text[:2_000]):
            digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
            vector[digest[0] % self.dim] += 1.0 if digest[1] % 2 else -1.0
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length > 0 else vector


def _words(text: str) -> Iterable[str]:
    for word in text.lower().split():
        if word.isascii():
            yield word.strip(".,:;!?'\"()")
        else:
            yield from word


def make_item(
    name: str,
    content: str = "plain text",
    *,
    kind: ItemKind = ItemKind.DOCUMENT,
    source: str = "handbook",
    version: str = "1",
    title: str | None = None,
    tenant: str | None = "acme",
    groups: tuple[str, ...] = ("*",),
    principals: tuple[str, ...] = (),
    path: str | None = None,
    environment: str | None = None,
    task_types: tuple[str, ...] = (),
    agent_visibility: tuple[str, ...] = (),
    sensitivity: Sensitivity | None = Sensitivity.INTERNAL,
    trust: Trust = Trust.ENTERPRISE_TRUSTED,
    authority: int = 60,
    **more: Any,
) -> ContextItem:
    """An item that everybody of tenant `acme` may see, but for what is said otherwise."""
    return ContextItem(
        item_id=f"{kind.value}:{source}/{name}",
        version=version,
        kind=kind,
        title=name if title is None else title,
        content=content,
        provenance=Provenance(
            source_type="documents", source_id=source, locator=Locator(path=path)
        ),
        authority=authority,
        trust=trust,
        sensitivity=sensitivity,
        scope=Scope(
            tenant=tenant,
            principals=principals,
            groups=groups,
            environment=environment,
            task_types=task_types,
            agent_visibility=agent_visibility,
        ),
        **more,
    )


def write_config(home: Path, sources: Mapping[str, Mapping[str, Any]], head: str = "") -> None:
    """Write a `ctx.toml` of tenant `acme`; sources are documents for everyone but for what is said.

    None leaves a key out; `head` is TOML tables.
    """
    home.mkdir(parents=True, exist_ok=True)
    lines = ["[project]", 'name = "test"', 'tenant = "acme"', 'default_model = "gpt-5"', head]
    for name, settings in sources.items():
        lines.append("[[sources]]")
        entries = {"name": name, "kind": "documents", "path": name, "groups": ["*"], **settings}
        lines.extend(
            f"{key} = {json.dumps(value)}" for key, value in entries.items() if value is not None
        )
    (home / "ctx.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def store_items(home: Path, items: Sequence[ContextItem], at: datetime = NOW) -> None:
    """Record item versions, in order."""
    if not items:
        return
    with Workspace.open(home) as workspace:
        first = workspace.ledger.reserve(len(items))
        Store.of_project(home).append(
            [StoredItem.from_item(item, first + n, at) for n, item in enumerate(items)]
        )


def store_keys(items: Sequence[ContextItem], at: datetime = NOW) -> pa.Table:
    """What the store would tell of these items, recorded in order."""
    rows = [StoredItem.from_item(item, seq + 1, at) for seq, item in enumerate(items)]
    names = ("tenant", "item_id", "version", "seq", "item_hash", "embed_hash")
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    return pa.table(
        {**columns, "recorded_at": pa.array([at] * len(rows), pa.timestamp("us", tz="UTC"))}
    )


def build_index(home: Path) -> tuple[str, int]:
    """Run the stages of the build; return the artifact's content hash and how many texts were
    embedded.
    """
    with open_workspace(home) as workspace:
        pipeline = Pipeline(workspace)
        results = [getattr(pipeline, stage)() for stage in STAGES]
        return results[-1].data_version, pipeline.embedded


def make_project(
    home: Path,
    items: Sequence[ContextItem],
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    head: str = "",
) -> Path:
    """Make a project of these items and build it."""
    named = {item.provenance.source_id: {} for item in items}
    write_config(home, {**named, **(sources or {})}, head)
    store_items(home, items)
    build_index(home)
    return home


def open_workspace(home: Path, at: datetime = NOW) -> Workspace:
    """Open a project, with the embedder of the tests."""
    return Workspace.open(home, clock=lambda: at, embedder=WordEmbedder())


def open_project(home: Path) -> ContextProject:
    """Open a project for serving, with the embedder of the tests."""
    return ContextProject(open_workspace(home))


def overlay(
    code: Any, item_id: str, *, tenant: str = "acme", at: datetime = NOW, **more: Any
) -> OverlayEntry:
    """One change of visibility."""
    return OverlayEntry(
        code=code,
        tenant=tenant,
        item_id=item_id,
        effective_at=at,
        recorded_at=at,
        actor="test",
        reason="test",
        **more,
    )


def append_overlay(home: Path, *entries: OverlayEntry) -> None:
    """Append to the overlay from outside the project that serves."""
    with Ledger.open(home / ".ctx" / "state" / "ledger.db") as ledger:
        ledger.append_overlay(entries)
