"""Ingest: only what changed is written, what the source no longer has is retired, and nothing is
lost to a bad file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, FileCode, Identity, SourceReport, Task
from ctx_pipeline.ledger import Ledger
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    build_index,
    open_project,
    open_workspace,
    overlay,
    write_config,
)
from testing.children import processes

SECTIONS = 6


class Home:
    """A project on disk whose clock moves one hour with every refresh."""

    def __init__(self, folder: Path, sources: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder = folder
        self.now = NOW - timedelta(days=30)
        self.configure(sources)

    def configure(self, sources: Mapping[str, Mapping[str, Any]]) -> None:
        self.sources = {name: {"path": name, **settings} for name, settings in sources.items()}
        write_config(self.folder, self.sources)

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def remove(self, path: str) -> None:
        (self.folder / path).unlink()

    def refresh(self, name: str = "docs") -> SourceReport:
        self.now += timedelta(hours=1)
        with open_workspace(self.folder, at=self.now) as workspace:
            return refresh_source(workspace, name)

    def build(self) -> tuple[str, int]:
        return build_index(self.folder)

    def shown(
        self, text: str, as_of: datetime | None = None, identity: Identity = ANA
    ) -> dict[str, str]:
        """Item id to text, of what a pack about `text` shows besides the request's own."""
        request = ContextRequest(
            task=Task(text=text), identity=identity, token_budget=20_000, as_of=as_of
        )
        with open_project(self.folder) as project:
            pack = project.assemble(request, at=NOW)
            return {
                item.item_id: item.text for item in pack.items if ":request/" not in item.item_id
            }

    def codes(self, item_id: str) -> dict[str, str | None]:
        with open_project(self.folder) as project:
            return {
                p.version: p.code and p.code.value
                for p in project.why_not(item_id, identity=ANA, at=NOW)
            }


@pytest.fixture
def docs(tmp_path: Path) -> Home:
    home = Home(tmp_path, {"docs": {}})
    home.write("docs/refunds.md", "# Refunds\n\nA refund is paid within three days.\n")
    home.write("docs/orders.md", "# Orders\n\nAn order ships from the nearest store.\n")
    return home


def counts(report: SourceReport) -> tuple[int, int, int, int]:
    return report.items, report.added, report.reused, report.retired


def long_document(changed: int | None = None) -> str:
    paragraphs = (
        f"Sentence {n} of section {{s}} about refunds and orders of region {n}. " for n in range(40)
    )
    body = "".join(paragraphs)
    return "\n\n".join(
        f"## Section {s}\n\n{body.replace('{s}', 'edited' if s == changed else str(s))}"
        for s in range(SECTIONS)
    )


def test_new_items_are_added_and_unchanged_ones_reused(docs: Home):
    assert counts(docs.refresh()) == (2, 2, 0, 0)
    first = docs.build()
    assert counts(docs.refresh()) == (2, 0, 2, 0)
    assert docs.build() == (first[0], 0)


def test_of_an_edited_document_only_the_changed_chunks_are_new(docs: Home):
    docs.write("docs/long.md", long_document())
    before = docs.refresh()
    docs.build()
    docs.write("docs/long.md", long_document(changed=3))
    after = docs.refresh()
    assert before.items >= SECTIONS + 2
    assert after.items == before.items
    assert 1 <= after.added <= 2
    assert after.reused == before.items - after.added
    assert docs.build()[1] == after.added
    assert any("section edited" in text for text in docs.shown("section edited").values())
    assert not any("of section 3 " in text for text in docs.shown("section 3").values())


def test_a_document_that_gets_shorter_retires_its_last_chunks(docs: Home):
    docs.write("docs/long.md", long_document())
    before = docs.refresh()
    docs.write("docs/long.md", "## Section 0\n\nThat is all.\n")
    after = docs.refresh()
    assert after.retired == before.items - 3
    docs.build()
    assert [item for item in docs.shown("section") if "long.md" in item] == [
        "document:docs/long.md#1"
    ]


