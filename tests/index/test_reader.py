"""The reader answers as a plain loop over all rows would: exact nearest vectors, and the predicate
on every row.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ctx_pipeline.contracts import ContextItem, Identity, ItemKind, Sensitivity, Trust
from ctx_pipeline.errors import Corrupt, Unavailable
from ctx_pipeline.index import quantised
from ctx_pipeline.index import view as view_module
from ctx_pipeline.index.artifact import SEAL, Layout, read_pointer, sealed
from ctx_pipeline.index.lexical import LexicalHits
from ctx_pipeline.index.reader import ArtifactReader
from ctx_pipeline.index.serving import ServingIndex
from ctx_pipeline.index.view import ServingView
from ctx_pipeline.ledger import Ledger
from ctx_pipeline.security.visibility import Clock, Viewer, code_of, micros, permission_code
from testing.artifacts import (
    ANA,
    NOW,
    WordEmbedder,
    append_overlay,
    make_item,
    make_project,
    overlay,
)
from testing.examples import examples

generated = settings(
    max_examples=examples(25),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TENANTS = ("acme", "acme-corp", "")
WORDS = ("refund", "order", "退款", "区域", "price", "stock", "gmv")


@contextmanager
def opened(home: Path) -> Iterator[ServingView]:
    with Ledger.open(home / ".ctx" / "state" / "ledger.db") as ledger:
        yield ServingIndex(
            home, overlay_sequence=ledger.overlay_sequence, overlay_since=ledger.overlay_since
        ).view()


@st.composite
def small_items(draw: st.DrawFn) -> list[ContextItem]:
    """Up to 30 item versions over tenants, groups and times; many texts are alike."""
    made: list[ContextItem] = []
    for number in range(draw(st.integers(0, 15))):
        kind = draw(st.sampled_from((ItemKind.DOCUMENT, ItemKind.METRIC, ItemKind.SCHEMA)))
        tenant = draw(st.sampled_from(TENANTS))
        for version in range(1, draw(st.integers(1, 3)) + 1):
            start = draw(st.sampled_from((None, -2, 0, 2)))
            made.append(
                make_item(
                    f"{number}",
                    " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))),
                    kind=kind,
                    version=f"{version}",
                    title="t",
                    tenant=tenant or None,
                    groups=draw(st.sampled_from((("*",), ("analysts",), ("finance",), ()))),
                    sensitivity=draw(
                        st.sampled_from((None, Sensitivity.PUBLIC, Sensitivity.RESTRICTED))
                    ),
                    trust=draw(st.sampled_from((Trust.USER, Trust.TOOL_UNTRUSTED))),
                    valid_from=None if start is None else NOW + timedelta(days=start),
                    subject=draw(st.sampled_from((None, "s1", "s2"))),
                    depends_on=tuple(
                        draw(
                            st.lists(
                                st.sampled_from(("schema:*/1", "schema:handbook/2")), max_size=1
                            )
                        )
                    ),
                )
            )
    return made


viewers = st.builds(
    lambda tenant, groups, clearance, floor: Viewer.of(
        Identity(principal="ana", tenant=tenant, groups=groups, clearance=clearance),
        trust_floor=floor,
    ),
    st.sampled_from(("acme", "acme-corp", "nobody")),
    st.sampled_from(((), ("analysts",), ("finance", "x"))),
    st.sampled_from((Sensitivity.PUBLIC, Sensitivity.RESTRICTED)),
    st.sampled_from((Trust.TOOL_UNTRUSTED, Trust.USER)),
)
clocks = st.builds(
    lambda as_of: Clock(
        micros(NOW), None if as_of is None else micros(NOW + timedelta(days=as_of))
    ),
    st.sampled_from((None, -3, 0, 3)),
)


@pytest.mark.timeout(180)
@generated
@given(items=small_items(), data=st.data())
def test_search_equals_a_loop_over_all_rows(items: list[ContextItem], data: st.DataObject):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            search_small_copies(patch)
        home = make_project(Path(folder), items, {"handbook": {}})
        if items and data.draw(st.booleans()):
            for item in data.draw(st.lists(st.sampled_from(items), max_size=3)):
                code = data.draw(
                    st.sampled_from(("retired", "quarantined", "forgotten", "revoked"))
                )
                append_overlay(home, overlay(code, item.item_id, tenant=item.scope.tenant or ""))
        with opened(home) as view:
            assert view.reader.rows == len(items)
            for _ in range(6):
                viewer, clock = data.draw(viewers), data.draw(clocks)
                text, limit = data.draw(st.sampled_from(WORDS)), data.draw(st.integers(1, 40))
                check_search(view, viewer, clock, text, limit)


def search_small_copies(patch: pytest.MonkeyPatch) -> None:
    """Search even the smallest tenant the way that large ones are searched."""
    patch.setattr(quantised, "LEAST_ROWS", 1)
    patch.setattr(quantised, "LEAST_RUN", 2)
    patch.setattr(view_module, "EXACT_ROWS", 0)


def check_search(view: ServingView, viewer: Viewer, clock: Clock, text: str, limit: int) -> None:
    reader = view.reader
    vector = WordEmbedder().embed_query(text)
    everything = range(reader.rows)
    whole = view.codes(np.arange(reader.rows), viewer, clock).tolist()
    labels = [view.labels[number] for number in view.state.scope.tolist()]
    for row, label in zip(everything, labels, strict=True):
        denied = permission_code(label, viewer)
        if denied is not None:
            assert code_of(whole[row]) is denied
        assert view.codes(np.asarray([row]), viewer, clock).tolist() == [whole[row]]
    hits = view.search(text, vector, viewer=viewer, clock=clock, limit=limit)
    visible = [row for row in everything if whole[row] == 0]
    scores = {row: float(reader.vectors[row] @ vector) for row in visible}
    exact = sorted(visible, key=lambda row: (-round(scores[row], 5), row))[:limit]
    assert [round(float(score), 4) for score in hits.dense_scores] == [
        round(scores[row], 4) for row in exact
    ]
    assert hits.dense_rows.tolist() == exact
    assert set(hits.dense_rows.tolist()) <= set(visible)
    first, last = reader.tenants.get(viewer.tenant, (0, 0))
    own = [code_of(whole[row]) for row in range(first, last)]
    assert hits.denied == {code: own.count(code) for code in hits.denied}
    assert sum(hits.denied.values()) == sum(
        1 for row in range(first, last) if permission_code(labels[row], viewer)
    )
    for row in hits.lexical.rows:
        assert permission_code(labels[row], viewer) is None
        assert labels[row].tenant == viewer.tenant


@pytest.mark.timeout(180)
@generated
@given(items=small_items())
def test_lookups_equal_a_loop_over_all_rows(items: list[ContextItem]):
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(make_project(Path(folder), items, {"handbook": {}})) as view,
    ):
        reader = view.reader
        rows = list(range(reader.rows))
        ids = [reader.text("item_id", row) for row in rows]
        tenants = [view.labels[number].tenant or "" for number in view.state.scope.tolist()]
        assert sorted(zip(tenants, ids, strict=True)) == list(zip(tenants, ids, strict=True))
        for tenant in (*TENANTS, "nobody"):
            for item_id in {*ids, "document:handbook/", "zzz", "", "\x00"}:
                wanted = [row for row in rows if (tenants[row], ids[row]) == (tenant, item_id)]
                assert list(reader.find(tenant, item_id)) == wanted
        key = list(zip(tenants, ids, strict=True))
        assert sorted(reader.other_versions(rows)) == [
            (a, b) for a in rows for b in rows if a != b and key[a] == key[b]
        ]
        about = [(tenants[row], reader.text("subject_name", row)) for row in rows]
        assert sorted(reader.same_subject(rows)) == [
            (a, b) for a in rows for b in rows if a != b and about[a] == about[b] and about[a][1]
        ]
        for row, target in reader.dependencies(rows):
            assert tenants[row] == tenants[target]
            assert ids[target] in ("schema:handbook/1", "schema:handbook/2")


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_small_copies_change_neither_hits_nor_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
):
    """Few of the rows and most of them; with small copies and by their vectors alone."""
    search_small_copies(monkeypatch)
    rng = np.random.default_rng(7)
    items = [
        make_item(
            f"{n:03d}",
            " ".join(rng.choice(WORDS, 4)),
            groups=("*",) if rng.random() < share else ("finance",),
        )
        for n in range(300)
    ]
    with opened(make_project(tmp_path, items)) as view:
        clock = Clock(micros(NOW))
        asked = ("refund order", "退款 区域", "gmv")
        for text in asked:
            check_search(view, Viewer.of(ANA), clock, text, 20)
        found = [search_hits(view, clock, text) for text in asked]
        assert found == [search_hits(view, clock, text) for text in asked]
        monkeypatch.setattr(view_module, "EXACT_ROWS", 300)
        assert found == [
            search_hits(ServingView(view.reader, 0, []), clock, text) for text in asked
        ]


def search_hits(view: ServingView, clock: Clock, text: str) -> tuple[list[int], bytes, LexicalHits]:
    vector = WordEmbedder().embed_query(text)
    hits = view.search(text, vector, viewer=Viewer.of(ANA), clock=clock, limit=20)
    return hits.dense_rows.tolist(), hits.dense_scores.tobytes(), hits.lexical


def test_words_find_their_own_row_however_labels_alternate(tmp_path: Path):
    words = ("alpha", "退款", "bravo", "华东", "charlie", "库存", "delta", "门店", "echo")
    groups = (("*",), ("analysts",), ("finance",))
    items = [
        make_item(f"{n:02d}", word, title="t", groups=groups[n % 3]) for n, word in enumerate(words)
    ]
    with opened(make_project(tmp_path, items)) as view:
        for n, word in enumerate(words):
            hits = view.search(word, None, viewer=Viewer.of(ANA), clock=Clock(micros(NOW)), limit=7)
            assert hits.lexical.rows == ([n] if n % 3 < 2 else [])


def test_equal_scores_are_cut_by_row(tmp_path: Path):
    with opened(
        make_project(tmp_path, [make_item(f"{n:02d}", "refund", title="t") for n in range(50)])
    ) as view:
        vector = WordEmbedder().embed_query("refund")
        hits = view.search(
            "refund", vector, viewer=Viewer.of(ANA), clock=Clock(micros(NOW)), limit=7
        )
        assert hits.dense_rows.tolist() == list(range(7)) == hits.lexical.rows


def test_without_a_vector_only_words_are_searched(tmp_path: Path):
    with opened(make_project(tmp_path, [make_item("a", "refund")])) as view:
        hits = view.search("refund", None, viewer=Viewer.of(ANA), clock=Clock(micros(NOW)), limit=7)
        assert (hits.dense_rows.tolist(), hits.lexical.rows) == ([], [0])


def current_artifact(home: Path) -> Path:
    pointer = read_pointer(Layout(home))
    assert pointer is not None
    return Layout(home).artifacts / pointer["artifact"]


@pytest.mark.parametrize("damage", ["missing manifest", "bad manifest", "cut part", "missing part"])
def test_a_damaged_artifact_is_corrupt_and_names_no_content(tmp_path: Path, damage: str):
    home = make_project(tmp_path, [make_item("a", "refund SECRET")])
    folder = current_artifact(home)
    match damage:
        case "missing manifest":
            (folder / "manifest.json").unlink()
        case "bad manifest":
            (folder / "manifest.json").write_text("{", encoding="utf-8")
        case "cut part":
            part = folder / "transformed.arrow"
            part.write_bytes(part.read_bytes()[:100])
        case _:
            (folder / "ranked.arrow").unlink()
    with pytest.raises(Corrupt) as refused:
        ArtifactReader(folder)
    assert "ctx build" in refused.value.fix
    assert "SECRET" not in str(refused.value)


def test_an_artifact_of_another_format_is_refused_by_name(tmp_path: Path):
    folder = current_artifact(make_project(tmp_path, [make_item("a", "refund")]))
    manifest = folder / "manifest.json"
    values: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
    values.pop(SEAL)
    manifest.write_text(json.dumps(sealed({**values, "format": 999})), encoding="utf-8")
    with pytest.raises(Unavailable) as refused:
        ArtifactReader(folder)
    assert refused.value.stable_code == "index_format"
