"""A policy service can only take away, and whatever is wrong with it denies everything."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.contracts import ContextPack, ContextRequest, Exclusion, Identity, Task
from ctx_pipeline.errors import ConfigError, GateFailed, NotFound, NotPermitted
from ctx_pipeline.orchestration.doctor import diagnose
from ctx_pipeline.project import ContextProject
from ctx_pipeline.security.policy_cedar import ENTITIES, SCHEMA, CedarService
from ctx_pipeline.security.policy_http import PROTOCOL, HttpService
from ctx_pipeline.security.policy_service import (
    DecisionBatch,
    Decisions,
    PolicyGuard,
    PolicyService,
    PolicyServiceError,
)
from ctx_pipeline.security.visibility import ScopeLabel, Viewer, code_of, label_codes
from testing.artifacts import ANA, NOW, make_item, make_project, open_project, write_config

VIEWER = Viewer.of(ANA)
DENIED = Exclusion.NOT_PERMITTED


def label(*groups: str, sensitivity: str = "internal", **more: Any) -> ScopeLabel:
    facts: dict[str, Any] = {
        "tenant": "acme",
        "principals": (),
        "groups": groups or ("*",),
        "sensitivity": sensitivity,
        "environment": None,
        "task_types": (),
        "agent_visibility": (),
        "trust": "enterprise_trusted",
    }
    return ScopeLabel(**{**facts, **more})


OPEN, HR, OTHER = label(), label("analysts", "hr"), label(tenant="globex")
LABELS = [OPEN, HR, OTHER]


def outcome(guard: PolicyGuard, labels: list[ScopeLabel] = LABELS, viewer: Viewer = VIEWER):
    narrowed = guard.narrow(labels, viewer, label_codes(labels, viewer))
    return [code_of(code) for code in narrowed.codes.tolist()], narrowed.decision


@dataclass
class Rules:
    """A policy service in this process: what it allows is a function of the label."""

    allows: Callable[[ScopeLabel], bool] = lambda _: True
    policy_version: str = "v1"
    decision_id: str = "d-1"
    name: str = "rules"
    asked: list[DecisionBatch] = field(default_factory=list[DecisionBatch])

    def version(self) -> str:
        return self.policy_version

    def decide(self, batch: DecisionBatch) -> Decisions:
        self.asked.append(batch)
        return Decisions(
            tuple(self.allows(one) for one in batch.labels), self.policy_version, self.decision_id
        )

    def close(self) -> None:
        self.asked.clear()


# --- the guard


def test_a_service_takes_away_and_is_asked_only_about_what_is_permitted():
    service = Rules(lambda one: "hr" not in one.groups)
    codes, decision = outcome(PolicyGuard(service))
    assert codes == [None, DENIED, Exclusion.WRONG_TENANT]
    assert service.asked == [DecisionBatch(VIEWER, (OPEN, HR))]
    assert (decision.service, decision.policy_version, decision.decision_id) == (
        "rules",
        "v1",
        "d-1",
    )
    assert (decision.asked, decision.denied, decision.failure) == (2, 1, None)


@given(
    st.lists(
        st.builds(
            label,
            st.sampled_from(("*", "analysts", "hr")),
            sensitivity=st.sampled_from(("public", "internal", "restricted")),
            tenant=st.sampled_from(("acme", "globex", None)),
            also=st.none() | st.just(HR),
        ),
        max_size=8,
    ),
    st.sets(st.sampled_from(("*", "analysts", "hr"))),
)
def test_whatever_a_service_says_nobody_sees_more(labels: list[ScopeLabel], allowed: set[str]):
    before = [code_of(code) for code in label_codes(labels, VIEWER).tolist()]
    after, _ = outcome(PolicyGuard(Rules(lambda one: not allowed.isdisjoint(one.groups))), labels)
    for one, old, new in zip(labels, before, after, strict=True):
        passed = not allowed.isdisjoint(one.groups) and (
            one.also is None or not allowed.isdisjoint(one.also.groups)
        )
        assert new == (old if old is not None or passed else DENIED)


def test_a_label_that_needs_another_one_needs_the_service_to_allow_both():
    both = replace(OPEN, also=HR)
    assert outcome(PolicyGuard(Rules(lambda one: one == HR)), [both])[0] == [DENIED]
    assert outcome(PolicyGuard(Rules(lambda one: one == OPEN)), [both])[0] == [DENIED]
    assert outcome(PolicyGuard(Rules()), [both])[0] == [None]


def failing(error: Exception) -> Rules:
    class Failing(Rules):
        def decide(self, batch: DecisionBatch) -> Decisions:
            raise error

    return Failing()


def answering(*allowed: Any) -> Rules:
    class Answering(Rules):
        def decide(self, batch: DecisionBatch) -> Decisions:
            return Decisions(allowed, "v1")

    return Answering()


@pytest.mark.parametrize(
    ("service", "failure"),
    [
        (failing(PolicyServiceError("unreachable")), "unreachable"),
        (failing(RuntimeError("broken")), "service_error"),
        (failing(MemoryError()), "service_error"),
        (answering(), "invalid_answer"),
        (answering(True), "invalid_answer"),
        (answering(True, True, True), "invalid_answer"),
        (answering(True, None), "invalid_answer"),
        (answering(True, "allow"), "invalid_answer"),
    ],
)
@pytest.mark.parametrize("cache_seconds", [0.0, 10.0])
def test_a_service_that_fails_denies_everything(
    service: PolicyService, failure: str, cache_seconds: float
):
    codes, decision = outcome(PolicyGuard(service, cache_seconds=cache_seconds))
    assert codes == [DENIED, DENIED, Exclusion.WRONG_TENANT]
    assert (decision.failure, decision.policy_version, decision.denied) == (failure, "", 2)


def test_strict_asks_every_time_and_cached_until_its_seconds_are_over():
    now = [0.0]
    service = Rules()
    strict = PolicyGuard(service)
    cached = PolicyGuard(service, cache_seconds=10, monotonic=lambda: now[0])
    assert outcome(strict)[0][:2] == outcome(cached)[0][:2] == [None, None]
    service.allows = lambda one: "hr" not in one.groups
    assert outcome(strict)[0][:2] == [None, DENIED]
    now[0] = 9.9
    codes, decision = outcome(cached)
    assert codes[:2] == [None, None]
    assert decision.decision_id != "d-1"
    now[0] = 10.0
    assert outcome(cached)[0][:2] == [None, DENIED]


def test_a_new_policy_version_ends_what_is_cached_and_so_does_another_viewer():
    service = Rules()
    cached = PolicyGuard(service, cache_seconds=10, monotonic=lambda: 0.0)
    outcome(cached)
    service.allows = lambda _: False
    assert outcome(cached)[0][:2] == [None, None]
    assert outcome(cached, viewer=replace(VIEWER, principal="bo"))[0][:2] == [DENIED, DENIED]
    service.policy_version = "v2"
    assert outcome(cached)[0][:2] == [DENIED, DENIED]


def test_a_version_that_changes_with_the_answer_ends_what_is_cached_too():
    class Later(Rules):
        def version(self) -> str:
            return "v1"

    service = Later()
    cached = PolicyGuard(service, cache_seconds=10, monotonic=lambda: 0.0)
    outcome(cached, [OPEN])
    service.allows, service.policy_version = (lambda _: False), "v2"
    codes, decision = outcome(cached, [OPEN, HR])
    assert (codes, decision.policy_version) == ([DENIED, DENIED], "v2")


def test_a_failure_is_not_remembered():
    service = Rules()
    cached = PolicyGuard(service, cache_seconds=10, monotonic=lambda: 0.0)
    answer, service.decide = service.decide, failing(PolicyServiceError("timeout")).decide
    assert outcome(cached)[0][:2] == [DENIED, DENIED]
    service.decide = answer
    assert outcome(cached)[0][:2] == [None, None]


# --- Cedar

ANALYSTS = 'permit(principal in Group::"analysts", action == Action::"read", resource);\n'
NO_HR = 'forbid(principal, action, resource) when { resource.groups.contains("hr") };\n'


def cedar(folder: Path, text: str | None, **files: str) -> PolicyGuard:
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "rules.cedar").write_text(text, encoding="utf-8")
    for name, content in files.items():
        (folder / {"entities": ENTITIES, "schema": SCHEMA}[name]).write_text(
            content, encoding="utf-8"
        )
    return PolicyGuard(CedarService(folder))


def test_cedar_policies_decide_about_labels(tmp_path: Path):
    codes, decision = outcome(cedar(tmp_path, ANALYSTS + NO_HR))
    assert codes == [None, DENIED, Exclusion.WRONG_TENANT]
    assert (decision.service, decision.asked, decision.denied, decision.failure) == (
        "cedar",
        2,
        1,
        None,
    )
    assert decision.policy_version
    outsider = Viewer.of(ANA.model_copy(update={"groups": ("sales",)}))
    assert outcome(cedar(tmp_path, ANALYSTS), [OPEN], outsider)[0] == [DENIED]


@pytest.mark.parametrize(
    "condition",
    [
        'resource.sensitivity == "internal" && resource.sensitivity_level == 1',
        "resource.sensitivity_level <= principal.clearance_level",
        'principal.tenant == resource.tenant && principal.groups.contains("analysts")',
        'context has task_type && context.task_type == "编码"',
        "resource.trust_level >= 4",
        "!(resource has environment)",
    ],
)
def test_cedar_sees_viewer_label_and_task(condition: str, tmp_path: Path):
    viewer = replace(VIEWER, task_type="编码")
    assert outcome(
        cedar(tmp_path, f"permit(principal, action, resource) when {{ {condition} }};"),
        [OPEN],
        viewer,
    )[0] == [None]
    assert outcome(
        cedar(tmp_path, f"permit(principal, action, resource) unless {{ {condition} }};"),
        [OPEN],
        viewer,
    )[0] == [DENIED]


def test_a_policy_may_be_a_single_file(tmp_path: Path):
    (tmp_path / "one.cedar").write_text(ANALYSTS, encoding="utf-8")
    assert outcome(PolicyGuard(CedarService(tmp_path / "one.cedar")))[0][:2] == [None, None]


def user(name: str, *groups: str) -> dict[str, Any]:
    parents = [{"type": "Group", "id": group} for group in groups]
    return {"uid": {"type": "User", "id": name}, "attrs": {}, "parents": parents}


def test_entities_of_the_project_add_what_the_credential_does_not_say(tmp_path: Path):
    text = 'permit(principal in Group::"staff", action, resource);'
    group = {"uid": {"type": "Group", "id": "staff"}, "attrs": {}, "parents": []}
    assert outcome(cedar(tmp_path, text))[0][:2] == [DENIED, DENIED]
    known = json.dumps([user("ana", "staff"), group])
    assert outcome(cedar(tmp_path, text, entities=known))[0][:2] == [None, None]


ANYONE = "permit(principal, action, resource);\n"


@pytest.mark.parametrize(
    ("text", "files", "failure"),
    [
        (None, {}, "no_policy"),
        ("  \n", {}, "no_policy"),
        ("permit(principal, action", {}, "invalid_policy"),
        (ANYONE + "permit(oops);", {}, "invalid_policy"),
        (
            ANYONE + 'forbid(principal, action, resource) when { resource.sensitivty == "x" };',
            {},
            "invalid_policy",
        ),
        (ANYONE + "forbid(principal is Robot, action, resource);", {}, "invalid_policy"),
        (ANYONE, {"schema": "entity ;"}, "invalid_policy"),
        (
            ANYONE,
            {
                "schema": (
                    "entity User; entity Label; action write appliesTo "
                    "{principal: User, resource: Label};"
                )
            },
            None,
        ),
        (ANYONE, {"entities": json.dumps([user("bo")])}, "unknown_entity"),
        (ANYONE, {"entities": "{"}, "invalid_entities"),
        (ANYONE, {"entities": "{}"}, "unknown_entity"),
        (ANYONE, {"entities": '[{"uid": "ana"}]'}, "invalid_entities"),
        (
            ANYONE,
            {"entities": json.dumps([user("ana"), {"uid": {"type": "Robot", "id": "1"}}])},
            "invalid_entities",
        ),
        (
            ANYONE,
            {"entities": json.dumps([{**user("ana"), "attrs": {"level": 9}}])},
            "invalid_entities",
        ),
        (ANYONE, {"entities": json.dumps([{**user("ana"), "parents": 7}])}, "service_error"),
    ],
)
def test_whatever_is_wrong_with_cedar_files_denies_everything(
    text: str | None, files: dict[str, str], failure: str | None, tmp_path: Path
):
    codes, decision = outcome(cedar(tmp_path, text, **files))
    assert codes == [DENIED, DENIED, Exclusion.WRONG_TENANT]
    assert decision.denied == 2
    if failure is not None:
        assert decision.failure == failure


def test_an_allow_with_an_evaluation_error_denies(tmp_path: Path):
    """Cedar answers Allow although a policy could not be evaluated; that one might have been a
    forbid.
    """
    overflow = (
        "forbid(principal, action, resource) when { "
        "resource.trust_level + 9223372036854775807 > 0 };"
    )
    codes, decision = outcome(cedar(tmp_path, ANYONE + overflow))
    assert (codes[:2], decision.failure) == ([DENIED, DENIED], None)


def test_files_that_cannot_be_read_deny(tmp_path: Path):
    assert (
        outcome(PolicyGuard(CedarService(tmp_path / "none.cedar")))[1].failure
        == "unreadable_policy"
    )
    (tmp_path / "bad.cedar").write_bytes(b"\xff\xfe")
    assert (
        outcome(PolicyGuard(CedarService(tmp_path / "bad.cedar")))[1].failure == "unreadable_policy"
    )


def test_a_changed_file_counts_for_the_next_question(tmp_path: Path):
    guard = cedar(tmp_path, ANYONE)
    first = outcome(guard)
    (tmp_path / "rules.cedar").write_text(NO_HR, encoding="utf-8")
    second = outcome(guard)
    assert (first[0][:2], second[0][:2]) == ([None, None], [DENIED, DENIED])
    assert first[1].policy_version != second[1].policy_version
    assert first[1].decision_id != second[1].decision_id


# --- HTTP


class Server:
    """A policy service on this machine that does what the test says."""

    def __init__(self) -> None:
        self.questions: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []
        self.answer: Callable[[dict[str, Any]], Any] = lambda question: decided(question)
        self.status = 200
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.questions.append(question)
                outer.tokens.append(self.headers["authorization"])
                answer = outer.answer(question)
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(outer.status)
                self.send_header("content-length", str(len(content)))
                if outer.status == 307:
                    self.send_header("location", outer.url)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                return

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that has gone is what some of these tests are about."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/decide"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


def decided(
    question: dict[str, Any], allows: Callable[[dict[str, Any]], bool] = lambda _: True, **more: Any
):
    decisions = {one["id"]: "allow" if allows(one) else "deny" for one in question["labels"]}
    whole = {
        "protocol": PROTOCOL,
        "batch_id": question["batch_id"],
        "policy_version": "7",
        "decisions": decisions,
    }
    return {**whole, "decision_id": "d-42", **more}


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def service(server: Server) -> Iterator[HttpService]:
    made = HttpService(server.url, token=SecretStr("s3cret"), timeout_seconds=10)
    yield made
    made.close()


def test_an_http_service_decides_about_labels(server: Server, service: HttpService):
    server.answer = lambda question: decided(question, lambda one: "hr" not in one["groups"])
    codes, decision = outcome(PolicyGuard(service))
    assert codes == [None, DENIED, Exclusion.WRONG_TENANT]
    assert (decision.service, decision.policy_version, decision.decision_id) == (
        "http",
        "7",
        "d-42",
    )
    (question,) = server.questions
    assert question["protocol"] == PROTOCOL
    assert question["viewer"]["principal"] == "ana"
    assert [one["groups"] for one in question["labels"]] == [["*"], ["analysts", "hr"]]
    assert server.tokens == ["Bearer s3cret"]
    assert "s3cret" not in repr(vars(service))


def without(question: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in decided(question).items() if key not in keys}


def some(question: dict[str, Any], **decisions: str) -> dict[str, Any]:
    return decided(question, decisions=decisions)


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "nothing": (lambda _: b"", "malformed_answer"),
    "no JSON": (lambda _: b"<html>", "malformed_answer"),
    "half JSON": (lambda q: json.dumps(decided(q)).encode()[:-9], "malformed_answer"),
    "not UTF-8": (lambda _: b"\xff\xfe", "malformed_answer"),
    "a list": (lambda _: [], "malformed_answer"),
    "just yes": (lambda _: True, "malformed_answer"),
    "deep": (lambda _: b"[" * 100_000, "malformed_answer"),
    "another protocol": (lambda q: decided(q, protocol="ctx.policy.v2"), "malformed_answer"),
    "no protocol": (lambda q: without(q, "protocol"), "malformed_answer"),
    "no version": (lambda q: without(q, "policy_version"), "malformed_answer"),
    "empty version": (lambda q: decided(q, policy_version=""), "malformed_answer"),
    "number as version": (lambda q: decided(q, policy_version=7), "malformed_answer"),
    "no decisions": (lambda q: without(q, "decisions"), "malformed_answer"),
    "null decisions": (lambda q: decided(q, decisions=None), "malformed_answer"),
    "list of decisions": (lambda q: decided(q, decisions=["allow", "allow"]), "malformed_answer"),
    "true as decision": (
        lambda q: some(q, **{"label-0": True, "label-1": True}),
        "malformed_answer",
    ),
    "Allow as decision": (
        lambda q: some(q, **{"label-0": "Allow", "label-1": "allow"}),
        "malformed_answer",
    ),
    "no batch": (lambda q: without(q, "batch_id"), "malformed_answer"),
    "another batch": (lambda q: decided(q, batch_id="other"), "another_answer"),
    "too few": (lambda q: some(q, **{"label-0": "allow"}), "incomplete_answer"),
    "none": (lambda q: some(q), "incomplete_answer"),
    "too many": (
        lambda q: some(q, **{"label-0": "allow", "label-1": "allow", "label-2": "allow"}),
        "incomplete_answer",
    ),
    "other names": (
        lambda q: some(q, **{"label-1": "allow", "label-9": "allow"}),
        "incomplete_answer",
    ),
    "a name twice": (
        lambda q: (
            json.dumps(decided(q))
            .replace('"label-0": "allow"', '"label-0": "deny", "label-0": "allow"')
            .encode()
        ),
        "incomplete_answer",
    ),
    "too large": (lambda q: decided(q, padding="x" * (5 * 1024 * 1024)), "answer_too_large"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_is_wrong_with_an_answer_denies_everything(
    fault: str, server: Server, service: HttpService
):
    server.answer, failure = FAULTS[fault]
    codes, decision = outcome(PolicyGuard(service))
    assert codes == [DENIED, DENIED, Exclusion.WRONG_TENANT]
    assert (decision.failure, decision.denied) == (failure, 2)


@pytest.mark.parametrize("status", [201, 204, 307, 401, 403, 404, 429, 500, 503])
def test_any_status_but_200_denies_everything(status: int, server: Server, service: HttpService):
    server.status = status
    if status == 204:
        server.answer = lambda _: b""
    codes, decision = outcome(PolicyGuard(service))
    assert codes[:2] == [DENIED, DENIED]
    assert decision.failure == f"status_{status}"


def test_a_service_that_is_down_denies_everything(server: Server, service: HttpService):
    server.stop()
    codes, decision = outcome(PolicyGuard(service))
    assert (codes[:2], decision.failure) == ([DENIED, DENIED], "unreachable")


def test_a_service_that_does_not_answer_in_time_denies_everything(server: Server):
    def late(question: dict[str, Any]) -> Any:
        server.over.wait(30)
        return decided(question)

    server.answer = late
    service = HttpService(server.url, token=None, timeout_seconds=0.2)
    codes, decision = outcome(PolicyGuard(service))
    service.close()
    assert (codes[:2], decision.failure) == ([DENIED, DENIED], "timeout")


# --- a project

ITEMS = [
    make_item("open", "refund rules for everybody"),
    make_item("hr", "refund rules of hr", groups=("analysts", "hr")),
]
CEDAR = '[policy_service]\nkind = "cedar"\npath = "policies/cedar"\n'


def ask(project: ContextProject, **more: Any) -> ContextPack:
    return project.assemble(
        ContextRequest(task=Task(text="refund rules"), identity=ANA, **more), at=NOW, durable=True
    )


def shown(pack: ContextPack) -> set[str]:
    return {item.item_id.partition("/")[2] for item in pack.items if item.kind == "document"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    make_project(tmp_path, ITEMS, head=CEDAR)
    (tmp_path / "policies" / "cedar").mkdir(parents=True)
    write(tmp_path, ANALYSTS)
    return tmp_path


def write(home: Path, text: str) -> None:
    (home / "policies" / "cedar" / "rules.cedar").write_text(text, encoding="utf-8")


def test_a_revoked_grant_is_gone_from_the_next_pack_by_every_path(home: Path):
    """Ours: P12 in strict mode."""
    with open_project(home) as project:
        before = ask(project)
        assert shown(before) == {"open", "hr"}
        write(home, ANALYSTS + NO_HR)
        after = ask(project)
        hidden = "document:handbook/hr"
        assert shown(after) == {"open"}
        assert after.denied == {"not_permitted": 1}
        assert "hr" not in after.model_dump_json(exclude={"identity"}).replace("through", "")
        assert [row.item_id for row in project.items(identity=ANA)] == ["document:handbook/open"]
        for look in (project.expand, project.why_not):
            with pytest.raises(NotFound):
                look(hidden, identity=ANA)
        with pytest.raises(NotPermitted):
            project.replay(before.snapshot_id, identity=ANA)
        traces = project.explain(before.snapshot_id, identity=ANA)
        assert hidden not in {trace.item_id for trace in traces}
        write(home, ANALYSTS)
        assert project.replay(before.snapshot_id, identity=ANA) == before


def test_the_decision_is_in_pack_snapshot_and_trace(home: Path):
    with open_project(home) as project:
        pack = ask(project, observations=({"observation_id": "o1", "content": "seen"},))
        (kept,) = project.snapshots(identity=ANA)
        traces = project.explain(pack.snapshot_id, identity=ANA)
    assert pack.policy_decision is not None
    assert pack.policy_decision == kept.policy_decision
    assert (
        pack.policy_decision.service,
        pack.policy_decision.asked,
        pack.policy_decision.denied,
    ) == ("cedar", 2, 0)
    told = {trace.item_id.partition(":")[0]: trace.decision_id for trace in traces}
    assert told["document"] == pack.policy_decision.decision_id
    assert told["observation"] is None


def test_without_a_service_nothing_is_recorded(tmp_path: Path):
    with open_project(make_project(tmp_path, ITEMS)) as project:
        pack = ask(project)
        assert pack.policy_decision is None
        assert {trace.decision_id for trace in project.explain(pack.snapshot_id, identity=ANA)} == {
            None
        }


def test_a_broken_policy_shows_nothing_and_says_so(home: Path):
    write(home, "permit(")
    with open_project(home) as project:
        pack = ask(project)
        assert shown(pack) == set()
        assert pack.denied == {"not_permitted": 2}
        (warning,) = [
            warning for warning in pack.warnings if warning.code == "policy_service_failed"
        ]
        assert "invalid_policy" in warning.message
        assert project.items(identity=ANA) == ()
        with pytest.raises(GateFailed):
            ask(project, required_types=("document",))


def test_the_doctor_says_whether_the_service_answers(home: Path):
    (check,) = [check for check in diagnose(home).checks if check.name == "policy service"]
    assert (check.state, check.message[:13]) == ("ok", "cedar answers")
    write(home, "permit(")
    (check,) = [check for check in diagnose(home).checks if check.name == "policy service"]
    assert (check.state, check.code, check.exit_code) == ("fail", "policy_service_failed", 7)
    assert "invalid_policy" in check.message


def test_a_service_narrows_and_never_lets_in_what_the_labels_deny(home: Path):
    write(home, ANYONE)
    bo = Identity(principal="bo", tenant="acme", groups=("sales",))
    with open_project(home) as project:
        rows = project.items(identity=bo)
        assert [row.item_id for row in rows] == ["document:handbook/open"]
        assert project.items(identity=Identity(principal="x", tenant="globex")) == ()


def test_a_project_asks_its_http_service_once_for_each_pack(server: Server, tmp_path: Path):
    head = (
        f'[policy_service]\nkind = "http"\nurl = "{server.url}"\ntoken '
        '= "s3cret"\ntimeout_ms = 10000\n'
    )
    with open_project(make_project(tmp_path, ITEMS, head=head)) as project:
        assert shown(ask(project)) == {"open", "hr"}
        assert len(server.questions) == 1
        server.answer = lambda question: decided(
            question, lambda one: "hr" not in one["groups"], policy_version="8"
        )
        pack = ask(project)
        assert shown(pack) == {"open"}
        assert len(server.questions) == 2
        server.status = 500
        assert shown(ask(project)) == set()
        rows = load_config(tmp_path).rows()
    assert "s3cret" not in str(rows)
    assert not any("handbook" in json.dumps(question) for question in server.questions)


def test_cached_mode_asks_again_only_for_what_is_new(server: Server, tmp_path: Path):
    head = (
        f'[policy_service]\nkind = "http"\nurl = "{server.url}"\nmode '
        '= "cached"\ntimeout_ms = 10000\n'
    )
    with open_project(make_project(tmp_path, ITEMS, head=head)) as project:
        assert shown(ask(project)) == shown(ask(project)) == {"open", "hr"}
        assert len(server.questions) == 1


@pytest.mark.parametrize(
    "head",
    [
        'kind = "http"\n',
        'kind = "cedar"\n',
        'kind = "http"\nurl = "http://policy.example/decide"\n',
        'kind = "http"\nurl = "ftp://127.0.0.1/"\n',
        'kind = "casbin"\n',
        'kind = "cedar"\npath = "p"\nmode = "cached"\ncache_seconds = 11\n',
        'kind = "cedar"\npath = "p"\ntimeout_ms = 0\n',
    ],
)
def test_a_service_that_cannot_be_meant_is_refused(head: str, tmp_path: Path):
    write_config(tmp_path, {}, f"[policy_service]\n{head}")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert caught.value.where.startswith("ctx.toml:")


def test_what_a_guard_makes_of_codes_is_a_copy():
    codes = label_codes(LABELS, VIEWER)
    kept = codes.copy()
    PolicyGuard(Rules(lambda _: False)).narrow(LABELS, VIEWER, codes)
    assert np.array_equal(codes, kept)