def test_a_deleted_file_is_retired_and_comes_back_when_it_reappears(docs: Home):
    docs.refresh()
    docs.build()
    docs.remove("docs/refunds.md")
    assert counts(docs.refresh()) == (1, 0, 1, 1)
    assert counts(docs.refresh()) == (1, 0, 1, 0)
    # At once, and after a build has absorbed it.
    for _ in range(2):
        assert list(docs.codes("document:docs/refunds.md#1").values()) == ["retired"]
        assert "document:docs/refunds.md#1" not in docs.shown("refund")
        docs.build()
    docs.write("docs/refunds.md", "# Refunds\n\nA refund is paid within three days.\n")
    assert counts(docs.refresh()) == (2, 0, 2, 0)
    for _ in range(2):
        assert list(docs.codes("document:docs/refunds.md#1").values()) == [None]
        assert "document:docs/refunds.md#1" in docs.shown("refund")
        assert docs.build()[1] == 0


def test_content_that_goes_and_comes_back_is_current_again(docs: Home):
    texts = ("# Refunds\n\nWithin three days.\n", "# Refunds\n\nWithin five days.\n")
    for text in (*texts, *texts, texts[0]):
        docs.write("docs/refunds.md", text)
        docs.refresh()
        docs.build()
        shown = docs.shown("refunds within days")["document:docs/refunds.md#1"]
        assert text.split("\n")[2] in shown


def test_content_under_a_declared_version_that_goes_and_comes_back_is_current_again(docs: Home):
    texts = [
        f"---\nversion: '1.0'\n---\n# Refunds\n\nWithin {days} days.\n"
        for days in ("three", "five")
    ]
    for text in (*texts, *texts, texts[0]):
        docs.write("docs/refunds.md", text)
        docs.refresh()
        assert docs.refresh().added == 0
        docs.build()
        shown = docs.shown("refunds within days")["document:docs/refunds.md#1"]
        assert text.split("\n")[5] in shown


METRIC = """metrics:
  - name: gmv
    version: 1
    description: Gross merchandise value, refunds included
    expression: sum(amount)
"""
SECOND = """  - name: gmv
    version: 2
    valid_from: 2026-01-01T00:00:00Z
    description: Gross merchandise value, refunds excluded
    expression: sum(amount) filter (where status <> 'refunded')
"""
GMV = "metric:registry/gmv"


@pytest.fixture
def registry(tmp_path: Path) -> Home:
    home = Home(tmp_path, {"registry": {"kind": "semantic_registry", "path": "metrics.yaml"}})
    home.write("metrics.yaml", METRIC + SECOND)
    return home


def test_a_metric_that_changes_under_its_version_is_an_error_and_the_old_meaning_stays(
    registry: Home,
):
    registry.refresh("registry")
    registry.build()
    registry.write("metrics.yaml", METRIC + SECOND.replace("excluded", "twice"))
    report = registry.refresh("registry")
    assert [error.code for error in report.errors] == [FileCode.VERSION_REUSED]
    assert report.errors[0].path == "metrics.yaml"
    assert (report.added, report.retired) == (0, 0)
    registry.build()
    assert "refunds excluded" in registry.shown("gmv")[GMV]


def test_a_version_taken_back_from_the_registry_gives_way_to_the_one_before(registry: Home):
    registry.refresh("registry")
    registry.build()
    assert "refunds excluded" in registry.shown("gmv")[GMV]
    registry.write("metrics.yaml", METRIC)
    assert registry.refresh("registry").retired == 1
    assert registry.refresh("registry").retired == 0
    for _ in range(2):
        assert registry.codes(GMV) == {"1": None, "2": "retired"}
        assert "refunds included" in registry.shown("gmv")[GMV]
        registry.build()
    registry.write("metrics.yaml", METRIC + SECOND)
    registry.refresh("registry")
    for _ in range(2):
        assert registry.codes(GMV) == {"1": "superseded", "2": None}
        registry.build()


def test_a_version_taken_back_stays_so_when_the_whole_metric_goes_and_comes_back(registry: Home):
    registry.write("other.yaml", METRIC.replace("gmv", "orders"))
    registry.configure({"registry": {"kind": "semantic_registry", "path": "*.yaml"}})
    registry.refresh("registry")
    registry.write("metrics.yaml", METRIC)
    registry.refresh("registry")
    registry.remove("metrics.yaml")
    registry.refresh("registry")
    registry.build()
    assert set(registry.codes(GMV).values()) == {"retired"}
    registry.write("metrics.yaml", METRIC)
    registry.refresh("registry")
    for _ in range(2):
        assert registry.codes(GMV) == {"1": None, "2": "retired"}
        registry.build()


