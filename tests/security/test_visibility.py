"""Who may see what, and when: each rule alone, the order of the rules, and
events that act at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx_pipeline.contracts import (
    ContextItem,
    ContextRequest,
    Exclusion,
    Identity,
    ItemKind,
    Sensitivity,
    Task,
    Trust,
)
from ctx_pipeline.errors import NotFound
from ctx_pipeline.index.facts import scope_label
from ctx_pipeline.security.visibility import (
    Clock,
    Viewer,
    code_of,
    label_codes,
    micros,
    permission_code,
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
    store_keys,
)
from testing.examples import examples

HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
ID = "document:handbook/a"


def viewer(**changes: Any) -> Viewer:
    role = changes.pop("role", None)
    task = changes.pop("task", None)
    floor = changes.pop("floor", Trust.TOOL_UNTRUSTED)
    return Viewer.of(
        ANA.model_copy(update=changes), task_type=task, agent_role=role, trust_floor=floor
    )


def code(item: ContextItem, who: Viewer) -> Exclusion | None:
    return permission_code(scope_label(item), who)


E = Exclusion
PERMISSIONS: tuple[tuple[dict[str, Any], dict[str, Any], Exclusion | None], ...] = (
    ({}, {}, None),
    ({"tenant": None}, {}, E.WRONG_TENANT),
    ({"tenant": ""}, {}, E.WRONG_TENANT),
    ({"tenant": "acme-corp"}, {}, E.WRONG_TENANT),
    ({}, {"tenant": "acme-corp"}, E.WRONG_TENANT),
    ({}, {"tenant": "ACME"}, E.WRONG_TENANT),
    ({"groups": (), "principals": ()}, {}, E.NOT_PERMITTED),
    ({"groups": ("finance",)}, {}, E.NOT_PERMITTED),
    ({"groups": ("finance", "analysts")}, {}, None),
    ({"groups": ("analyst",)}, {}, E.NOT_PERMITTED),
    ({"groups": ("finance",)}, {"groups": ("*",)}, E.NOT_PERMITTED),
    ({"groups": (), "principals": ("ana",)}, {}, None),
    ({"groups": (), "principals": ("anna",)}, {}, E.NOT_PERMITTED),
    ({"groups": (), "principals": ("*",)}, {}, E.NOT_PERMITTED),
    ({"groups": (), "principals": ("analysts",)}, {}, E.NOT_PERMITTED),
    ({"sensitivity": None}, {}, E.OVER_CLEARANCE),
    ({"sensitivity": None}, {"clearance": Sensitivity.RESTRICTED}, E.OVER_CLEARANCE),
    ({"sensitivity": Sensitivity.RESTRICTED}, {}, E.OVER_CLEARANCE),
    ({"sensitivity": Sensitivity.CONFIDENTIAL}, {}, None),
    ({"sensitivity": Sensitivity.INTERNAL}, {"clearance": Sensitivity.PUBLIC}, E.OVER_CLEARANCE),
    ({"environment": "prod"}, {}, E.WRONG_ENVIRONMENT),
    ({"environment": "prod"}, {"environment": "dev"}, E.WRONG_ENVIRONMENT),
    ({"environment": "prod"}, {"environment": "prod"}, None),
    ({}, {"environment": "prod"}, None),
    ({"task_types": ("audit",)}, {}, E.OUT_OF_SCOPE),
    ({"task_types": ("audit",)}, {"task": "audit"}, None),
    ({"task_types": ("audit",)}, {"purpose": "audit"}, None),
    ({"task_types": ("audit",)}, {"task": "general", "purpose": "sales"}, E.OUT_OF_SCOPE),
    ({"agent_visibility": ("planner",)}, {}, E.ROLE_DENIED),
    ({"agent_visibility": ("planner",)}, {"role": "writer"}, E.ROLE_DENIED),
    ({"agent_visibility": ("planner", "writer")}, {"role": "writer"}, None),
    ({"trust": Trust.RETRIEVED_EXTERNAL}, {"floor": Trust.RETRIEVED_INTERNAL}, E.BELOW_TRUST),
    ({"trust": Trust.RETRIEVED_INTERNAL}, {"floor": Trust.RETRIEVED_INTERNAL}, None),
)


@pytest.mark.parametrize(("item", "who", "expected"), PERMISSIONS)
def test_each_permission_rule_alone_gives_its_code(
    item: dict[str, Any], who: dict[str, Any], expected: Exclusion | None
):
    assert code(make_item("a", **item), viewer(**who)) == expected


FAILING: tuple[dict[str, Any], ...] = (
    {"tenant": "globex"},
    {"groups": ("finance",)},
    {"sensitivity": Sensitivity.RESTRICTED},
    {"environment": "prod"},
    {"task_types": ("audit",)},
    {"agent_visibility": ("planner",)},
    {"trust": Trust.TOOL_UNTRUSTED},
)
"""What makes each rule fail, in the order of the rules."""


@given(failing=st.sets(st.integers(0, len(FAILING) - 1)))
def test_of_several_failing_rules_the_first_gives_the_code(failing: set[int]):
    fields: dict[str, Any] = {}
    for number in failing:
        fields.update(FAILING[number])
    expected = tuple(Exclusion)[min(failing)] if failing else None
    assert code(make_item("a", **fields), viewer(floor=Trust.USER)) == expected


# --- time and events, on a built project


def codes_of(
    home: Path,
    item_id: str = ID,
    identity: Identity = ANA,
    at: datetime = NOW,
    as_of: datetime | None = None,
) -> dict[str, str | None]:
    """The predicate's word on every version, by way of the public probe; nothing when none may be
    named.
    """
    with open_project(home) as project:
        try:
            probes = project.why_not(item_id, identity=identity, at=at, as_of=as_of)
        except NotFound:
            return {}
        return {probe.version: None if probe.code is None else probe.code.value for probe in probes}


def shown(
    home: Path, identity: Identity = ANA, at: datetime = NOW, as_of: datetime | None = None
) -> set[tuple[str, str]]:
    """What a pack about refunds shows of the handbook."""
    request = ContextRequest(
        task=Task(text="refund rules"), identity=identity, token_budget=20_000, as_of=as_of
    )
    with open_project(home) as project:
        pack = project.assemble(request, at=at)
        return {(i.item_id, i.version) for i in pack.items if "handbook/" in i.item_id}


def test_a_version_is_valid_from_its_first_instant_to_before_its_last(tmp_path: Path):
    item = make_item("a", "refund rules", valid_from=NOW, valid_until=NOW + HOUR)
    home = make_project(tmp_path, [item])
    assert codes_of(home, at=NOW - MICROSECOND) == {"1": "not_yet_valid"}
    assert codes_of(home, at=NOW) == {"1": None}
    assert codes_of(home, at=NOW + HOUR - MICROSECOND) == {"1": None}
    assert codes_of(home, at=NOW + HOUR) == {"1": "expired"}
    assert shown(home, at=NOW - MICROSECOND) == set() == shown(home, at=NOW + HOUR)
    assert shown(home, at=NOW) == {(ID, "1")}
    assert codes_of(home, at=NOW, as_of=NOW + HOUR) == {"1": "expired"}
    assert codes_of(home, at=NOW + 9 * HOUR, as_of=NOW) == {"1": None}


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """v1 since ever, v2 since an hour ago, v3 in an hour."""
    texts = {"1": "refund rules of old", "2": "refund rules of now", "3": "refund rules to come"}
    starts = {"1": None, "2": NOW - HOUR, "3": NOW + HOUR}
    return make_project(
        tmp_path,
        [
            make_item("a", texts[v], version=v, valid_from=starts[v], kind=ItemKind.DOCUMENT)
            for v in texts
        ],
    )


def test_a_version_of_the_future_becomes_visible_at_its_instant_without_a_build(versions: Path):
    assert codes_of(versions) == {"1": "superseded", "2": None, "3": "not_yet_valid"}
    assert shown(versions) == {(ID, "2")}
    assert shown(versions, at=NOW + HOUR - MICROSECOND) == {(ID, "2")}
    assert shown(versions, at=NOW + HOUR) == {(ID, "3")}
    assert codes_of(versions, at=NOW + HOUR) == {"1": "superseded", "2": "superseded", "3": None}


def test_as_of_shows_the_version_that_was_valid_then(versions: Path):
    assert shown(versions, as_of=NOW - 2 * HOUR) == {(ID, "1")}
    assert shown(versions, as_of=NOW - HOUR) == {(ID, "2")}
    assert shown(versions, as_of=NOW + 2 * HOUR) == {(ID, "3")}


def test_as_of_does_not_rewind_permissions(versions: Path):
    before = shown(versions, as_of=NOW - 2 * HOUR)
    append_overlay(versions, overlay("revoked", ID, principal="ana", at=NOW))
    assert before == {(ID, "1")}
    assert shown(versions, as_of=NOW - 2 * HOUR) == set()
    assert codes_of(versions, as_of=NOW - 2 * HOUR) == {}


BO = ANA.model_copy(update={"principal": "bo", "groups": ("finance",)})
EVENTS: tuple[tuple[str, list[Any], dict[str, str | None], dict[str, str | None]], ...] = (
    ("retired", [overlay("retired", ID)], {"1": "retired"}, {"1": "retired"}),
    ("restored", [overlay("retired", ID), overlay("restored", ID)], {"1": None}, {"1": None}),
    ("quarantined", [overlay("quarantined", ID)], {"1": "quarantined"}, {"1": "quarantined"}),
    ("released", [overlay("quarantined", ID), overlay("released", ID)], {"1": None}, {"1": None}),
    ("forgotten", [overlay("forgotten", ID)], {}, {}),
    (
        "forgotten for ever",
        [overlay("forgotten", ID), overlay("released", ID), overlay("restored", ID)],
        {},
        {},
    ),
    (
        "forgotten, then set aside",
        [overlay("forgotten", ID), overlay("quarantined", ID), overlay("released", ID)],
        {},
        {},
    ),
    (
        "forgotten as a version",
        [overlay("forgotten", ID, version="1"), overlay("released", ID)],
        {},
        {},
    ),
    ("superseded", [overlay("superseded", ID)], {"1": "superseded"}, {"1": "superseded"}),
    ("superseded later", [overlay("superseded", ID, at=NOW + HOUR)], {"1": None}, {"1": None}),
    ("revoked from one", [overlay("revoked", ID, principal="ana")], {}, {"1": None}),
    ("revoked from a group", [overlay("revoked", ID, group="finance")], {"1": None}, {}),
    ("revoked from all", [overlay("revoked", ID)], {}, {}),
    ("revoked from everybody", [overlay("revoked", ID, group="*")], {}, {}),
    ("another version", [overlay("retired", ID, version="2")], {"1": None}, {"1": None}),
    ("another item", [overlay("retired", f"{ID}b")], {"1": None}, {"1": None}),
    ("another tenant", [overlay("forgotten", ID, tenant="globex")], {"1": None}, {"1": None}),
    ("confirmed", [overlay("confirmed", ID)], {"1": None}, {"1": None}),
    (
        "quarantined beats retired",
        [overlay("retired", ID), overlay("quarantined", ID)],
        {"1": "quarantined"},
        {"1": "quarantined"},
    ),
    (
        "the last word counts",
        [overlay("restored", ID, version="1"), overlay("retired", ID)],
        {"1": "retired"},
        {"1": "retired"},
    ),
    (
        "the last word of a version",
        [overlay("retired", ID), overlay("restored", ID, version="1")],
        {"1": None},
        {"1": None},
    ),
    (
        "the last word again",
        [overlay("retired", ID), overlay("restored", ID, version="1"), overlay("retired", ID)],
        {"1": "retired"},
        {"1": "retired"},
    ),
)


@pytest.mark.parametrize(
    ("entries", "ana", "bo"), [event[1:] for event in EVENTS], ids=[event[0] for event in EVENTS]
)
def test_an_event_acts_at_once_and_the_same_after_a_build_has_absorbed_it(
    tmp_path: Path, entries: list[Any], ana: dict[str, str | None], bo: dict[str, str | None]
):
    items = [
        make_item("a", "refund rules"),
        make_item("ab", "refund rules too"),
        make_item("a", "refund", tenant="globex"),
    ]
    home = make_project(tmp_path, items)

    def seen() -> tuple[Any, ...]:
        return codes_of(home), codes_of(home, identity=BO), shown(home), shown(home, BO)

    with open_project(home) as project:
        request = ContextRequest(task=Task(text="refund rules"), identity=ANA)
        assert any(item.item_id == ID for item in project.assemble(request, at=NOW).items)
        append_overlay(home, *entries)
        # The project that was open sees it with its next call.
        visible = any(item.item_id == ID for item in project.assemble(request, at=NOW).items)
        assert visible is (ana == {"1": None})
    at_once = seen()
    assert at_once[:2] == (ana, bo)
    assert ((ID, "1") in at_once[2]) is (ana == {"1": None})
    assert ((ID, "1") in at_once[3]) is (bo == {"1": None})
    build_index(home)
    assert seen() == at_once


def test_what_was_set_aside_in_a_build_comes_back_without_another_one(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund rules")])
    append_overlay(home, overlay("retired", ID), overlay("quarantined", ID))
    build_index(home)
    assert shown(home) == set()
    append_overlay(home, overlay("restored", ID), overlay("released", ID))
    with open_project(home) as project:
        pack = project.assemble(
            ContextRequest(task=Task(text="refund rules"), identity=ANA), at=NOW
        )
        (trace,) = (
            trace for trace in project.explain(pack.snapshot_id, ANA) if trace.item_id == ID
        )
    assert trace.selected
    assert set(trace.discovered_by) == {"vector", "lexical"}


@pytest.mark.parametrize("built", [False, True])
def test_a_version_that_is_withdrawn_gives_way_to_the_one_before(versions: Path, built: bool):
    append_overlay(versions, overlay("retired", ID, version="2", at=NOW))
    if built:
        build_index(versions)
    assert codes_of(versions) == {"1": None, "2": "retired", "3": "not_yet_valid"}
    assert shown(versions) == {(ID, "1")}
    assert shown(versions, as_of=NOW - HOUR) == {(ID, "2")}
    assert shown(versions, at=NOW + HOUR) == {(ID, "3")}
    append_overlay(versions, overlay("restored", ID, version="2"))
    assert shown(versions) == {(ID, "2")}


@pytest.mark.parametrize("built", [False, True])
def test_a_version_that_is_forgotten_gives_way_to_the_one_before(versions: Path, built: bool):
    append_overlay(versions, overlay("forgotten", ID, version="2", at=NOW))
    if built:
        build_index(versions)
    assert codes_of(versions) == {"1": None, "3": "not_yet_valid"}
    assert shown(versions) == {(ID, "1")}


def test_a_quarantined_version_hides_the_one_before_as_well(versions: Path):
    """What it replaced is outdated, whatever is wrong with the new one."""
    append_overlay(versions, overlay("quarantined", ID, version="2", at=NOW))
    assert codes_of(versions) == {"1": "superseded", "2": "quarantined", "3": "not_yet_valid"}


# --- any order of events, absorbed at any point


def random_events() -> st.SearchStrategy[Any]:
    codes = st.sampled_from(
        ("retired", "restored", "quarantined", "released", "forgotten", "superseded", "revoked")
    )
    who = st.sampled_from(({}, {"principal": "ana"}, {"group": "finance"}))
    return st.builds(
        lambda code, version, more: overlay(
            code, ID, version=version, **(more if code == "revoked" else {})
        ),
        codes,
        st.sampled_from((None, "1", "2", "3")),
        who,
    )


def folded_codes(
    items: Sequence[ContextItem], first: Sequence[Any], later: Sequence[Any]
) -> list[list[int]]:
    """The codes of the versions when `first` is absorbed by a build and
    `later` is applied to it.
    """
    from ctx_pipeline.index.facts import facts_table
    from ctx_pipeline.index.labels import state_columns
    from ctx_pipeline.index.overlay import apply_patch, fold, supersede_chain
    from ctx_pipeline.index.rows import make_rows
    from ctx_pipeline.security.visibility import visibility_codes

    rows = make_rows(store_keys(items, NOW), facts_table(items))
    labels, columns = state_columns(rows, fold(first))
    for (_, _, version), patch in fold(later).items():
        hit = [at for at, item in enumerate(items) if version in (None, item.version)]
        apply_patch(columns, labels, np.asarray(hit, np.intp), patch)
    supersede_chain(columns, 0, len(items))
    clocks = [
        Clock(micros(NOW), as_of)
        for as_of in (None, micros(NOW - 2 * HOUR), micros(NOW), micros(NOW + 2 * HOUR))
    ]
    viewers = [Viewer.of(ANA), Viewer.of(BO)]
    return [
        visibility_codes(columns, label_codes(labels, v), clock).tolist()
        for v in viewers
        for clock in clocks
    ]


@pytest.mark.timeout(180)
@settings(max_examples=examples(300))
@given(events=st.lists(random_events(), max_size=8), cut=st.integers(0, 8))
def test_it_makes_no_difference_which_events_a_build_absorbed(events: list[Any], cut: int):
    starts = {"1": None, "2": NOW - HOUR, "3": NOW + HOUR}
    items = [
        make_item("a", version, version=version, valid_from=start)
        for version, start in starts.items()
    ]
    everything = folded_codes(items, events, [])
    assert folded_codes(items, [], events) == everything
    assert folded_codes(items, events[:cut], events[cut:]) == everything
    one_by_one = folded_codes_one_by_one(items, events)
    assert one_by_one == everything


def folded_codes_one_by_one(items: Sequence[ContextItem], events: Sequence[Any]) -> list[list[int]]:
    """A plain model: each event changes each version it speaks of, in order."""
    model = {
        i.version: {
            "state": "live",
            "retired": False,
            "replaced": False,
            "marked": False,
            "revoked": set(),
        }
        for i in items
    }
    for event in events:
        for version, facts in model.items():
            if event.version in (None, version):
                _tell(facts, event)
    return [
        [_number(_model_code(items, model, at, who, as_of)) for at in range(len(items))]
        for who in (ANA, BO)
        for as_of in (None, NOW - 2 * HOUR, NOW, NOW + 2 * HOUR)
    ]


def _tell(facts: dict[str, Any], event: Any) -> None:
    match event.code:
        case "retired" | "restored":
            facts["retired"] = event.code == "retired"
            # A version that is in force again is not replaced any more, either.
            if event.code == "restored" and event.version is not None:
                facts["replaced"] = facts["marked"] = False
        case "superseded" if event.version is None:
            facts["replaced"] = True
        case "superseded":
            facts["marked"] = True
        case "revoked":
            facts["revoked"].add(event.principal or event.group or "*")
        case _ if facts["state"] != "forgotten":
            facts["state"] = {"released": "live"}.get(event.code, event.code)
        case _:
            pass


def _number(code: Exclusion | None) -> int:
    return 0 if code is None else tuple(Exclusion).index(code) + 1


def _model_code(
    items: Sequence[ContextItem],
    model: dict[str, dict[str, Any]],
    at: int,
    who: Identity,
    as_of: datetime | None,
) -> Exclusion | None:
    facts, moment, start = model[items[at].version], as_of or NOW, items[at].valid_from
    gone = {
        version: f["retired"] and (as_of is None or as_of >= NOW) for version, f in model.items()
    }
    if facts["revoked"] & {"*", who.principal, *who.groups}:
        return Exclusion.NOT_PERMITTED
    if facts["state"] != "live":
        return Exclusion(facts["state"])
    if gone[items[at].version]:
        return Exclusion.RETIRED
    if start is not None and start > moment:
        return Exclusion.NOT_YET_VALID
    followers = [i for i in items[at + 1 :] if model[i.version]["state"] != "forgotten"]
    after = [i for i in followers if not gone[i.version]]
    # Of one version the overlay speaks only until what follows it is here.
    told = facts["replaced"] or (facts["marked"] and not followers)
    if (told and moment >= NOW) or any(
        i.valid_from is not None and i.valid_from <= moment for i in after
    ):
        return Exclusion.SUPERSEDED
    return None


def test_the_code_of_zero_is_visible_and_every_code_has_its_number():
    assert code_of(0) is None
    assert [code_of(number) for number in range(1, len(Exclusion) + 1)] == list(Exclusion)
