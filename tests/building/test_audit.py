"""The audit of a build: passes on a sound project, and each check fails for
what it is there for.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ctx_pipeline.building.audit import LABEL_ROWS
from ctx_pipeline.building.checks import STAGE_CHECKS, Finding
from ctx_pipeline.building.generation import current_generation
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.building.source_audit import schema_is_stable, volume_is_usual
from ctx_pipeline.building.stage_audit import audit_stage
from ctx_pipeline.contracts import ItemKind
from ctx_pipeline.index.artifact import Staging
from ctx_pipeline.security.visibility import ALWAYS, NEVER
from testing.artifacts import (
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_workspace,
    overlay,
    store_items,
    write_config,
)
from tests.building.test_ingest import Home

SOURCES = {
    "handbook": {"authority": 60},
    "registry": {"kind": "semantic_registry"},
    "notes": {"kind": "memories"},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, versions by number and by hash, a closed item, a retired, a quarantined and a
    forgotten one.
    """
    gmv = [
        make_item(
            "gmv",
            f"gmv {n}",
            kind=ItemKind.METRIC,
            source="registry",
            version=str(n),
            authority=100,
        )
        for n in (1, 2, 10)
    ]
    later = make_item(
        "gmv",
        "later",
        kind=ItemKind.METRIC,
        source="registry",
        version="11",
        valid_from=NOW + timedelta(days=9),
    )
    ties = [make_item("tie", f"equal {v}", version=v) for v in ("2", "v2.0")]
    hashes = [make_item("page", f"退款 {n}", version=f"{n}beef") for n in "ab"]
    notes = [
        make_item(f"n{n}", f"note {n}", kind=ItemKind.MEMORY, source="notes", authority=40)
        for n in range(30)
    ]
    closed = [
        make_item("board", "closed", groups=("board",)),
        make_item("nobody", "nothing", groups=()),
    ]
    out = [
        make_item(name, f"about {name}") for name in ("retired", "quarantined", "forgotten", "back")
    ]
    old = make_item("old", "of a source that is gone", source="gone")
    home = make_project(
        tmp_path_factory.mktemp("audit"),
        [*gmv, later, *ties, *hashes, *notes, *closed, *out, old],
        sources=SOURCES,
    )
    for code in ("retired", "quarantined", "forgotten"):
        append_overlay(home, overlay(code, f"document:handbook/{code}"))
    append_overlay(
        home,
        overlay("retired", "document:handbook/back"),
        overlay("restored", "document:handbook/back"),
    )
    append_overlay(home, overlay("retired", "metric:registry/gmv", version="10"))
    write_config(home, SOURCES)
    build_index(home)
    return home


@pytest.fixture
def home(built: Path, tmp_path: Path) -> Path:
    return shutil.copytree(built, tmp_path / "project")


def audit(home: Path) -> dict[str, Finding]:
    with open_workspace(home) as workspace:
        return {
            finding.check: finding
            for stage in STAGE_CHECKS
            for finding in audit_stage(workspace, current_generation(workspace), stage)
        }


def tamper(home: Path, part: str, change: Callable[[pa.Table], pa.Table]) -> None:
    with open_workspace(home) as workspace:
        staging = Staging(workspace.layout, current_generation(workspace))
        staging.write(part, change(staging.read(part)))


