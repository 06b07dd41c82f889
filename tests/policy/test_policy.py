"""Policies: what holds in which case, where it was written, what is wrong with it, and what it does
to a pack.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from ctx_pipeline.cli.app import app
from ctx_pipeline.config.policies import PROFILE_NAMES, PROFILES
from ctx_pipeline.config.settings import load_config
from ctx_pipeline.contracts import (
    ContextPolicy,
    ContextRequest,
    ItemKind,
    PolicyRule,
    SourceKind,
    Task,
    Trust,
    WhenToLoad,
    resolve_policy,
)
from ctx_pipeline.contracts.policy import ADDED, ADDED_CHANGES, DataSection
from ctx_pipeline.errors import ConfigError, GateFailed
from ctx_pipeline.policy.lint import KINDS_OF, lint_policy
from ctx_pipeline.policy.review import diff_policies, named_policy, show_policy
from ctx_pipeline.stages.sections import MOVABLE, SECTION_NAMES, in_order
from testing.artifacts import ANA, NOW, make_item, make_project, open_project, write_config

PHASES = ("default", "plan", "build")
ROLES = ("coder", "reviewer")
RISKS = ("low", "high")


def policy(*rules: dict[str, Any], **more: Any) -> ContextPolicy:
    return ContextPolicy.model_validate({"rules": rules, **more})


# --- resolving


def test_a_policy_without_rules_says_the_same_in_every_case_and_keeps_its_version():
    plain = ContextPolicy()
    assert plain.policy_version == "default@1.0.0+f850906b"
    assert resolve_policy(plain) == resolve_policy(
        plain, task_type="x", phase="build", model="gpt-5", risk="high"
    )
    assert resolve_policy(plain).rules == ()


def test_whatever_a_new_field_says_changes_the_version():
    said: dict[str, Any] = {
        "roles": ("coder",),
        "required_types": ("code",),
        "order": ("evidence",),
        "rules": ({"when": {"risk": "high"}},),
        "sources": {"web": {"max_budget": 0.1}},
        "min_value": 0.5,
        "fit": {"code": 0.9},
        "tools": {"candidates": 5},
        "conflicts": {"order": ("validity",)},
        "fusion": {"tool": 0.9},
    }
    assert said.keys() == set(ADDED)
    versions = {
        ContextPolicy.model_validate({key: value}).policy_version for key, value in said.items()
    }
    assert len(versions | {ContextPolicy().policy_version}) == len(ADDED) + 1


def test_a_rule_that_says_nothing_in_a_new_field_keeps_the_version_of_its_policy():
    """Pinned: the versions are those of the same policies before these fields."""
    before = {"when": {"phase": "build"}, "set": {"min_relevance": 0.5}}
    assert policy(before).policy_version == "default@1.0.0+199daed9"
    said: dict[str, Any] = {
        "fusion": {"tool": 0.9},
        "min_value": 0.0,
        "tools": {"candidates": 8},
        "fit": {"code": 0.9},
        "conflicts": {"order": ("validity",)},
    }
    assert said.keys() == set(ADDED_CHANGES)
    after = [{**before, "set": {"min_relevance": 0.5, key: value}} for key, value in said.items()]
    assert len({policy(rule).policy_version for rule in (before, *after)}) == len(said) + 1


def test_a_rule_changes_single_actions_of_conflicts_and_their_order_as_a_whole():
    base = {
        "order": ("validity", "authority"),
        "actions": {"metric:": "resolve", "document": "show_both"},
    }
    found = policy(
        {"when": {"risk": "high"}, "set": {"conflicts": {"actions": {"metric:": "ask"}}}},
        {"when": {"phase": "build"}, "set": {"conflicts": {"order": ("freshness",)}}},
        conflicts=base,
    )
    assert resolve_policy(found, risk="high").conflicts.actions == {
        "metric:": "ask",
        "document": "show_both",
    }
    assert resolve_policy(found, risk="high").conflicts.order == ("validity", "authority")
    assert resolve_policy(found, phase="build").conflicts.order == ("freshness",)
    assert resolve_policy(found, risk="high").origins == {"conflicts.actions.metric:": "risk=high"}
    assert resolve_policy(ContextPolicy()).conflicts.order == ()


def test_the_more_specific_rule_wins_wherever_it_stands_and_the_later_one_among_equals():
    found = policy(
        {"name": "both", "when": {"phase": "build", "risk": "high"}, "set": {"candidate_limit": 1}},
        {
            "name": "first",
            "when": {"phase": "build"},
            "set": {"candidate_limit": 2, "min_relevance": 0.2},
        },
        {
            "name": "second",
            "when": {"risk": "high"},
            "set": {"candidate_limit": 3, "min_relevance": 0.3},
        },
        {"name": "all", "set": {"candidate_limit": 4, "exclude_stale": True}},
    )
    resolved = resolve_policy(found, phase="build", risk="high")
    assert resolved.rules == ("all", "first", "second", "both")
    assert (resolved.candidate_limit, resolved.min_relevance, resolved.exclude_stale) == (
        1,
        0.3,
        True,
    )
    assert resolved.origins == {
        "candidate_limit": "both",
        "min_relevance": "second",
        "exclude_stale": "all",
    }
    assert resolve_policy(found, phase="build").candidate_limit == 2
    assert resolve_policy(found).rules == ("all",)


def test_shares_and_weights_change_one_by_one_and_lists_as_a_whole():
    found = policy(
        {
            "when": {"phase": "build"},
            "set": {"shares": {"history": 0.5}, "weights": {"authority": 0}},
        },
        {
            "when": {"phase": "build", "role": "coder"},
            "set": {"shares": {"tools": 0.2}, "hard_gates": []},
        },
    )
    resolved = resolve_policy(found, phase="build", role="coder")
    assert resolved.shares == {**ContextPolicy().shares, "history": 0.5, "tools": 0.2}
    assert resolved.weights == ContextPolicy().weights.model_copy(update={"authority": 0.0})
    assert resolved.hard_gates == ()


def test_shares_of_meaning_change_kind_by_kind_and_every_kind_has_one():
    found = policy(
        {"when": {"phase": "build"}, "set": {"fusion": {"code": 0.9}}},
        {"when": {"phase": "build", "risk": "high"}, "set": {"fusion": {"tool": 0.0}}},
        fusion={"code": 0.2, "schema": 0.1},
    )
    default = resolve_policy(ContextPolicy()).fusion
    assert default.keys() == {kind.value for kind in ItemKind}
    assert resolve_policy(found).fusion == {**default, "code": 0.2, "schema": 0.1}
    resolved = resolve_policy(found, phase="build", risk="high")
    assert resolved.fusion == {**default, "code": 0.9, "schema": 0.1, "tool": 0.0}
    assert resolved.origins == {
        "fusion.code": "phase=build",
        "fusion.tool": "phase=build risk=high",
    }


@pytest.mark.parametrize("wrong", [{"tools": 0.5}, {"tool": 1.5}, {"tool": -0.1}])
def test_a_share_of_meaning_is_of_a_known_kind_and_within_0_and_1(wrong: dict[str, float]):
    with pytest.raises(ValidationError):
        ContextPolicy.model_validate({"fusion": wrong})
    with pytest.raises(ValidationError):
        policy({"when": {"phase": "build"}, "set": {"fusion": wrong}})


@pytest.mark.parametrize(
    ("when", "case"),
    [
        ({"task_type": "coding"}, {"task_type": "coding"}),
        ({"task_type": ["编码", "coding"]}, {"task_type": "编码"}),
        ({"phase": "build"}, {"phase": "build"}),
        ({"role": "coder"}, {"role": "coder"}),
        ({"model": "gpt-5*"}, {"model": "gpt-5-mini"}),
        ({"risk": ["medium", "high"]}, {"risk": "medium"}),
    ],
)
def test_each_key_of_a_case_can_make_a_rule_apply(when: dict[str, Any], case: dict[str, str]):
    found = policy({"when": when, "set": {"candidate_limit": 7}})
    assert resolve_policy(found, **case).candidate_limit == 7
    assert resolve_policy(found).candidate_limit == 64
    assert resolve_policy(found, **dict.fromkeys(case, "other")).candidate_limit == 64


def test_an_unknown_phase_is_the_default_one():
    found = policy({"when": {"phase": "deploy"}, "set": {"candidate_limit": 7}}, phases=["default"])
    assert resolve_policy(found, phase="deploy").candidate_limit == 64
    found = policy({"when": {"phase": "default"}, "set": {"candidate_limit": 7}})
    assert resolve_policy(found, phase="nowhere").candidate_limit == 7


CASES = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.lists(st.sampled_from(PHASES), min_size=1, max_size=2),
        "role": st.lists(st.sampled_from(ROLES), min_size=1, max_size=2),
        "risk": st.lists(st.sampled_from(RISKS), min_size=1, max_size=2),
    },
)
RULES = st.lists(
    st.fixed_dictionaries(
        {"when": CASES, "set": st.fixed_dictionaries({"candidate_limit": st.integers(1, 9)})}
    ),
    max_size=6,
)


@given(
    rules=RULES,
    phase=st.sampled_from(PHASES),
    role=st.sampled_from(ROLES),
    risk=st.sampled_from(RISKS),
)
def test_the_value_is_that_of_the_last_most_specific_rule_that_matches(
    rules: list[dict[str, Any]], phase: str, role: str, risk: str
):
    case = {"phase": phase, "role": role, "risk": risk}
    expected, best = 64, -1
    for rule in rules:
        if (
            all(case[key] in values for key, values in rule["when"].items())
            and len(rule["when"]) >= best
        ):
            expected, best = rule["set"]["candidate_limit"], len(rule["when"])
    found = policy(*rules)
    assert resolve_policy(found, **case).candidate_limit == expected
    assert ContextPolicy.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"rules": [{"when": {"phase": []}}]},
        {"rules": [{"when": {"risk": "huge"}}]},
        {"rules": [{"set": {"required_types": ["nothing"]}}]},
        {"order": ["policy"]},
        {"sources": {"web": {"max_budget": 0}}},
        {"sources": {"web": {"max_budget": 1.5}}},
        {"sources": {"web": {"max_budget": True}}},
        {"sources": {"web": {"compaction": "burn"}}},
        {"sources": {"web": {"retention": "a while"}}},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="validation error"):
        ContextPolicy.model_validate(wrong)


# --- in a pack


def assemble(home: Path, text: str = "refund rules", **more: Any):
    with open_project(home) as project:
        pack = project.assemble(
            ContextRequest(task=Task(text=text), identity=ANA, **more), at=NOW, durable=True
        )
        return pack, {trace.item_id: trace for trace in project.explain(pack.snapshot_id, ANA)}


def refunds(count: int = 4, words: int = 60):
    return [
        make_item(
            f"refund-{n}",
            f"refund rules number {n} of {source} " + f"term{n} " * words,
            source=source,
        )
        for source in ("handbook", "wiki")
        for n in range(count)
    ]


def test_a_rule_says_whether_meaning_or_words_decide(tmp_path: Path):
    # One item has every word of the task and much else; the other only one of them, so its
    # direction is nearer.
    items = [
        make_item(
            "words", "gmv refund policy " + " ".join(f"filler{number}" for number in range(80))
        ),
        make_item("meaning", "gmv"),
    ]
    rule = '[[policy.rules]]\nwhen = {phase = "%s"}\nset = {fusion = {document = %s}}\n'
    home = make_project(tmp_path, items, head=rule % ("plan", "1.0") + rule % ("build", "0.0"))
    best: dict[str, str] = {}
    with open_project(home) as project:
        for phase in ("plan", "build"):
            task = Task(text="gmv refund policy")
            pack = project.assemble(ContextRequest(task=task, identity=ANA, phase=phase), at=NOW)
            traces = [
                trace
                for trace in project.explain(pack.snapshot_id, ANA)
                if trace.item_id.startswith("document")
            ]
            best[phase] = max(traces, key=lambda trace: trace.features["relevance"]).item_id
    assert best == {"plan": "document:handbook/meaning", "build": "document:handbook/words"}


def test_the_rules_that_applied_are_in_pack_and_snapshot(tmp_path: Path):
    head = (
        '[[policy.rules]]\nname = "careful"\nwhen = {risk = "high"}\nset = {candidate_limit = 2}\n'
    )
    home = make_project(tmp_path, refunds(), head=head)
    pack, _ = assemble(home, risk="high")
    with open_project(home) as project:
        (kept, *_) = project.snapshots(identity=ANA)
        again = project.replay(pack.snapshot_id, identity=ANA)
    assert pack.policy_rules == kept.policy_rules == again.policy_rules == ("careful",)
    assert len([item for item in pack.items if item.kind == "document"]) == 2
    plain, _ = assemble(home)
    assert plain.policy_rules == ()
    assert len([item for item in plain.items if item.kind == "document"]) > 2


def test_a_source_never_takes_more_than_its_budget_and_degrades_before_it_is_out(tmp_path: Path):
    home = make_project(tmp_path, refunds(), head="[policy.sources.wiki]\nmax_budget = 150\n")
    pack, traces = assemble(home)
    tokens = {item.item_id: item.tokens for item in pack.items}
    wiki = {name: count for name, count in tokens.items() if ":wiki/" in name}
    assert 0 < sum(wiki.values()) <= 150
    assert sum(count for name, count in tokens.items() if ":handbook/" in name) > 150
    assert any(traces[name].rendition == "pointer" for name in wiki)
    pack, traces = assemble(
        make_project(tmp_path / "b", refunds(), head="[policy.sources.wiki]\nmax_budget = 1\n")
    )
    out = [trace for name, trace in traces.items() if ":wiki/" in name]
    assert {trace.excluded_reason for trace in out} == {"over_budget"}
    assert all(
        "budget of source 'wiki', which is 1" in (trace.counterfactual or "") for trace in out
    )


def test_the_budget_of_a_kind_is_a_share_and_its_name_wins(tmp_path: Path):
    head = "[policy.sources.documents]\nmax_budget = 0.1\n[policy.sources.wiki]\nmax_budget = 0.5\n"
    pack, _ = assemble(make_project(tmp_path, refunds(), head=head), token_budget=1_000)
    tokens = {
        name: sum(i.tokens for i in pack.items if f":{name}/" in i.item_id)
        for name in ("handbook", "wiki")
    }
    assert tokens["handbook"] <= 100 < tokens["wiki"] <= 500


def test_what_the_policy_requires_adds_to_the_request_and_is_never_cut_by_a_budget(tmp_path: Path):
    head = (
        '[policy.sources.terms]\nmax_budget = 1\n[[policy.rules]]\nwhen = {phase = "query"}\n'
        'set = {required_types = ["glossary"]}\n'
    )
    items = [
        *refunds(1),
        make_item("net", "net refund rules", kind=ItemKind.GLOSSARY, source="terms"),
    ]
    home = make_project(tmp_path, items, head=head)
    pack, traces = assemble(home, phase="query", required_types=("document",))
    assert traces["glossary:terms/net"].selected_reason == "required type"
    assert any(item.kind == "document" for item in pack.items)
    empty = make_project(tmp_path / "empty", refunds(1), head=head.replace("terms", "wiki"))
    with pytest.raises(GateFailed, match="'glossary'"):
        assemble(empty, phase="query")


def test_the_order_moves_data_alone(tmp_path: Path):
    items = [
        make_item("gmv", "gmv refund rules metric", kind=ItemKind.METRIC),
        make_item("rules", "refund rules in words"),
        make_item("AGENTS.md", "Answer briefly.", kind=ItemKind.INSTRUCTION, source="agents"),
    ]
    head = '[policy]\norder = ["evidence", "domain"]\n'
    asked: dict[str, Any] = {"state": {"path": "x"}}
    usual, _ = assemble(make_project(tmp_path / "a", items), **asked)
    moved, _ = assemble(make_project(tmp_path / "b", items, head=head), **asked)
    names = [section.name for section in moved.sections]
    assert names.index("evidence") < names.index("domain") < names.index("state")
    assert [name for name in names if name not in MOVABLE] == [
        s.name for s in usual.sections if s.name not in MOVABLE
    ]
    assert moved.prefix.stable_tokens == usual.prefix.stable_tokens


@given(st.lists(st.sampled_from(MOVABLE), unique=True))
def test_every_order_keeps_each_section_once_and_instructions_first(order: list[str]):
    names = [section.name for section in in_order(order)]
    assert sorted(names) == sorted(SECTION_NAMES)
    assert [name for name in names if name in MOVABLE][: len(order)] == order
    assert [at for at, name in enumerate(names) if name in MOVABLE] == [
        at for at, name in enumerate(SECTION_NAMES) if name in MOVABLE
    ]


def test_the_contract_names_the_sections_that_move():
    assert set(DataSection.__args__) == set(MOVABLE)


# --- files


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Path]:
    def write(
        head: str = "", sources: dict[str, dict[str, Any]] | None = None, **files: str
    ) -> Path:
        write_config(tmp_path, sources if sources is not None else {"handbook": {}}, head)
        (tmp_path / "policies").mkdir(exist_ok=True)
        for name, text in files.items():
            (tmp_path / "policies" / f"{name}.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_settings_win_over_the_file_and_the_file_over_the_profile(load: Callable[..., Path]):
    team = "min_relevance = 0.5\n[shares]\nhistory = 0.11\n"
    head = '[policy]\nprofile = "data"\npath = "policies/team.toml"\nshares = {history = 0.12}\n'
    loaded = load_config(load(head, team=team))
    found = loaded.config.policy_contract()
    assert (
        found.name,
        found.min_relevance,
        found.shares["history"],
        found.shares["retrieved"],
    ) == (
        *("data", 0.5, 0.12),
        0.35,
    )
    assert loaded.origin("policy.min_relevance") == "policies/team.toml:1"
    assert loaded.origin("policy.order").startswith("profile data:")


def test_rules_of_all_files_count_and_one_of_a_known_name_takes_its_place(
    load: Callable[..., Path],
):
    team = (
        '[[rules]]\nname = "query"\nset = {candidate_limit = 5}\n[[rules]]\nname = "own"\nset '
        "= {min_relevance = 0.9}\n"
    )
    head = '[policy]\nprofile = "data"\npath = "policies/team.toml"\n'
    home = load(head, team=team)
    shipped = [rule.name for rule in named_policy("data", home).policy.rules]
    rules = load_config(home).config.policy_contract().rules
    assert [rule.name for rule in rules] == [*shipped, "own"]
    (query,) = [rule for rule in rules if rule.name == "query"]
    assert query.changes == {"candidate_limit": 5}
    shown = {value.key: value.origin for value in show_policy(home).values}
    assert shown["candidate_limit"] == "rule 'query' (policies/team.toml:1)"
    assert shown["min_relevance"] == "rule 'own' (policies/team.toml:4)"


def test_a_mistake_in_a_rule_is_placed_in_its_file_however_many_rules_come_before(
    load: Callable[..., Path],
):
    team = "[[rules]]\nset = {min_relevence = 0.2}\n"
    with pytest.raises(ConfigError) as caught:
        load_config(load('[policy]\nprofile = "data"\npath = "policies/team.toml"\n', team=team))
    assert (caught.value.stable_code, caught.value.where) == ("unknown_key", "policies/team.toml:2")
    assert "min_relevance" in caught.value.fix


def test_a_policy_speaks_for_a_source_where_its_entry_is_silent(load: Callable[..., Path]):
    head = (
        '[policy.sources.documents]\nauthority = 33\ntrust = "user"\nwhen_to_load = "prefetch"\n'
        'freshness = "2h"\n[policy.sources.handbook]\nauthority = 44\nscope = {groups = '
        '["analysts"], environment = "prod"}\n'
    )
    loaded = load_config(
        load(head, {"handbook": {"trust": "enterprise_trusted", "groups": None}, "notes": {}})
    )
    handbook, notes = loaded.config.sources
    assert (handbook.authority, handbook.trust, handbook.groups) == (
        44,
        Trust.ENTERPRISE_TRUSTED,
        ("analysts",),
    )
    assert (notes.authority, notes.trust, notes.groups, notes.environment) == (
        33,
        Trust.USER,
        ("*",),
        None,
    )
    assert notes.when_to_load is WhenToLoad.PREFETCH
    assert handbook.freshness is not None
    assert handbook.freshness.fail.total_seconds() == 7_200
    assert loaded.origin("sources.handbook.groups") == "ctx.toml:12"


@pytest.mark.parametrize(
    ("head", "code", "near"),
    [
        ('[policy]\nprofile = "dat"\n', "unknown_profile", "data"),
        ("[policy.sources.handbok]\nmax_budget = 5\n", "unknown_key", "handbook"),
        ("[[policy.rules]]\nset = {shares = {histroy = 0.1}}\n", "unknown_key", "history"),
        ("[policy.sources.handbook]\nmax_budgt = 5\n", "unknown_key", "max_budget"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    load: Callable[..., Path], head: str, code: str, near: str
):
    with pytest.raises(ConfigError) as caught:
        load_config(load(head))
    assert caught.value.stable_code == code
    assert repr(near) in caught.value.fix


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_each_shipped_profile_is_sound_and_its_own(name: str, tmp_path: Path):
    found = lint_policy(name, tmp_path)
    assert found.findings == ()
    assert found.policy_version is not None
    assert found.policy_version.startswith(f"{name}@1.0.0+")
    others = {other: named_policy(other, tmp_path).policy for other in PROFILE_NAMES}
    mine = others.pop(name)
    assert sum(mine.shares.values()) == pytest.approx(1.0)
    assert all(
        resolve_policy(mine).shares != resolve_policy(other).shares for other in others.values()
    )
    assert {path.stem for path in PROFILES.glob("*.toml")} == set(PROFILE_NAMES)


# --- lint


def codes(home: Path, name: str = "current") -> dict[str, str]:
    return {finding.code: finding.level for finding in lint_policy(name, home).findings}


def test_the_default_policy_has_nothing_wrong(load: Callable[..., Path]):
    assert codes(load()) == {}


@pytest.mark.parametrize(
    ("text", "code", "level"),
    [
        ("[shares]\nhistory = 0.9\n", "shares_above_one", "warning"),
        ("[[rules]]\nset = {shares = {history = 0.9, tools = 0.9}}\n", "shares_above_one", "error"),
        (
            "shares = {policy = 0, task_state = 0, history = 0, retrieved = 0, observations = 0, "
            "tools = 0}\n",
            "shares_zero",
            "error",
        ),
        (
            "weights = {relevance = 0, authority = 0, freshness = 0, confidence = 0, dependency "
            "= 0, task_fit = 0, recency = 0}\n",
            "weights_zero",
            "error",
        ),
        (
            '[[rules]]\nwhen = {phase = "biuld"}\nset = {candidate_limit = 5}\n',
            "unknown_phase",
            "error",
        ),
        (
            'roles = ["coder"]\n[[rules]]\nwhen = {role = "codr"}\nset = {candidate_limit = 5}\n',
            "unknown_role",
            "error",
        ),
        (
            '[[rules]]\nwhen = {model = "gtp*"}\nset = {candidate_limit = 5}\n',
            "unknown_model",
            "warning",
        ),
        ('[[rules]]\nwhen = {phase = "build"}\n', "empty_rule", "warning"),
        (
            '[[rules]]\nwhen = {phase = "build"}\nset = {candidate_limit = 5}\n[[rules]]\nwhen = '
            '{phase = ["build", "edit"]}\nset = {candidate_limit = 6, min_relevance = 0.1}\n',
            "shadowed_rule",
            "error",
        ),
        ('required_types = ["metric"]\n', "type_without_source", "error"),
        ('[[rules]]\nset = {required_types = ["code"]}\n', "type_without_source", "error"),
        ("[sources.handbook]\nmax_budget = 0.5\n", "budget_above_section", "warning"),
        ("[sources.documents]\nmax_budget = 30000\n", "budget_above_section", "warning"),
        ('hard_gates = ["token_budget_ok"]\n', "gate_removed", "error"),
        ('[[rules]]\nwhen = {risk = "high"}\nset = {hard_gates = []}\n', "gate_removed", "error"),
        ("[fusion]\ntool = 0.9\n", "fusion_without_source", "warning"),
        ("[[rules]]\nset = {fusion = {tool = 0.9}}\n", "fusion_without_source", "warning"),
        ("[fusion]\ntools = 0.9\n", "invalid_value", "error"),
        ("[sources.handbok]\nmax_budget = 5\n", "unknown_key", "error"),
        ('[conflicts.actions]\ndocment = "ask"\n', "unknown_kind", "error"),
        ('[[rules]]\nset = {conflicts = {actions = {metrics = "ask"}}}\n', "unknown_kind", "error"),
        ('[conflicts]\norder = ["authority", "authority"]\n', "invalid_value", "error"),
        ("min_relevence = 0.5\n", "unknown_key", "error"),
        ("min_relevance = 5\n", "invalid_value", "error"),
    ],
)
def test_lint_names_what_is_wrong(load: Callable[..., Path], text: str, code: str, level: str):
    home = load(team=text)
    assert codes(home, "policies/team.toml") == {code: level}
    (finding, *_) = lint_policy("policies/team.toml", home).findings
    assert finding.where.startswith(("policies/team.toml:", "policy "))


@pytest.mark.parametrize(
    "text",
    [
        '[[rules]]\nwhen = {phase = "build"}\nset = {candidate_limit = 5}\n'
        '[[rules]]\nwhen = {phase = "build"}\nset = {min_relevance = 0.1}\n',
        '[[rules]]\nwhen = {phase = ["build", "edit"]}\nset = {candidate_limit = 5}\n'
        '[[rules]]\nwhen = {phase = "build"}\nset = {candidate_limit = 6}\n',
        '[[rules]]\nset = {hard_gates = []}\n[[rules]]\nwhen = {risk = "high"}\nset = '
        '{hard_gates = ["required_context_present", "sensitive_scope_ok", "token_budget_ok", '
        '"authority_order_valid"]}\n',
        '[conflicts]\norder = ["validity"]\nactions = {"policy:" = "ask", document = '
        '"show_both"}\n',
        'required_types = ["observation", "document"]\n[sources.handbook]\nmax_budget = 0.2\n',
        "[fusion]\ndocument = 1\n",
    ],
)
def test_lint_leaves_alone_what_can_be_meant(load: Callable[..., Path], text: str):
    assert codes(load(team=text), "policies/team.toml") == {}


def test_every_mistake_of_a_file_is_listed_at_once(load: Callable[..., Path]):
    home = load(
        team='min_relevence = 0.5\ncandidate_limt = 3\n[[rules]]\nset = {order = ["nowhere"]}\n'
    )
    found = lint_policy("policies/team.toml", home)
    assert [finding.where for finding in found.findings] == [
        f"policies/team.toml:{line}" for line in (1, 2, 4)
    ]
    assert found.policy_version is None


def test_every_kind_of_source_says_what_it_gives():
    assert set(KINDS_OF) == set(SourceKind)


# --- show and diff


def test_a_diff_lists_a_value_where_no_more_general_case_says_it(load: Callable[..., Path]):
    old = (
        'min_relevance = 0.3\n[[rules]]\nname = "b"\nwhen = {phase = "build"}\nset = '
        "{min_relevance = 0.5}\n"
    )
    new = (
        'min_relevance = 0.4\n[[rules]]\nname = "b"\nwhen = {phase = "build"}\nset = '
        '{min_relevance = 0.5}\n[[rules]]\nname = "r"\nwhen = {risk = "high"}\nset = '
        "{candidate_limit = 9}\n"
    )
    home = load(old=old, new=new)
    found = diff_policies("policies/old.toml", "policies/new.toml", home)
    listed = [
        (case.case, [(c.key, c.before, c.after) for c in case.changes]) for case in found.cases
    ]
    assert listed == [
        ({}, [("min_relevance", 0.3, 0.4)]),
        ({"phase": "build"}, [("min_relevance", 0.5, 0.5)]),
        ({"risk": "high"}, [("candidate_limit", 64, 9)]),
    ]
    assert diff_policies("current", "default", home).cases == ()


@given(rules=RULES, others=RULES)
def test_a_diff_tells_the_whole_change_of_every_case(
    rules: list[dict[str, Any]],
    others: list[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
):
    home = tmp_path_factory.mktemp("diff")
    for name, given_rules in (("a", rules), ("b", others)):
        named = [
            f"[[rules]]\nwhen = {_inline(rule['when'])}\nset = {_inline(rule['set'])}\n"
            for rule in given_rules
        ]
        (home / f"{name}.toml").write_text("".join(named), encoding="utf-8")
    found = {
        json.dumps(case.case, sort_keys=True): case.changes
        for case in diff_policies("a.toml", "b.toml", home).cases
    }
    before, after = policy(*rules), policy(*others)
    for phase in (None, *PHASES):
        case = {} if phase is None else {"phase": phase}
        old, new = (resolve_policy(p, **case).candidate_limit for p in (before, after))
        told = found.get(json.dumps(case), found.get("{}") or ())
        pair = next(((c.before, c.after) for c in told if c.key == "candidate_limit"), None)
        assert pair == ((old, new) if pair is not None or old != new else None)


def _inline(values: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + "}"


# --- the command line

runner = CliRunner()


def ctx(home: Path, *words: str):
    return runner.invoke(
        app, ["policy", *words, "--home", str(home)], env={"CTX_HOME": None, "CTX_DEBUG": None}
    )


def test_lint_exits_with_2_on_errors_alone(load: Callable[..., Path]):
    home = load(warned="[shares]\nhistory = 0.9\n", wrong="min_relevence = 1\n")
    fine = ctx(home, "lint")
    assert (fine.exit_code, "0 errors" in fine.stdout) == (0, True)
    assert ctx(home, "lint", "policies/warned.toml").exit_code == 0
    wrong = ctx(home, "lint", "policies/wrong.toml", "--json")
    assert wrong.exit_code == 2
    (finding,) = json.loads(wrong.stdout)["findings"]
    assert (finding["code"], finding["fix"]) == ("unknown_key", "did you mean 'min_relevance'?")


def test_show_names_the_rule_of_each_value(load: Callable[..., Path]):
    home = load('[policy]\nprofile = "data"\n')
    shown = json.loads(ctx(home, "show", "--phase", "query", "--json").stdout)
    assert shown["rules"] == ["query"]
    (limit,) = [value for value in shown["values"] if value["key"] == "min_relevance"]
    assert limit["value"] == 0.4
    assert limit["origin"].startswith("rule 'query' (profile data:")
    table = ctx(home, "show", "--phase", "nowhere").stdout
    assert "phase 'nowhere' is not known" in table
    assert "order" in ctx(home).stdout


def test_a_diff_of_two_policies_is_shown(load: Callable[..., Path]):
    home = load('[policy]\nprofile = "data"\n')
    assert "required_types" in ctx(home, "diff", "default", "current").stdout
    assert "the same in every case" in ctx(home, "diff", "data", "current").stdout
    found = json.loads(ctx(home, "diff", "data", "coding", "--json").stdout)
    assert found["a"].startswith("data@")
    assert found["cases"][0]["case"] == {}


def test_a_policy_that_is_not_there_is_named(load: Callable[..., Path]):
    result = ctx(load(), "diff", "default", "policies/none.toml")
    assert result.exit_code == 2
    assert "unreadable_config" in result.stderr


def test_an_unnamed_rule_is_called_by_its_case():
    assert PolicyRule.model_validate(
        {"when": {"phase": ["build", "edit"], "risk": "high"}}
    ).label == ("phase=build|edit risk=high")
    assert PolicyRule().label == "always"
