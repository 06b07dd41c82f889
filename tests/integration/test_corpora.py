"""Real input: the public corpora as one project, built whole, and ten questions with what their
packs must hold.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctx_pipeline import BuildReport, ContextProject, ContextRequest, Task, build
from testing.corpora_project import make_corpora_project

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.slow]

AT = datetime(2026, 11, 30, tzinfo=UTC)
BUDGET = 8_000

QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("DM 能不能从阿里云 RDS 迁移数据？", ("document:faq/000.md",)),
    ("怎么用 fio 测试 TiKV 的磁盘性能", ("document:faq/041.md",)),
    ("TiDB 最多支持多少并发连接", ("document:faq/077.md",)),
    ("How are booking fees per booker defined?", ("metric:mf_simple/booking_fees_per_booker",)),
    ("revenue over the trailing two months", ("metric:mf_simple/trailing_2_months_revenue",)),
    ("Which table holds superheroes and their eye colour?", ("schema:superhero/superhero",)),
    ("loan amount, duration and status of bank accounts", ("schema:financial/loan",)),
    ("Merge a pull request on GitHub", ("tool:github/merge_pull_request",)),
    ("How do I build an MCP server in Python?", ("document:skills/mcp-builder/SKILL.md",)),
    ("Which pets does owner pers-0001 have?", ("document:records/pets.txt",)),
)
"""Question and required items; a document is named without its chunk. Written before the first run.
"""


@pytest.fixture(scope="module")
def built(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildReport]:
    home = make_corpora_project(tmp_path_factory.mktemp("corpora"), corpora)
    return home, build(home, progress=False)


def test_every_file_of_every_source_is_accounted_for(
    built: tuple[Path, BuildReport], corpora: Path
):
    """Ours: a file is loaded, empty, skipped with a reason, or failed with an error."""
    _, report = built
    by_source = {source.name: source for source in report.sources}
    assert report.errors == ()
    assert len(by_source["github"].files) == len(
        list((corpora / "github_mcp_tools/snaps").iterdir())
    )
    assert len(by_source["faq"].files) == 110
    assert len(by_source["skills"].files) == len(
        list((corpora / "skills_anthropic/skills").glob("*/SKILL.md"))
    )
    assert len(by_source["records"].files) == len(list((corpora / "context_bench/files").iterdir()))
    for source in report.sources:
        assert source.files, f"{source.name} lists no file"
        for file in source.files:
            assert (file.status == "loaded") == (file.items > 0), file
            assert file.status == "loaded" or file.reason, file
        assert sum(file.items for file in source.files) == source.items, source.name


def test_counts_of_items_match_what_the_corpora_hold(
    built: tuple[Path, BuildReport], corpora: Path
):
    _, report = built
    by_source = {source.name: source for source in report.sources}
    assert by_source["github"].items == 117
    assert by_source["faq"].items >= 110
    assert by_source["superhero"].items >= 10
    assert report.items == sum(source.items for source in report.sources)


@pytest.mark.parametrize(("question", "required"), QUESTIONS)
def test_a_pack_holds_what_its_question_needs(
    built: tuple[Path, BuildReport], question: str, required: tuple[str, ...]
):
    """Ours: the required ids were written down before the first run."""
    home, _ = built
    with ContextProject.open(home) as project:
        pack = project.assemble(
            ContextRequest(task=Task(text=question), token_budget=BUDGET), at=AT
        )
        traces = project.explain(pack.snapshot_id)
    shown = {item.item_id.partition("#")[0] for item in pack.items} | {
        tool.item_id for tool in pack.capabilities
    }
    # Two manifests define some metrics in the very same words: the pack shows one and says which.
    twins = {
        trace.item_id
        for trace in traces
        if trace.excluded_reason == "duplicate"
        and (trace.counterfactual or "").removeprefix("same text as ").partition("#")[0] in shown
    }
    assert set(required) <= shown | twins


def test_a_second_build_embeds_nothing_and_publishes_the_same_artifact(
    built: tuple[Path, BuildReport],
):
    home, first = built
    second = build(home, progress=False)
    assert (second.embedded, second.artifact, second.items) == (0, first.artifact, first.items)
    assert second.reused == sum(source.items for source in first.sources)
