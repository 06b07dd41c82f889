"""Memories about one thing: the newer leads, and the time of each stands in its block."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctx_pipeline import ContextProject, build
from ctx_pipeline.contracts import ContextPack, ContextRequest, Exclusion, Task
from testing.artifacts import ANA, NOW

HEAD = """[project]
name = "p"
tenant = "acme"
[[sources]]
name = "mem"
kind = "memories"
path = "mem.jsonl"
groups = ["*"]
"""


def built(folder: Path, lines: list[str]) -> Path:
    (folder / "ctx.toml").write_text(HEAD, encoding="utf-8")
    (folder / "mem.jsonl").write_text("\n".join(lines), encoding="utf-8")
    build(folder, progress=False)
    return folder


def asked(home: Path, text: str) -> tuple[ContextPack, dict[str, Exclusion | None]]:
    with ContextProject.open(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text=text), identity=ANA), at=NOW)
        traces = project.explain(pack.snapshot_id, ANA)
    return pack, {trace.item_id: trace.excluded_reason for trace in traces}


def order(pack: ContextPack) -> list[str]:
    return [item.item_id.rpartition("/")[2] for item in pack.items if item.kind == "memory"]


LINES = [
    '{"id":"b1","text":"Ben drinks coffee in the morning.","created_at":"2026-10-01T00:00:00Z"}',
    '{"id":"b2","text":"Ben does not drink coffee any more, he drinks tea.",'
    '"created_at":"2026-10-08T09:30:00Z"}',
    '{"id":"w1","text":"王芳的周报用邮件发送。","created_at":"2026-09-01T00:00:00Z"}',
    '{"id":"w2","text":"王芳的周报不再用邮件发送，已改为企业微信。",'
    '"observed_at":"2026-09-20T00:00:00Z"}',
    '{"id":"s1","subject":"zed office","text":"Zed sits in room 12.",'
    '"created_at":"2026-05-01T00:00:00Z"}',
    '{"id":"s2","subject":"zed office","text":"The desk moved upstairs.",'
    '"created_at":"2026-06-01T00:00:00Z"}',
    '{"id":"l1","subject":"ana food","text":"Ana loves Chinese food.",'
    '"created_at":"2026-10-01T00:00:00Z"}',
    '{"id":"l2","subject":"ana food","text":"Ana hates Chinese food.",'
    '"created_at":"2026-10-08T00:00:00Z"}',
    '{"id":"z1","subject":"liu 口味","text":"刘洋喜欢香菜。","created_at":"2026-10-01T00:00:00Z"}',
    '{"id":"z2","subject":"liu 口味","text":"刘洋讨厌香菜。","created_at":"2026-10-08T00:00:00Z"}',
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("memories"), LINES)


@pytest.mark.parametrize(
    ("text", "newer", "older"),
    [
        ("What does Ben drink now?", "b2", "b1"),
        ("Ben drinks coffee in the morning?", "b2", "b1"),
        ("王芳的周报怎么发送？", "w2", "w1"),
        ("Where does Zed sit, which room is the desk of Zed in?", "s2", "s1"),
    ],
)
def test_of_memories_about_one_thing_the_newer_leads(home: Path, text: str, newer: str, older: str):
    shown = order(asked(home, text)[0])
    assert newer in shown
    assert older not in shown or shown.index(newer) < shown.index(older)


def test_the_time_of_a_memory_stands_in_its_block(home: Path):
    text = asked(home, "What does Ben drink now?")[0].render("text")
    assert 'created="2026-10-01"' in text
    assert 'created="2026-10-08T09:30Z"' in text
    assert 'observed="2026-09-20"' in asked(home, "王芳的周报怎么发送？")[0].render("text")


@pytest.mark.parametrize(
    ("text", "newer", "older"),
    [("What food does Ana like?", "l2", "l1"), ("刘洋的口味是什么？香菜", "z2", "z1")],
)
def test_liking_and_disliking_one_thing_is_a_contradiction_that_the_newer_wins(
    home: Path, text: str, newer: str, older: str
):
    pack, reasons = asked(home, text)
    assert newer in order(pack)
    assert reasons[f"memory:mem/{older}"] is Exclusion.CONFLICT_LOST
    assert any(c.winner and c.winner.item_id == f"memory:mem/{newer}" for c in pack.conflicts)
