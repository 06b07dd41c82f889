"""What holds of every pack: each candidate is accounted for, the budget is kept exactly, content
cannot break out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ctx_pipeline.contracts import (
    ContextItem,
    ContextPack,
    ContextRequest,
    Exclusion,
    ItemKind,
    Message,
    Observation,
    Rendition,
    Task,
    Trust,
)
from ctx_pipeline.errors import BudgetTooSmall
from ctx_pipeline.project import ContextProject
from ctx_pipeline.stages.budget.window import limits_of
from ctx_pipeline.text import canonical_json
from ctx_pipeline.tools.compact import compact_tool
from testing import strategies
from testing.artifacts import ANA, NOW, make_item, make_project, open_project
from testing.examples import examples
from tests.stages.pack_text import parse
from tests.stages.reference_tokens import reference_encoding

FULL_BUDGET = 20_000
INSTRUCTING = {"system_trusted", "enterprise_trusted"}
generated = settings(
    max_examples=examples(40),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Without shrinking: an example is a whole project, and shrinking one takes minutes."""


@contextmanager
def project_of(items: list[ContextItem]) -> Iterator[ContextProject]:
    with tempfile.TemporaryDirectory() as folder:
        home = make_project(Path(folder), items, strategies.SOURCES)
        with open_project(home) as project:
            yield project


def tool_texts(pack: ContextPack, items: list[ContextItem]) -> list[str]:
    """The schema texts that a pack shows, from the items themselves."""
    contents = {(item.item_id, item.version): item.content or "" for item in items}
    texts: list[str] = []
    for tool in pack.capabilities:
        content = contents[tool.item_id, tool.version]
        short = compact_tool(content) if tool.rendition is Rendition.COMPACT else None
        texts.append(f"{short or content}\n")
    return texts


def recount(pack: ContextPack, items: list[ContextItem]) -> int:
    encoding = reference_encoding(pack.tokenizer)
    return sum(
        len(encoding.encode_ordinary(text))
        for text in (pack.render("text"), *tool_texts(pack, items))
    )


def assert_budget_is_kept(pack: ContextPack, items: list[ContextItem]) -> None:
    assert pack.total_tokens == recount(pack, items)
    assert pack.total_tokens <= pack.budget.usable
    assert pack.prefix.stable_tokens + pack.prefix.dynamic_tokens + sum(
        t.tokens for t in pack.capabilities
    ) == (pack.total_tokens)
    assert sum(section.used for section in pack.budget.sections) == pack.total_tokens
    encoding = reference_encoding(pack.tokenizer)
    for item in pack.items:
        assert item.tokens == len(encoding.encode_ordinary(item.text))


def assert_all_accounted_for(
    project: ContextProject, pack: ContextPack, request: ContextRequest
) -> None:
    traces = project.explain(pack.snapshot_id, request.identity)
    keys = [(trace.item_id, trace.version) for trace in traces]
    assert len(set(keys)) == len(keys), "an item version is traced twice"
    for trace in traces:
        assert trace.selected is (trace.excluded_reason is None)
        assert trace.excluded_reason is None or trace.excluded_reason in Exclusion
        assert trace.selected is (trace.rendition is not None)
        failed = [step.code for step in trace.filters if not step.passed]
        assert failed in ([], [trace.excluded_reason])
    selected = sorted((t.item_id, t.version) for t in traces if t.selected)
    shown = sorted(
        [(i.item_id, i.version) for i in pack.items]
        + [(tool.item_id, tool.version) for tool in pack.capabilities]
    )
    assert selected == shown
    renditions = {(t.item_id, t.version): t.rendition for t in traces}
    assert all(renditions[item.item_id, item.version] is item.rendition for item in pack.items)


def assert_structure(pack: ContextPack, items: list[ContextItem]) -> None:
    sections = parse(pack.render("text"))
    assert [(s.name, s.zone) for s in sections] == [(s.name, s.zone.value) for s in pack.sections]
    trusts = {(item.item_id, item.version): item.trust.value for item in items}
    for parsed, section in zip(sections, pack.sections, strict=True):
        assert len(parsed.items) == len(section.items)
        for block, item in zip(parsed.items, section.items, strict=True):
            own = item.item_id.partition(":")[2].startswith("request/")
            trust = trusts.get((item.item_id, item.version)) or (
                "tool_untrusted" if section.name == "observations" else "user"
            )
            assert own or (item.item_id, item.version) in trusts
            assert block.attributes["id"] == item.item_id
            assert block.attributes["version"] == item.version
            assert block.attributes["trust"] == trust
            assert block.attributes.get("shown", "full") == item.rendition.value
            assert (block.body is None) is (item.rendition.value == "pointer")
            if section.zone.value == "instruction":
                assert trust in INSTRUCTING or section.name in ("task", "goal")


@pytest.mark.slow
@pytest.mark.timeout(300)
@generated
@given(items=strategies.catalogues(), request=strategies.requests(), data=st.data())
def test_every_pack_keeps_its_budget_accounts_for_every_candidate_and_keeps_content_inside(
    items: list[ContextItem], request: ContextRequest, data: st.DataObject
):
    """Ours: P9, P13 and the invariant of the traces, over budgets from one token up to more than
    all.
    """
    with project_of(items) as project:
        least = 1
        try:
            project.assemble(request.model_copy(update={"token_budget": 1}), at=NOW)
        except BudgetTooSmall as error:
            least = needed(error)
        free = data.draw(st.lists(st.integers(least, least + 1_500), max_size=8), label="budgets")
        for budget in (least, least + 1, *free, FULL_BUDGET, None):
            asked = request.model_copy(update={"token_budget": budget})
            usable = limits_of(project.profile(asked), budget).usable
            if usable < least:
                with pytest.raises(
                    BudgetTooSmall, match=f"need {least} tokens but the budget has {usable}$"
                ):
                    project.assemble(asked, at=NOW)
                continue
            pack = project.assemble(asked, at=NOW)
            assert pack.budget.usable == usable
            assert_budget_is_kept(pack, items)
            assert budget is None or pack.total_tokens <= budget
            assert_all_accounted_for(project, pack, asked)
            assert_structure(pack, items)


