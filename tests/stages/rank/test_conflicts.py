"""Conflicts between candidates: who wins, by what, what becomes of the loser, and what the policy
may change.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.conflict_cases import cases
from bench.conflicts import verdict
from ctx_pipeline.contracts import (
    ContextDecisionTrace,
    ContextItem,
    ContextPack,
    ContextRequest,
    ItemKind,
    Task,
    Trust,
)
from testing.artifacts import (
    ANA,
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    overlay,
)

ALL = "[policy]\nmin_relevance = 0.0\n"
ASK = "refund window 退款期限"


def page(name: str, days: int, **more: Any) -> ContextItem:
    return make_item(
        name, f"The refund window is {days} days.", subject="policy:refund-window", **more
    )


def assembled(
    home: Path, text: str = ASK, **more: Any
) -> tuple[ContextPack, dict[str, ContextDecisionTrace]]:
    request = ContextRequest.model_validate(
        {"task": Task(text=text), "identity": ANA, "token_budget": 9_000, **more}
    )
    with open_project(home) as project:
        pack = project.assemble(request, at=NOW)
        return pack, {
            trace.item_id.rpartition("/")[2]: trace
            for trace in project.explain(pack.snapshot_id, ANA)
        }


def shown(pack: ContextPack) -> set[str]:
    return {
        item.item_id.rpartition("/")[2] for item in pack.items if ":request/" not in item.item_id
    }


def test_generated_contradictions_are_found_and_resolved_and_pairs_that_look_alike_are_not(
    tmp_path: Path,
):
    listed = list(cases(4, seed=11))
    items = [item for case in listed for item in case.items]
    home = make_project(tmp_path, items, head="[policy]\ncandidate_limit = 250\n")
    found: list[bool] = []
    with open_project(home) as project:
        for case in listed:
            request = ContextRequest(task=Task(text=case.ask), identity=ANA, token_budget=60_000)
            seen, right = verdict(case, project.assemble(request, at=NOW))
            if case.contradicts:
                found.append(seen and right)
            else:
                assert not seen, case.name
    assert sum(found) >= 0.95 * len(found)


def test_of_equal_authority_and_validity_what_was_verified_later_wins(tmp_path: Path):
    items = [
        page("a", 30, last_verified_at=NOW - timedelta(days=90)),
        page("b", 14, last_verified_at=NOW),
    ]
    pack, traces = assembled(make_project(tmp_path, items))
    (conflict,) = pack.conflicts
    assert conflict.winner is not None
    assert (conflict.winner.item_id, conflict.reason) == ("document:handbook/b", "freshness")
    assert traces["a"].counterfactual == "more freshness (document:handbook/b)"
    assert shown(pack) == {"b"}


def test_minutes_between_two_readings_make_nothing_fresher(tmp_path: Path):
    items = [
        page("a", 30, last_verified_at=NOW - timedelta(minutes=5)),
        page("b", 14, last_verified_at=NOW),
    ]
    pack, _ = assembled(make_project(tmp_path, items))
    assert pack.conflicts[0].needs_confirmation
    assert pack.conflicts[0].question is not None
    assert shown(pack) == {"a", "b"}


def test_the_order_of_criteria_is_the_policys(tmp_path: Path):
    items = [page("a", 30, authority=90), page("b", 14, authority=60, last_verified_at=NOW)]
    head = '[policy.conflicts]\norder = ["freshness"]\n'
    items[0] = items[0].model_copy(update={"last_verified_at": NOW - timedelta(days=30)})
    pack, _ = assembled(make_project(tmp_path, items, head=head))
    assert pack.conflicts[0].winner is not None
    assert (pack.conflicts[0].winner.item_id, pack.conflicts[0].reason) == (
        "document:handbook/b",
        "freshness",
    )


@pytest.mark.parametrize(
    ("head", "winner", "left"),
    [
        ('"policy:" = "show_both"', "a", {"a", "b"}),
        ('document = "show_both"', "a", {"a", "b"}),
        ('"policy:" = "ask"', None, {"a", "b"}),
        ('document = "ask"\n"policy:refund" = "resolve"', "a", {"a"}),
    ],
)
def test_what_is_done_is_the_policys(tmp_path: Path, head: str, winner: str | None, left: set[str]):
    items = [page("a", 30, authority=90), page("b", 14, authority=60)]
    pack, _ = assembled(make_project(tmp_path, items, head=f"[policy.conflicts.actions]\n{head}\n"))
    (conflict,) = pack.conflicts
    assert (None if conflict.winner is None else conflict.winner.title) == winner
    assert conflict.needs_confirmation is (winner is None)
    assert shown(pack) == left


def test_of_three_sides_one_wins_and_those_that_agree_with_it_stay(tmp_path: Path):
    items = [page("a", 30, authority=90), page("b", 14, authority=70), page("c", 30, authority=50)]
    items.append(page("d", 7, authority=40))
    items[2] = items[2].model_copy(
        update={"content": "退款期限为三十天。Agreed in May.", "content_hash": ""}
    )
    glossary = make_item(
        "w", "refund window: a term", kind=ItemKind.GLOSSARY, title="refund window",
        synonyms=("退款期限",),
        subject="policy:refund-window", source="words",
    )  # fmt: skip
    pack, traces = assembled(make_project(tmp_path, [*items, glossary], head=ALL))
    (conflict,) = pack.conflicts
    assert conflict.winner is not None
    assert conflict.winner.title == "a"
    assert [side.title for side in conflict.losers] == ["b", "d"]
    assert {name for name, trace in traces.items() if trace.excluded_reason == "conflict_lost"} == {
        "b",
        "d",
    }
    assert {"a", "c"} <= shown(pack)


def test_what_has_lost_pushes_out_nothing(tmp_path: Path):
    loser = page("b", 14, authority=70).model_copy(
        update={
            "content": "The refund window is 14 days. Refunds are paid within 3 days.",
            "content_hash": "",
        }
    )
    weak = make_item("c", "Refunds are paid within 9 days.", authority=50)
    pack, _ = assembled(
        make_project(tmp_path, [page("a", 30, authority=90), loser, weak], head=ALL)
    )
    assert shown(pack) == {"a", "c"}
    assert [conflict.winner.title for conflict in pack.conflicts if conflict.winner] == ["a"]


def test_the_last_of_a_required_kind_stays_though_it_loses(tmp_path: Path):
    memory = make_item(
        "m", "The refund window is 14 days.", kind=ItemKind.MEMORY, authority=40, source="notes"
    )
    home = make_project(tmp_path, [page("a", 30), memory])
    assert shown(assembled(home, required_types=["memory"])[0]) == {"a", "m"}
    assert shown(assembled(home)[0]) == {"a"}


def test_the_other_side_is_found_where_the_question_finds_one_alone(tmp_path: Path):
    words = make_item(
        "w",
        "refund window: a term",
        kind=ItemKind.GLOSSARY,
        title="refund window",
        synonyms=("退款期限",),
        source="words",
    )
    sides = [
        make_item("a", "The refund window is 30 days.", authority=90),
        make_item("b", "退款期限为14天。"),
    ]
    fillers = [make_item(f"f{n}", f"退款期限说明第{n}页") for n in range(12)]
    # The other names of the term find these first.
    fillers += [make_item(f"e{n}", f"refund window page {'abcdefghijkl'[n]}") for n in range(12)]
    home = make_project(tmp_path, [words, *sides, *fillers], head="[policy]\ncandidate_limit = 3\n")
    pack, traces = assembled(home, "退款期限为14天")
    assert traces["a"].discovered_by == ("claim",)
    assert traces["a"].parent_item_id == "document:handbook/b"
    assert pack.conflicts[0].winner is not None
    assert "a" in shown(pack)
    assert "b" not in shown(pack)


def test_a_side_that_may_not_be_seen_is_neither_found_nor_named(tmp_path: Path):
    items = [page("a", 30, authority=90, groups=("board",)), page("b", 14)]
    pack, traces = assembled(make_project(tmp_path, items))
    assert pack.conflicts == ()
    assert set(traces) & {"a", "b"} == {"b"}
    assert shown(pack) == {"b"}


def test_a_side_that_was_retired_after_the_build_takes_part_in_nothing(tmp_path: Path):
    home = make_project(tmp_path, [page("a", 30, authority=90), page("b", 14)])
    append_overlay(home, overlay("retired", "document:handbook/a"))
    pack, _ = assembled(home)
    assert pack.conflicts == ()
    assert shown(pack) == {"b"}


def test_what_a_side_is_about_is_told_in_its_own_words(tmp_path: Path):
    items = [
        make_item("a", "Refunds are accepted within 30 days.", authority=90),
        make_item("b", "Refunds are accepted within 14 days.", authority=60),
    ]
    pack, _ = assembled(make_project(tmp_path, items), "refunds accepted")
    assert pack.conflicts[0].subject == "refunds are accepted within 30 days"


def test_a_policy_text_is_not_overruled_by_a_document(tmp_path: Path):
    rule = page(
        "r", 30, kind=ItemKind.POLICY, source="rules", authority=50, trust=Trust.SYSTEM_TRUSTED
    )
    pack, _ = assembled(
        make_project(
            tmp_path, [rule, page("b", 14, authority=90)], {"rules": {"kind": "instructions"}}
        )
    )
    assert pack.conflicts == ()


@pytest.mark.parametrize("hidden", [1, 30])
@pytest.mark.parametrize(
    "words", ["Refunds are accepted within {} days.", "退款申请在{}天内受理。"]
)
def test_what_is_hidden_from_somebody_silences_no_conflict_that_they_see(
    tmp_path: Path, hidden: int, words: str
):
    days, secrets = {"a": 30, "b": 14, "c": 40, "d": 41}, range(60, 60 + hidden)
    seen = [make_item(n, words.format(d), title=n, authority=80 - d) for n, d in days.items()]
    unseen = [
        make_item(f"s{d}", words.format(d), title=f"s{d}", authority=99, groups=("board",))
        for d in secrets
    ]
    alone, _ = assembled(make_project(tmp_path / "alone", seen), words)
    beside, _ = assembled(make_project(tmp_path / "beside", [*seen, *unseen]), words)
    assert alone.conflicts
    assert beside.conflicts == alone.conflicts
    assert shown(beside) == shown(alone)


@pytest.mark.parametrize(
    "words", ["Refunds are accepted within {} days.", "退款申请在{}天内受理。"]
)
def test_what_an_item_said_before_and_what_is_gone_silence_no_conflict(tmp_path: Path, words: str):
    changed = [
        make_item("a", words.format(30 + n), version=str(n), authority=80) for n in range(1, 7)
    ]
    gone = [make_item(f"old{n}", words.format(60 + n), title=f"old{n}") for n in range(6)]
    home = make_project(tmp_path, [*changed, make_item("b", words.format(14)), *gone])
    append_overlay(home, *(overlay("retired", item.item_id) for item in gone))
    build_index(home)
    (conflict,) = assembled(home, words)[0].conflicts
    assert conflict.winner is not None
    assert (conflict.winner.item_id, conflict.winner.version) == ("document:handbook/a", "6")
    assert [side.item_id for side in conflict.losers] == ["document:handbook/b"]


def test_a_model_is_told_of_a_contradiction_that_it_sees_both_sides_of(tmp_path: Path):
    equal, _ = assembled(make_project(tmp_path / "equal", [page("a", 30), page("b", 14)]))
    assert (
        "nothing settles it, so ask which counts: document:handbook/a; document:handbook/b"
        in equal.render("text")
    )
    head = '[policy.conflicts]\nactions = { document = "show_both" }\n'
    both, _ = assembled(
        make_project(tmp_path / "both", [page("a", 30, authority=90), page("b", 14)], head=head)
    )
    assert "document:handbook/a counts before document:handbook/b" in both.render("text")
    one, _ = assembled(make_project(tmp_path / "one", [page("a", 30, authority=90), page("b", 14)]))
    assert "contradict" not in one.render("text")