def test_a_malformed_file_keeps_its_items_and_the_other_files_are_loaded(docs: Home):
    docs.refresh()
    docs.write("docs/refunds.md", "---\ngroups: 7\nvalid_from: noon\n---\n# Refunds\n")
    docs.write("docs/new.md", "# New\n\nA new refund page.\n")
    report = docs.refresh()
    assert [(error.path, error.code) for error in report.errors] == [
        ("docs/refunds.md", FileCode.BAD_FRONT_MATTER)
    ]
    assert counts(report) == (2, 1, 1, 0)
    docs.build()
    assert {"document:docs/refunds.md#1", "document:docs/new.md#1"} <= set(docs.shown("refund"))


def test_a_malformed_line_keeps_its_memory_and_the_other_lines_are_loaded(tmp_path: Path):
    home = Home(tmp_path, {"notes": {"kind": "memories", "path": "notes.jsonl"}})
    home.write(
        "notes.jsonl", '{"id": "a", "text": "refund alpha"}\n{"id": "b", "text": "refund beta"}\n'
    )
    home.refresh("notes")
    home.write("notes.jsonl", '{"id": "a", "text": "refund alpha two"}\n{"id": "b", "te\n')
    report = home.refresh("notes")
    assert [(error.line, error.code) for error in report.errors] == [(2, FileCode.BAD_JSON)]
    assert (report.added, report.retired) == (1, 0)
    home.build()
    shown = home.shown("refund")
    assert "alpha two" in shown["memory:notes/a"]
    assert "beta" in shown["memory:notes/b"]


def test_an_empty_source_retires_nothing_and_says_so(docs: Home):
    docs.refresh()
    docs.remove("docs/refunds.md")
    docs.remove("docs/orders.md")
    report = docs.refresh()
    assert report.retired == 0
    assert [error.code for error in report.errors] == [FileCode.SOURCE_SHRANK]
    docs.build()
    assert "document:docs/refunds.md#1" in docs.shown("refund")


def test_a_source_whose_folder_is_gone_retires_nothing(docs: Home):
    docs.refresh()
    (docs.folder / "docs").rename(docs.folder / "elsewhere")
    report = docs.refresh()
    assert report.retired == 0
    assert report.errors
    docs.build()
    assert "document:docs/refunds.md#1" in docs.shown("refund")


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_forgotten_item_is_not_read_in_again(docs: Home, rebuilt: bool):
    docs.refresh()
    docs.build()
    append_overlay(docs.folder, overlay("forgotten", "document:docs/refunds.md#1"))
    if rebuilt:
        docs.build()
    docs.write("docs/refunds.md", "# Refunds\n\nA refund is paid within four days.\n")
    report = docs.refresh()
    assert report.added == 0
    docs.build()
    assert "document:docs/refunds.md#1" not in docs.shown("refund")
    assert "refund" not in "".join(docs.shown("refund paid within days").values()).lower()


BO = ANA.model_copy(update={"principal": "bo", "groups": ("support",)})


def test_a_change_of_scope_in_the_settings_takes_effect_under_the_same_version(docs: Home):
    docs.refresh()
    docs.build()
    assert "document:docs/refunds.md#1" in docs.shown("refund", identity=BO)
    docs.configure({"docs": {"groups": ["analysts"]}})
    report = docs.refresh()
    assert (report.added, report.reused) == (2, 0)
    assert docs.build()[1] == 0
    assert "document:docs/refunds.md#1" not in docs.shown("refund", identity=BO)
    assert "document:docs/refunds.md#1" in docs.shown("refund")
    assert len(docs.codes("document:docs/refunds.md#1")) == 1