def with_column(name: str, change: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    def apply(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        field = table.schema.field(name)
        values = np.array(table.column(name).to_numpy())
        changed = change(values)
        return table.set_column(
            at, field, pa.array(values if changed is None else changed, field.type)
        )

    return apply


def row(home: Path, name: str, version: str = "1") -> int:
    with open_workspace(home) as workspace:
        found = (
            Staging(workspace.layout, current_generation(workspace)).read("discovered").to_pylist()
        )
    return next(
        n
        for n, each in enumerate(found)
        if each["item_id"].endswith(f"/{name}") and each["version"] == version
    )


def failed(home: Path) -> set[str]:
    return {name for name, finding in audit(home).items() if not finding.passed}


def test_a_sound_project_passes_every_check_but_says_what_nobody_sees(home: Path):
    findings = audit(home)
    assert set(findings) == {check.name for checks in STAGE_CHECKS.values() for check in checks}
    assert {name for name, finding in findings.items() if not finding.passed} == {
        "every_row_has_a_scope"
    }
    scope = findings["every_row_has_a_scope"]
    assert (scope.blocking, scope.counts, scope.samples) == (
        False,
        {"rows_without_scope": 1},
        ("document:handbook/nobody@1",),
    )
    assert findings["rows_match_the_store"].counts["rows"] == 44
    assert LABEL_ROWS / 2 <= findings["labels_are_within_scope"].counts["rows"] <= LABEL_ROWS
    assert findings["token_counts_are_exact"].counts["compared"] == 44 * 6


def test_an_empty_project_passes(tmp_path: Path):
    write_config(tmp_path, {"handbook": {}})
    build_index(tmp_path)
    assert failed(tmp_path) == set()


def test_a_row_that_is_there_twice_is_found(home: Path):
    tamper(home, "discovered", lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    tamper(home, "vectors", lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    with open_workspace(home) as workspace:
        doubled, store, _ = audit_stage(
            workspace, current_generation(workspace), "discovered_items"
        )
    assert (doubled.passed, doubled.blocking, doubled.counts) == (False, True, {"doubled_rows": 2})
    assert store.passed


@pytest.mark.parametrize("how", ["missing", "extra", "forgotten"])
def test_rows_that_are_not_those_of_the_store_are_found(home: Path, how: str):
    if how == "missing":
        for part in ("discovered", "vectors"):
            tamper(home, part, lambda table: table.slice(1))
    elif how == "extra":
        tamper(
            home, "discovered", with_column("version", lambda values: np.append(values[:-1], "99"))
        )
    else:
        tamper(
            home,
            "discovered",
            with_column("item_id", lambda v: np.append(v[:-1], "document:handbook/forgotten")),
        )
    finding = audit_one(home, "discovered_items", "rows_match_the_store")
    assert not finding.passed
    assert finding.blocking
    assert finding.counts["missing_rows"] == 1
    assert finding.counts["extra_rows"] == (0 if how == "missing" else 1)
    assert finding.samples


def audit_one(home: Path, stage: str, check: str) -> Finding:
    with open_workspace(home) as workspace:
        return next(
            finding
            for finding in audit_stage(workspace, current_generation(workspace), stage)
            if finding.check == check
        )


@pytest.mark.parametrize("wrong", ["nan", "long", "swapped", "narrow"])
def test_vectors_that_are_not_the_model_s_are_found(home: Path, wrong: str):
    def change(table: pa.Table) -> pa.Table:
        values = np.stack(table.column("vector").to_numpy(zero_copy_only=False)).astype(np.float32)
        if wrong == "nan":
            values[3, 0] = np.nan
        elif wrong == "long":
            values[3] *= 2
        elif wrong == "swapped":
            values[[3, 9]] = values[[9, 3]]
        else:
            values = values[:, :16]
        width = values.shape[1]
        return pa.table(
            {"vector": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)}
        )

    tamper(home, "vectors", change)
    finding = audit_one(home, "discovered_items", "vectors_are_of_one_model")
    assert (finding.passed, finding.blocking) == (False, True)


@pytest.mark.parametrize(
    ("name", "column", "value", "count"),
    [
        ("retired", "retired_at", NEVER, "withdrawn_but_live"),
        ("quarantined", "state", 0, "withdrawn_but_live"),
        ("old", "retired_at", NEVER, "withdrawn_but_live"),
        ("back", "retired_at", ALWAYS, "live_but_withdrawn"),
        ("n3", "state", 1, "live_but_withdrawn"),
    ],
)
def test_rows_that_are_not_as_the_record_says_are_found(
    home: Path, name: str, column: str, value: int, count: str
):
    at = row(home, name)
    tamper(home, "filtered", with_column(column, lambda values: values.__setitem__(at, value)))
    finding = audit_one(home, "filtered_items", "withdrawn_rows_stay_out")
    assert (finding.passed, finding.blocking, finding.counts[count]) == (False, True, 1)
    assert name in finding.samples[0]


@pytest.mark.parametrize(
    ("name", "live", "replaced"), [("gmv", "1", None), ("gmv", "1", "2"), ("page", "abeef", None)]
)
def test_a_replaced_version_that_is_live_is_found(
    home: Path, name: str, live: str, replaced: str | None
):
    old = row(home, name, live)

    def change(values: Any) -> None:
        values[old] = NEVER
        if replaced is not None:
            values[row(home, name, replaced)] = ALWAYS

    tamper(home, "filtered", with_column("superseded_at", change))
    finding = audit_one(home, "filtered_items", "only_current_versions_are_live")
    assert (finding.passed, finding.blocking) == (False, True)
    assert finding.samples == (
        f"{'metric:registry' if name == 'gmv' else 'document:handbook'}/{name}@{live}",
    )


def test_a_label_that_is_wider_than_its_item_is_found(home: Path):
    def open_up(table: pa.Table) -> pa.Table:
        metadata: Any = table.schema.metadata
        labels = json.loads(metadata[b"labels"])
        for label in labels:
            if label["groups"] == ["board"]:
                label["groups"] = ["*"]
        return table.replace_schema_metadata({**metadata, b"labels": json.dumps(labels)})

    tamper(home, "filtered", open_up)
    finding = audit_one(home, "filtered_items", "labels_are_within_scope")
    assert (finding.passed, finding.blocking, finding.samples) == (
        False,
        True,
        ("document:handbook/board@1",),
    )


@pytest.mark.parametrize(
    ("name", "value", "blocking"), [("back", 101, True), ("back", 61, False), ("n3", 61, True)]
)
def test_authority_beyond_the_policy_is_found(home: Path, name: str, value: int, blocking: bool):
    at = row(home, name)
    tamper(home, "ranked", with_column("authority", lambda values: values.__setitem__(at, value)))
    finding = audit_one(home, "ranked_items", "authority_is_within_policy")
    if name == "n3":
        # Its source sets no authority, so there is nothing but the policy's own range.
        assert finding.passed
    else:
        assert (finding.passed, finding.blocking) == (False, blocking)


def test_an_old_version_may_keep_the_authority_of_its_day(tmp_path: Path):
    items = [
        make_item("a", f"refund {n}", version=str(n), authority=authority)
        for n, authority in ((1, 90), (2, 50))
    ]
    home = make_project(tmp_path, items, sources={"handbook": {"authority": 50}})
    assert failed(home) == set()
    write_config(home, {"handbook": {"authority": 40}})
    assert audit(home)["authority_is_within_policy"].counts["above_their_source"] == 1


def test_token_counts_that_are_not_exact_are_found(home: Path):
    at = row(home, "n3")
    tamper(
        home,
        "budgeted",
        with_column("compact_o200k_base", lambda values: values.__setitem__(at, values[at] + 1)),
    )
    finding = audit_one(home, "budgeted_items", "token_counts_are_exact")
    assert (finding.passed, finding.blocking, finding.samples) == (
        False,
        True,
        ("memory:notes/n3@1",),
    )


def test_a_part_with_other_rows_fails_every_check_of_its_stage_and_is_written_anew(home: Path):
    tamper(home, "filtered", lambda table: table.slice(1))
    with open_workspace(home) as workspace:
        assert [
            finding.passed
            for finding in audit_stage(workspace, current_generation(workspace), "filtered_items")
        ] == [False] * 4
    build_index(home)
    assert failed(home) == {"every_row_has_a_scope"}


# --- sources


def read(home: Home, name: str) -> Finding:
    with open_workspace(home.folder) as workspace:
        before = workspace.store.max_seq()
        refresh_source(workspace, name)
        return schema_is_stable(workspace.store, name, before)


def test_lost_columns_and_changed_types_are_named(tmp_path: Path):
    home = Home(tmp_path, {"db": {"kind": "schema_metadata", "path": "db"}})
    home.write("db/orders.csv", "id,order date,amount\n1,2026-01-01,2.5\n")
    home.write("db/stores.csv", "id,city\n1,上海\n")
    assert read(home, "db").passed
    home.write("db/stores.csv", "id,city\n1,上海\n2,北京\n")
    assert read(home, "db").counts == {"changed": 1, "compared": 1, "drifted": 0}
    home.write("db/orders.csv", "id,amount,note\n1,many,x\n")
    finding = read(home, "db")
    assert (finding.passed, finding.blocking) == (False, False)
    assert finding.samples == ("orders.order date: lost", "orders.amount: DOUBLE became VARCHAR")
    assert read(home, "db").passed


def test_what_breaks_calls_of_a_tool_is_named(tmp_path: Path):
    home = Home(tmp_path, {"tools": {"kind": "tools", "path": "tools.json"}})

    def tool(required: list[str], **types: str) -> None:
        properties = {name: {"type": kind} for name, kind in types.items()}
        schema = {"type": "object", "properties": properties, "required": required}
        home.write("tools.json", json.dumps([{"name": "refund", "inputSchema": schema}]))

    tool(["order"], order="string", note="string")
    assert read(home, "tools").passed
    tool(["order"], order="string", note="string", place="string")
    assert read(home, "tools").passed
    tool(["order", "note"], order="integer", note="string", place="string")
    assert read(home, "tools").samples == (
        "refund: 'note' is required now",
        "refund: the type of 'order' was changed: string became integer",
    )
    tool([], order="integer", place="string")
    assert read(home, "tools").samples == ("refund: 'note' was removed",)


@pytest.mark.parametrize(
    ("changed", "items", "past", "passed"),
    [
        (500, 500, [], True),
        (500, 500, [400, 0], True),
        (400, 500, [0, 3, 500], False),
        (400, 500, [90, 80, 85], True),
        (19, 20, [0, 0, 0], True),
        (90, 500, [0, 0, 0], True),
    ],
)
def test_a_reading_that_changes_far_more_than_usual_is_found(
    changed: int, items: int, past: list[int], passed: bool
):
    finding = volume_is_usual(changed, items, past)
    assert (finding.passed, finding.blocking) == (passed, False)


def test_the_audit_reads_what_the_generation_knows_and_nothing_later(home: Path):
    with open_workspace(home) as workspace:
        generation = current_generation(workspace)
        store_items(home, [make_item("later", "x")])
        assert [
            finding.passed for finding in audit_stage(workspace, generation, "discovered_items")
        ] == [True] * 3
