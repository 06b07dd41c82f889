"""The engine: the same call gives the same bytes, in any process, and seldom asks for more than it
shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ctx_pipeline.config.profiles import model_profile
from ctx_pipeline.contracts import (
    ContextItem,
    ContextRequest,
    Exclusion,
    GateCheck,
    ItemKind,
    Message,
    Task,
)
from ctx_pipeline.errors import CtxError, GateFailed, InvalidRequest
from ctx_pipeline.text import canonical_json
from testing import strategies
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
from testing.examples import examples

REPOSITORY = Path(__file__).resolve().parent.parent

CHILD = """
import json, sys
from ctx_pipeline.contracts import ContextRequest
from tests.test_engine import outcome
from testing.artifacts import open_project
with open_project(sys.argv[1]) as project:
    with open(sys.argv[2], encoding="utf-8") as lines:
        answers = [outcome(project, ContextRequest.model_validate_json(line)) for line in lines]
with open(sys.argv[3], "w", encoding="utf-8") as target:
    json.dump(answers, target)
"""


def outcome(project: object, request: ContextRequest) -> str:
    """A pack in all its bytes, or the error in all its words."""
    from ctx_pipeline.contracts.render import FORMATS
    from ctx_pipeline.project import ContextProject

    assert isinstance(project, ContextProject)
    try:
        pack = project.assemble(request, at=NOW)
    except CtxError as error:
        return canonical_json([error.as_dict(), getattr(error, "trace_id", None)])
    return pack.model_dump_json() + canonical_json([pack.render(form) for form in FORMATS])


@pytest.mark.timeout(180)
@settings(
    max_examples=examples(15),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    items=strategies.catalogues(),
    request=strategies.requests(),
    budgets=st.lists(st.integers(50, 2_000), min_size=1, max_size=3),
)
def test_the_same_request_gives_the_same_bytes_also_when_reopened_or_built_elsewhere(
    items: list[ContextItem], request: ContextRequest, budgets: list[int]
):
    """Ours: P7. The other project has the same items, stored in the same order of versions."""
    asked = [request.model_copy(update={"token_budget": budget}) for budget in (*budgets, None)]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        home = make_project(Path(one), items, strategies.SOURCES)
        with open_project(home) as project:
            first = [outcome(project, each) for each in asked]
            assert [outcome(project, each) for each in reversed(asked)] == first[::-1]
        with open_project(home) as project:
            assert [outcome(project, each) for each in asked] == first
        with open_project(make_project(Path(two), items, strategies.SOURCES)) as project:
            assert [outcome(project, each) for each in asked] == first


def sample_items() -> list[ContextItem]:
    items = [
        make_item(
            f"{n}",
            f"refund rule {n} of region {n % 7}. 退款规则 {n}。 "
            + "More about orders. " * (n % 40),
        )
        for n in range(60)
    ]
    items += [
        make_item(
            f"m{n}",
            f"gmv is {n}",
            kind=ItemKind.METRIC,
            subject=f"metric:{n % 3}",
            depends_on=("schema:*/t",),
        )
        for n in range(9)
    ]
    schema = canonical_json(
        {"name": "pay", "description": "Pay a refund", "input_schema": {"type": "object"}}
    )
    items += [
        make_item("t", "table of refunds", kind=ItemKind.SCHEMA),
        make_item("pay", schema, kind=ItemKind.TOOL),
        make_item("rule", "Answer briefly.", kind=ItemKind.POLICY, source="rules"),
    ]
    return items


def sample_requests() -> list[ContextRequest]:
    texts = ("refund rule", "退款规则", "gmv by region", "orders and refunds", "")
    return [
        ContextRequest(
            task=Task(text=text, goal="Answer", todo=("look", "say")),
            identity=ANA.model_copy(update={"groups": ("b", "a", "analysts")}),
            token_budget=budget,
            state={"b": 1, "a": {"y": 2, "x": "值"}},
            messages=(
                Message(role="user", content="hello"),
                Message(role="assistant", content="您好"),
            ),
            as_of=as_of,
        )
        for text in texts
        for budget in (300, 900, 5_000)
        for as_of in (None, NOW - timedelta(days=1))
    ]


@pytest.mark.timeout(180)
def test_other_processes_with_other_hash_seeds_time_zones_and_locales_give_the_same_bytes(
    tmp_path: Path,
):
    """Ours: P7."""
    home = make_project(tmp_path / "home", sample_items(), {"rules": {"when_to_load": "always"}})
    requests = sample_requests()
    lines = tmp_path / "requests.jsonl"
    lines.write_text("\n".join(request.model_dump_json() for request in requests), encoding="utf-8")
    with open_project(home) as project:
        expected = [outcome(project, request) for request in requests]
    assert len(set(expected)) > 20
    children: list[subprocess.Popen[bytes]] = []
    for number, (seed, zone, locale) in enumerate(
        (("1", "Asia/Shanghai", "C"), ("2", "America/New_York", "zh_CN.UTF-8"))
    ):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
        arguments = [str(home), str(lines), str(tmp_path / f"{number}.json")]
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", CHILD, *arguments], cwd=REPOSITORY, env=environment
            )
        )
    for number, child in enumerate(children):
        assert child.wait(150) == 0
        assert json.loads((tmp_path / f"{number}.json").read_text(encoding="utf-8")) == expected


def test_threads_that_share_a_project_get_the_same_bytes(tmp_path: Path):
    home = make_project(tmp_path, sample_items(), {"rules": {"when_to_load": "always"}})
    requests = sample_requests()
    with open_project(home) as project:
        expected = [outcome(project, request) for request in requests]
        found: dict[int, list[str]] = {}

        def work(number: int) -> None:
            turn = requests[number:] + requests[:number]
            answers = [outcome(project, request) for request in turn]
            found[number] = answers[len(answers) - number :] + answers[: len(answers) - number]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[number] for number in range(4)] == [expected] * 4


def test_what_only_executes_is_neither_hashed_rendered_nor_kept(tmp_path: Path):
    home = make_project(tmp_path, sample_items())
    with open_project(home) as project:
        plain, carrying = (
            ContextRequest(task=Task(text="refund"), identity=ANA, tool_context=context)
            for context in ({}, {"connection": "SECRET-VALUE"})
        )
        one, two = project.assemble(plain, at=NOW), project.assemble(carrying, at=NOW, durable=True)
        assert one.model_dump_json() == two.model_dump_json()
        assert two.tool_context == {"connection": "SECRET-VALUE"}
        assert "SECRET-VALUE" not in repr(two) + repr(carrying)
    assert not any(
        b"SECRET-VALUE" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_the_pack_hash_is_about_content_alone(tmp_path: Path):
    """The same content gives the same hash under another run, clock, artifact and overlay."""
    home = make_project(tmp_path, [make_item("a", "refund rules"), make_item("z", "weather")])
    request = ContextRequest(task=Task(text="refund rules"), identity=ANA, token_budget=4_000)
    with open_project(home) as project:
        first = project.assemble(request, at=NOW)
        append_overlay(home, overlay("confirmed", "document:handbook/z"))
        build_index(home)
        again = project.assemble(
            request.model_copy(update={"run_id": "other"}), at=NOW + timedelta(hours=1)
        )
        assert again.hash == first.hash
        assert again.pack_id == first.pack_id
        assert (again.index_version, again.overlay_sequence) != (
            first.index_version,
            first.overlay_sequence,
        )
        assert again.snapshot_id != first.snapshot_id
        append_overlay(home, overlay("retired", "document:handbook/a"))
        assert project.assemble(request, at=NOW).hash != first.hash


def test_rendering_is_the_sum_of_the_sections_in_every_format(tmp_path: Path):
    home = make_project(tmp_path, sample_items(), {"rules": {"when_to_load": "always"}})
    with open_project(home) as project:
        pack = project.assemble(sample_requests()[4], at=NOW)
        text = pack.render("text")
        chat = pack.render("openai_chat")
        assert "".join(message["content"] for message in chat["messages"]) == text
        anthropic = pack.render("anthropic")
        assert (
            anthropic["system"][0]["text"] + anthropic["messages"][0]["content"][0]["text"] == text
        )
        assert "".join(message["content"] for message in pack.render("langchain")) == text
        responses = pack.render("openai_responses")
        assert responses["instructions"] + responses["input"][0]["content"][0]["text"] == text
        with pytest.raises(InvalidRequest):
            pack.render("yaml")


def test_a_required_type_that_cannot_be_shown_refuses_the_pack(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund rules")])
    request = ContextRequest(
        task=Task(text="refund rules"), identity=ANA, required_types=("metric",)
    )
    with open_project(home) as project:
        with pytest.raises(GateFailed) as refused:
            project.assemble(request, at=NOW)
        assert GateCheck.REQUIRED_CONTEXT_PRESENT.value in refused.value.where
        kept = project.snapshots(identity=ANA)
        assert [snapshot.snapshot_id for snapshot in kept] == [refused.value.trace_id]


def test_the_first_call_after_an_event_already_sees_it(tmp_path: Path):
    """Ours: P12."""
    home = make_project(tmp_path, [make_item("a", "refund rules")])
    request = ContextRequest(task=Task(text="refund rules"), identity=ANA)
    with open_project(home) as project:
        assert any("handbook" in item.item_id for item in project.assemble(request, at=NOW).items)
        append_overlay(home, overlay("revoked", "document:handbook/a"))
        pack = project.assemble(request, at=NOW)
        assert not any("handbook" in item.item_id for item in pack.items)
        assert pack.denied == {Exclusion.NOT_PERMITTED.value: 1}


def test_a_denied_item_leads_to_no_other_and_is_named_nowhere(tmp_path: Path):
    """What loads always but may not be seen must not bring its neighbours, nor be named as their
    parent.
    """
    items = [
        make_item(
            "closed",
            "x",
            kind=ItemKind.METRIC,
            source="rules",
            groups=("board",),
            depends_on=("schema:rules/t",),
        ),
        make_item(
            "gone", "y", kind=ItemKind.METRIC, source="rules", depends_on=("schema:rules/u",)
        ),
        make_item("t", "table of weather", kind=ItemKind.SCHEMA, source="rules"),
        make_item("u", "table of clouds", kind=ItemKind.SCHEMA, source="rules"),
    ]
    settings_ = {"rules": {"when_to_load": "always"}}
    home = make_project(tmp_path, items, settings_)
    append_overlay(home, overlay("forgotten", "metric:rules/gone"))
    with open_project(home) as project:
        pack = project.assemble(ContextRequest(task=Task(text="x y metric"), identity=ANA), at=NOW)
        traces = project.explain(pack.snapshot_id, ANA)
    words = pack.model_dump_json() + "".join(trace.model_dump_json() for trace in traces)
    assert "metric:rules/closed" not in words
    assert "metric:rules/gone" not in words
    assert all("dependency" not in trace.discovered_by for trace in traces)
    assert {"schema:rules/t", "schema:rules/u"} <= {trace.item_id for trace in traces}


def test_without_time_for_it_a_pack_is_made_by_words_alone_and_says_so(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refund rules"), make_item("z", "weather")])
    request = ContextRequest(task=Task(text="refund rules"), identity=ANA, token_budget=4_000)
    with open_project(home) as project:
        hurried = project.assemble(request.model_copy(update={"deadline_ms": 1}), at=NOW)
        warnings = {warning.code: warning.message for warning in hurried.warnings}
        assert "search by meaning" in warnings["deadline_degraded"]
        assert "document:handbook/a" in {item.item_id for item in hurried.items}
        assert project.replay(hurried.snapshot_id, ANA).warnings == hurried.warnings
        for trace in project.explain(hurried.snapshot_id, ANA):
            assert "vector" not in trace.discovered_by
        calm = project.assemble(request.model_copy(update={"deadline_ms": 600_000}), at=NOW)
        assert not {warning.code for warning in calm.warnings} & {
            "deadline_degraded",
            "deadline_exceeded",
        }
        assert calm.snapshot_id != hurried.snapshot_id


def test_a_pack_says_what_it_costs_where_the_model_has_a_price(tmp_path: Path):
    home = make_project(tmp_path, sample_items(), {"rules": {"when_to_load": "always"}})
    priced = model_profile("gpt-5").model_copy(
        update={"input_price": 2.0, "cached_input_price": 0.5, "cache_min_prefix_tokens": 1}
    )
    request = ContextRequest(task=Task(text="refund rules"), identity=ANA, token_budget=4_000)
    with open_project(home) as project:
        assert project.assemble(request, at=NOW).budget.cost is None
        pack = project.assemble(request.model_copy(update={"model_profile": priced}), at=NOW)
    assert pack.prefix.stable_tokens > 0
    assert pack.budget.cost == pytest.approx(pack.total_tokens * 2e-6)
    assert pack.budget.cost_cached == pytest.approx(
        pack.total_tokens * 2e-6 - pack.prefix.stable_tokens * 1.5e-6
    )