def test_a_change_of_scope_holds_for_older_versions_as_well(docs: Home):
    """What is closed today is closed for `as_of` too: today's rights."""
    docs.refresh()
    then = docs.now
    docs.write("docs/refunds.md", "# Refunds\n\nA refund is paid within four days.\n")
    docs.refresh()
    docs.configure({"docs": {"groups": ["analysts"]}})
    docs.refresh()
    docs.build()
    assert "three days" in docs.shown("refund", as_of=then)["document:docs/refunds.md#1"]
    assert docs.shown("refund", as_of=then, identity=BO) == {}


def test_the_ledger_tells_the_life_of_an_item(docs: Home):
    docs.refresh()
    docs.write("docs/refunds.md", "# Refunds\n\nA refund is paid within four days.\n")
    docs.refresh()
    docs.build()
    with open_project(docs.folder) as project:
        events = project.history("document:docs/refunds.md#1", identity=ANA)
        assert [event.to_state.value for event in events] == ["created", "created"]
        assert len({event.version for event in events}) == 2
        assert project.ledger.sources()["docs"].items == 2


# --- two processes at once


def _refresh_many(folder: str, ready: Any, results: Any) -> None:
    with open_workspace(Path(folder)) as workspace:
        ready.wait(30)
        results.put([refresh_source(workspace, "docs").added for _ in range(3)])


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_processes_that_refresh_at_once_store_every_item_exactly_once(docs: Home):
    for number in range(40):
        docs.write(f"docs/{number:02d}.md", f"# Page {number}\n\nAbout refund number {number}.\n")
    context = processes()
    ready, results = context.Barrier(2), context.Queue()
    children = [
        context.Process(target=_refresh_many, args=(str(docs.folder), ready, results))
        for _ in range(2)
    ]
    for child in children:
        child.start()
    added = [results.get(timeout=200) for _ in children]
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    assert sum(sum(one) for one in added) == 42
    with open_workspace(docs.folder) as workspace:
        table = workspace.store.scan()
        keys = list(zip(table["item_id"].to_pylist(), table["version"].to_pylist(), strict=True))
        assert len(keys) == len(set(keys)) == 42
        assert len(set(table["seq"].to_pylist())) == 42
        events = [
            event for item_id, _ in keys for event in workspace.ledger.events_for("acme", item_id)
        ]
        assert len(events) == 42
        assert workspace.ledger.overlay_sequence() == 0


def test_a_refresh_that_was_cut_off_before_the_ledger_is_finished_by_the_next(
    docs: Home, monkeypatch: pytest.MonkeyPatch
):
    """The store's append is the commit point; what follows it is repeated."""
    docs.refresh()
    docs.remove("docs/orders.md")
    docs.write("docs/new.md", "# New\n\nA new refund page.\n")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append_overlay", _cut_off)
        with pytest.raises(KeyboardInterrupt):
            docs.refresh()
    report = docs.refresh()
    assert (report.added, report.retired) == (0, 1)
    docs.build()
    assert list(docs.codes("document:docs/new.md#1").values()) == [None]
    assert list(docs.codes("document:docs/orders.md#1").values()) == ["retired"]


def _cut_off(*_: Any) -> Iterator[None]:
    raise KeyboardInterrupt


def test_sources_are_kept_apart(tmp_path: Path):
    home = Home(tmp_path, {"docs": {}, "more": {"max_shrink": 1}})
    home.write("docs/a.md", "# A\n\nrefund one\n")
    home.write("more/a.md", "# A\n\nrefund two\n")
    home.refresh("docs")
    home.refresh("more")
    home.remove("more/a.md")
    home.write("more/b.md", "# B\n\nrefund three\n")
    home.refresh("more")
    home.build()
    assert set(home.shown("refund")) == {"document:docs/a.md#1", "document:more/b.md#1"}


def test_a_version_that_was_taken_back_is_retired_also_when_its_content_had_changed(docs: Home):
    """Ours: the source's word counts, whatever versions it has had in between."""
    for version, text in (("2", "two"), ("3", "three"), ("3", "three changed"), ("2", "two")):
        docs.write("docs/a.md", f"---\nversion: {version}\n---\nrefund {text}\n")
        docs.refresh()
    docs.build()
    assert "refund two" in docs.shown("refund")["document:docs/a.md#1"]
