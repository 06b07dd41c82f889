"""What `supersedes` replaces: in one file or several, by whole or bare id; what comes to nothing is
reported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.pipeline import Pipeline
from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import FileError
from testing.artifacts import ANA, NOW, STAGES, open_project, open_workspace, write_config


def build(home: Path, files: dict[str, str], **kinds: str) -> list[FileError]:
    """Write files, read the sources (each from the folder of its name), publish;
    return the errors.
    """
    for path, text in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text, encoding="utf-8")
    write_config(home, {name: {"kind": kind, "path": name} for name, kind in kinds.items()})
    with open_workspace(home) as workspace:
        errors = [error for name in kinds for error in refresh_source(workspace, name).errors]
        pipeline = Pipeline(workspace)
        for stage in STAGES:
            errors += getattr(pipeline, stage)().errors
    return errors


def codes(home: Path, *item_ids: str) -> list[str | None]:
    """Return why each item is left out; None for one that is visible."""
    with open_project(home) as project:
        return [project.why_not(item_id, identity=ANA, at=NOW)[0].code for item_id in item_ids]


def memories(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


@pytest.mark.parametrize(
    "reference", ["memory:mem/old", "old", "memory:old", ["old"], ["memory:mem/old"]]
)
def test_a_memory_replaces_another_one_of_its_own_file(tmp_path: Path, reference: Any):
    old = {"id": "old", "text": "Zed wants reports by mail. 报告用邮件发。"}
    new = {
        "id": "new",
        "text": "Zed wants reports by chat. 报告用聊天发。",
        "supersedes": reference,
    }
    errors = build(tmp_path, {"mem/mem.jsonl": memories(old, new)}, mem="memories")
    assert errors == []
    assert codes(tmp_path, "memory:mem/old", "memory:mem/new") == ["superseded", None]


def test_metrics_and_terms_of_one_yaml_file_replace_each_other(tmp_path: Path):
    metrics = (
        "metrics:\n  - {name: gmv_gross, table: orders, expression: sum(amount)}\n"
        "  - {name: gmv, version: 2, table: orders, expression: sum(net), supersedes: [gmv_gross, "
        "'1']}\n"
    )
    terms = (
        "terms:\n  - {name: 成交总额, definition: 全部订单金额}\n"
        "  - {name: 净成交额, definition: 扣除退款后的金额, supersedes: 成交总额}\n"
    )
    errors = build(
        tmp_path,
        {"reg/m.yaml": metrics, "words/t.yaml": terms},
        reg="semantic_registry",
        words="glossary",
    )
    assert errors == []
    assert codes(tmp_path, "metric:reg/gmv_gross", "metric:reg/gmv") == ["superseded", None]
    assert codes(tmp_path, "glossary:words/成交总额", "glossary:words/净成交额") == [
        "superseded",
        None,
    ]


@pytest.mark.parametrize(
    "reference", ["policies/old.md", "document:docs/policies/old.md", "old.md", "old"]
)
def test_every_chunk_of_a_document_is_replaced_however_it_is_named(tmp_path: Path, reference: str):
    files = {
        "docs/policies/old.md": "# Refunds\n\n" + "Refunds take ten days. " * 200,
        "docs/policies/new.md": f"---\nsupersedes: {reference}\n---\n# Refunds\n\n"
        "Refunds take 7 days.",
    }
    assert build(tmp_path, files, docs="documents") == []
    old = [f"document:docs/policies/old.md#{number}" for number in (1, 2, 3)]
    assert codes(tmp_path, *old, "document:docs/policies/new.md#1") == ["superseded"] * 3 + [None]


def test_skills_and_tools_of_one_source_replace_each_other(tmp_path: Path):
    head = "---\nname: {0}\ndescription: Ship a release with {0}.\n{1}---\nDo it."
    tools = [
        {"name": "refund", "description": "Old refund", "inputSchema": {"type": "object"}},
        {
            "name": "refund_v2",
            "description": "Refund",
            "inputSchema": {"type": "object"},
            "supersedes": ["refund"],
        },
    ]
    files = {
        "skills/ship/SKILL.md": head.format("ship", ""),
        "skills/ship-fast/SKILL.md": head.format("ship-fast", "supersedes: ship\n"),
        "tools/t.json": json.dumps({"tools": tools}),
    }
    assert build(tmp_path, files, skills="skills", tools="tools") == []
    assert codes(tmp_path, "skill:skills/ship", "skill:skills/ship-fast") == ["superseded", None]
    assert codes(tmp_path, "tool:tools/refund", "tool:tools/refund_v2") == ["superseded", None]


def test_a_tool_replaces_none_of_another_server(tmp_path: Path):
    mail = {"server": "mail", "tools": [{"name": "send", "description": "Send mail"}]}
    chat = {
        "server": "chat",
        "tools": [{"name": "post", "description": "Post", "supersedes": "tool:t/mail/send"}],
    }
    errors = build(
        tmp_path, {"t/mail.json": json.dumps(mail), "t/chat.json": json.dumps(chat)}, t="tools"
    )
    assert [error.code.value for error in errors] == ["not_replaced"]
    assert codes(tmp_path, "tool:t/mail/send") == [None]


def test_a_chain_of_replacements_leaves_the_last_one(tmp_path: Path):
    lines = [
        {"id": "m1", "text": "v1"},
        *({"id": f"m{n}", "text": f"v{n}", "supersedes": f"m{n - 1}"} for n in (2, 3, 4)),
    ]
    assert build(tmp_path, {"mem/mem.jsonl": memories(*lines)}, mem="memories") == []
    assert codes(tmp_path, *(f"memory:mem/m{n}" for n in (1, 2, 3, 4))) == ["superseded"] * 3 + [
        None
    ]


@pytest.mark.parametrize("length", [2, 3])
def test_items_that_replace_each_other_in_a_round_stay_and_are_reported(
    tmp_path: Path, length: int
):
    lines = [
        {"id": f"m{n}", "text": f"v{n}", "supersedes": f"m{(n + 1) % length}"}
        for n in range(length)
    ]
    lines.append({"id": "last", "text": "leads into the round", "supersedes": "m0"})
    errors = build(tmp_path, {"mem/mem.jsonl": memories(*lines)}, mem="memories")
    assert [(error.code.value, error.line) for error in errors] == [
        ("not_replaced", n + 1) for n in range(length)
    ]
    assert codes(tmp_path, *(f"memory:mem/m{n}" for n in range(length)))[1:] == [None] * (
        length - 1
    )
    assert codes(tmp_path, "memory:mem/m0", "memory:mem/last") == ["superseded", None]


def test_documents_that_replace_each_other_are_reported_once_each(tmp_path: Path):
    text = (
        "---\ntitle: T\nsupersedes: [{}]\n---\n" + "Refunds take ten days. 退款需要十天。\n" * 150
    )
    errors = build(
        tmp_path,
        {"docs/a.md": text.format("b.md"), "docs/b.md": text.format("a.md")},
        docs="documents",
    )
    assert [(error.path, error.line) for error in errors] == [("docs/a.md", 3), ("docs/b.md", 3)]
    assert codes(tmp_path, "document:docs/a.md#1", "document:docs/b.md#1") == [None, None]


@pytest.mark.parametrize(
    ("path", "kind", "text", "line"),
    [
        (
            "x/m.jsonl",
            "memories",
            '{"id":"a","text":"a"}\n{"id":"b","text":"b","supersedes":["nope"]}\n',
            2,
        ),
        ("x/m.jsonl", "memories", '{"id":"a","text":"a","supersedes":"memory:other/没有"}\n', 1),
        ("x/d.md", "documents", "---\ntitle: T\nsupersedes: gone.md\n---\n# Refunds\n\nText.", 3),
        (
            "x/m.yaml",
            "semantic_registry",
            "metrics:\n  - name: gmv\n    expression: sum(a)\n    supersedes: [gross]\n",
            4,
        ),
        (
            "x/t.yaml",
            "glossary",
            "terms:\n  - name: 成交额\n    definition: 订单金额\n    supersedes:\n      - 总额\n",
            5,
        ),
    ],
)
def test_an_entry_that_names_nothing_is_reported_with_its_line(
    tmp_path: Path, path: str, kind: str, text: str, line: int
):
    for _ in range(2):  # Also where nothing has changed since the build before.
        (error,) = build(tmp_path, {path: text}, x=kind)
        assert (error.code.value, error.path, error.line) == ("not_replaced", path, line)


def test_a_bare_id_that_means_several_replaces_none_of_them(tmp_path: Path):
    files = {
        "docs/a/old.md": "Refunds take 3 days.",
        "docs/b/old.md": "Refunds take 4 days.",
        "docs/new.md": "---\nsupersedes: old\n---\nRefunds take 7 days.",
    }
    (error,) = build(tmp_path, files, docs="documents")
    assert "document:docs/a/old.md" in error.message
    assert "document:docs/b/old.md" in error.message
    assert codes(tmp_path, "document:docs/a/old.md#1", "document:docs/b/old.md#1") == [None, None]


def test_a_bare_id_means_nothing_of_another_source_or_kind(tmp_path: Path):
    files = {
        "one/m.jsonl": memories({"id": "old", "text": "Ana likes tea."}),
        "two/m.jsonl": memories({"id": "new", "text": "Ana likes coffee.", "supersedes": "old"}),
    }
    (error,) = build(tmp_path, files, one="memories", two="memories")
    assert (error.path, error.line) == ("two/m.jsonl", 1)
    assert codes(tmp_path, "memory:one/old") == [None]


def test_an_item_of_less_standing_is_told_that_it_replaces_nothing(tmp_path: Path):
    lines = [
        {"id": "old", "text": "Pay in 10 days."},
        {"id": "new", "text": "Pay now.", "supersedes": "old", "authority": 1},
    ]
    (error,) = build(tmp_path, {"mem/m.jsonl": memories(*lines)}, mem="memories")
    assert (error.code.value, error.line) == ("not_replaced", 2)
    assert "authority" in error.message
    assert codes(tmp_path, "memory:mem/old") == [None]