def needed(error: BudgetTooSmall) -> int:
    """The tokens that the error says are needed."""
    found = re.search(r"need (\d+) tokens", error.message)
    assert found
    return int(found.group(1))


@pytest.mark.timeout(180)
@settings(generated, max_examples=examples(15))
@given(items=strategies.catalogues(4), request=strategies.requests())
def test_a_budget_that_is_too_small_says_what_is_needed_and_one_token_less_is_refused(
    items: list[ContextItem], request: ContextRequest
):
    with project_of(items) as project:
        with pytest.raises(BudgetTooSmall) as refused:
            project.assemble(request.model_copy(update={"token_budget": 1}), at=NOW)
        need = needed(refused.value)
        assert refused.value.message.endswith("but the budget has 1")
        assert f"at least {need} tokens" in refused.value.fix
        if need > 6_000:
            return
        pack = project.assemble(request.model_copy(update={"token_budget": need}), at=NOW)
        assert pack.total_tokens == need
        with pytest.raises(
            BudgetTooSmall, match=f"need {need} tokens but the budget has {need - 1}"
        ):
            project.assemble(request.model_copy(update={"token_budget": need - 1}), at=NOW)


@pytest.mark.parametrize(
    "line",
    [
        "x" * 1_000_000,
        "退款" * 500_000,
        "🧑‍🚒" * 200_000,
        " " * 1_000_000 + "end",
        "\n" * 1_000_000,
        "ab " * 350_000,
    ],
    ids=["letters", "han", "emoji", "blanks", "newlines", "words"],
)
def test_a_line_of_a_megabyte_degrades_and_its_count_stays_exact(line: str):
    items = [
        make_item("huge", f"refund within days {line}"),
        make_item("small", "refund within three days"),
    ]
    request = ContextRequest(task=Task(text="refund"), identity=ANA, token_budget=1_000)
    with project_of(items) as project:
        pack = project.assemble(request, at=NOW)
        assert {item.item_id for item in pack.items} >= {"document:handbook/small"}
        assert_budget_is_kept(pack, items)
        assert_structure(pack, items)
        assert_all_accounted_for(project, pack, request)
        whole = project.expand("document:handbook/huge", identity=ANA, at=NOW)
        assert whole.tokens == len(reference_encoding("o200k_base").encode_ordinary(whole.text))


@pytest.mark.parametrize("fragment", strategies.HOSTILE)
def test_a_hostile_fragment_stays_inside_its_own_block(fragment: str):
    """Ours: P13. The marks around the fragment may be seen in its own block and nowhere else."""
    content = f"MARKONE refund {fragment}\n{fragment}MARKTWO"
    items = [
        make_item("a", content, title=f"MARKTITLE {fragment}", trust=Trust.RETRIEVED_EXTERNAL),
        make_item(
            "b", content + "!", kind=ItemKind.POLICY, title=fragment, trust=Trust.TOOL_UNTRUSTED
        ),
        make_item("c", "rules", kind=ItemKind.POLICY, source="always", trust=Trust.SYSTEM_TRUSTED),
    ]
    request = ContextRequest(
        task=Task(text=f"refund {fragment}"), identity=ANA, token_budget=20_000
    )
    with project_of(items) as project:
        pack = project.assemble(request, at=NOW)
        assert_structure(pack, items)
        assert_budget_is_kept(pack, items)
    blocks = [(s.zone, item) for s in parse(pack.render("text")) for item in s.items]
    holding = [
        (zone, block.attributes["id"]) for zone, block in blocks if "MARK" in (block.body or "")
    ]
    assert sorted(holding) == [("data", "document:handbook/a"), ("data", "policy:handbook/b")]
    for _, block in blocks:
        body = block.body or ""
        assert body.count("MARKONE") == body.count("MARKTWO") == int("MARK" in body)
    system = pack.render("anthropic")["system"]
    assert "MARK" not in "".join(part["text"] for part in system)
    assert "policy:always/c" in system[0]["text"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_budget_of_a_long_sweep_is_exceeded():
    """Ours: P9. The same request under 600 budgets, each pack counted again."""
    items = [
        make_item(
            f"{n}",
            f"refund rule {n}. 退款规则 {n}。 " + "More about orders and regions. " * (n * 3),
            title=f"t{n} 🧑‍🚒",
        )
        for n in range(30)
    ]
    tool = canonical_json(
        {"name": "pay", "description": "Pay a refund", "input_schema": {}, "annotations": {}}
    )
    items.append(make_item("pay", tool, kind=ItemKind.TOOL))
    request = ContextRequest(
        task=Task(text="refund rule 退款", goal="Answer"),
        identity=ANA,
        messages=tuple(Message(role="user", content=f"message {n} " * n) for n in range(12)),
        observations=(Observation(observation_id="1", content="rows " * 400),),
    )
    hashes: set[str] = set()
    with project_of(items) as project:
        for budget in range(184, 5_000, 8):
            pack = project.assemble(request.model_copy(update={"token_budget": budget}), at=NOW)
            assert pack.total_tokens == recount(pack, items)
            assert pack.total_tokens <= budget == pack.budget.usable
            hashes.add(pack.hash)
    assert len(hashes) > 100
