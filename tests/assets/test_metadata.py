from __future__ import annotations

from datetime import timedelta

import pytest

from ctx_pipeline.assets.metadata import (
    TABLE_ROWS,
    errors_table,
    files_table,
    is_open,
    markdown_table,
    owner_of,
    sample_table,
    stage_freshness,
)
from ctx_pipeline.building.pipeline import shown_id
from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import (
    FileCode,
    FileError,
    FileStatus,
    Sensitivity,
    SourceFile,
    SourceKind,
)
from ctx_pipeline.index.facts import scope_label
from ctx_pipeline.text import reference
from testing.artifacts import make_item


@pytest.mark.parametrize(
    ("name", "owners"),
    [
        ("finance-data", ["team:finance-data"]),
        ("Docs Team", ["team:docs-team"]),
        ("财务 数据组", ["team:财务-数据组"]),
        ("ana@example.com", ["ana@example.com"]),
        ("team:ops", ["team:ops"]),
        ("  ", []),
        ("***", []),
        (None, []),
    ],
)
def test_an_owner_is_an_address_or_a_team(name: str | None, owners: list[str]) -> None:
    assert owner_of(name) == owners


def test_a_table_cell_cannot_break_out_of_its_cell() -> None:
    table = markdown_table(("file", "why"), [("a|b.md", "first\nsecond"), ("c\\|d.md", None)])
    assert table.splitlines() == [
        "| file | why |",
        "| --- | --- |",
        "| a\\|b.md | first second |",
        "| c\\\\\\|d.md |  |",
    ]


def test_only_what_everybody_of_the_tenant_may_know_is_called_by_its_name() -> None:
    assert shown_id("tool:t/delete", scope_label(make_item("delete"))) == "tool:t/delete"
    for closed in (
        make_item("delete", groups=("finance",)),
        make_item("delete", groups=(), principals=("ana",)),
        make_item("delete", sensitivity=Sensitivity.CONFIDENTIAL),
        make_item("delete", sensitivity=None),
        make_item("delete", agent_visibility=("planner",)),
    ):
        assert shown_id(closed.item_id, scope_label(closed)) == reference(closed.item_id)
    settings = {"name": "s", "kind": SourceKind.DOCUMENTS, "path": "s"}
    assert is_open(SourceConfig(**settings, groups=("*",), sensitivity=Sensitivity.INTERNAL))
    assert not is_open(
        SourceConfig(**settings, groups=("finance",), sensitivity=Sensitivity.INTERNAL)
    )
    assert not is_open(SourceConfig(**settings, groups=("*",), sensitivity=Sensitivity.RESTRICTED))


def test_a_long_table_says_how_much_is_missing() -> None:
    table = markdown_table(("n",), [(number,) for number in range(TABLE_ROWS + 7)])
    assert table.endswith("7 more rows are not shown.")
    assert len(table.splitlines()) == 2 + TABLE_ROWS + 2


def test_failed_files_come_first() -> None:
    files = [
        SourceFile(path="a.md", status=FileStatus.LOADED, items=1, bytes=10),
        SourceFile(path="z.md", status=FileStatus.FAILED, reason="not_utf8"),
    ]
    read = f"| {reference('a.md')}"
    assert [line.split(" | ")[0] for line in files_table(files, named=True).splitlines()[2:]] == [
        "| z.md",
        read,
    ]
    assert "z.md" not in files_table(files, named=False)


def test_an_error_is_shown_with_its_line_and_code() -> None:
    error = FileError(path="m.jsonl", line=3, code=FileCode.BAD_JSON, message="is not valid JSON")
    assert (
        errors_table([error], named=True).splitlines()[2]
        == "| m.jsonl | 3 | bad_json | is not valid JSON |"
    )
    hidden = f"| {reference('m.jsonl')} | 3 | bad_json | `ctx build` says it |"
    assert errors_table([error], named=False).splitlines()[2] == hidden


def test_a_sample_shows_ids_and_numbers_and_only_the_length_of_what_a_source_says() -> None:
    rows = [
        {
            "item_id": "memory:notes/m1",
            "title": "Ana's birthday",
            "full": "机密 text",
            "edges": [1, 2],
            "chain": 4,
        }
    ]
    table = sample_table(rows)
    assert (
        table.splitlines()[2]
        == "| memory:notes/m1 | 14 characters | 7 characters | 2 entries | 4 |"
    )
    assert "birthday" not in table
    assert "机密" not in table


def test_stages_are_as_fresh_as_the_tightest_source() -> None:
    sources = [
        SourceConfig.model_validate(
            {"name": name, "kind": "documents", "path": "x", "freshness": window}
        )
        for name, window in (("a", "48h"), ("b", {"warn": "30m", "fail": "72h"}), ("c", None))
    ]
    policy = stage_freshness(sources)
    assert policy == stage_freshness(reversed(sources))
    assert (policy.warn_window.to_timedelta(), policy.fail_window.to_timedelta()) == (
        timedelta(minutes=30),
        timedelta(hours=48),
    )


def test_without_windows_stages_are_stale_after_a_day() -> None:
    policy = stage_freshness([])
    assert (policy.warn_window.to_timedelta(), policy.fail_window.to_timedelta()) == (
        timedelta(hours=18),
        timedelta(hours=24),
    )
