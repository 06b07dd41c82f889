"""P10: nobody sees another's item, by any path. Every item carries marks; every output is searched
for them.

Who may see what is computed here, in plain Python, from the fields of the items and the list of
events.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.contracts import (
    ContextItem,
    ContextPack,
    ContextRequest,
    Identity,
    ItemKind,
    Message,
    Observation,
    Sensitivity,
    Task,
    Trust,
)
from ctx_pipeline.contracts.render import FORMATS
from ctx_pipeline.errors import CtxError
from ctx_pipeline.project import ContextProject
from ctx_pipeline.text import canonical_json
from testing.artifacts import (
    NOW,
    append_overlay,
    build_index,
    make_item,
    make_project,
    open_project,
    overlay,
)

REQUESTS = 2_000
DAY = timedelta(days=1)

TENANTS = ("acme", "acme-corp", "globex")
PRINCIPALS = ("ana", "an", "bo", "安娜")
GROUPS = ("analysts", "finance", "fin", "support")
CLEARANCES = tuple(Sensitivity)
ENVIRONMENTS = (None, "prod", "dev")
TASK_TYPES = ("general", "analysis", "support")
ROLES = (None, "planner", "writer")
TRUSTS = tuple(Trust)
FLOOR = Trust.RETRIEVED_EXTERNAL
MARK = re.compile(r"\b[cti]q[0-9a-f]{12}")
"""`c` content or synonym, `t` title, `i` id."""

SOURCES: dict[str, dict[str, Any]] = {
    "handbook": {},
    "rules": {"when_to_load": "always"},
    "notes": {"when_to_load": "prefetch"},
    "lazy": {"when_to_load": "just_in_time"},
    "asked": {"when_to_load": "on_request"},
    "request": {},
}
POLICY = f'[policy]\ntrust_floor = "{FLOOR.value}"\nmin_relevance = 0.05\n'
"""Source `request` has the name under which what comes with a request is kept."""


@dataclass
class Secret:
    """One item version, its marks, and what has happened to it so far."""

    item: ContextItem
    content_mark: str
    title_mark: str
    id_mark: str
    words: str
    state: str = "live"
    retired: bool = False
    retired_at: datetime | None = None
    replaced_at: datetime | None = None
    marked_at: datetime | None = None
    revoked: list[tuple[str | None, str | None]] = field(
        default_factory=list[tuple[str | None, str | None]]
    )

    @property
    def tenant(self) -> str:
        return self.item.scope.tenant or ""


@dataclass(frozen=True)
class Who:
    """Somebody, in the role and for the task that a path knows of."""

    identity: Identity
    task_type: str | None = None
    role: str | None = None


def may_name(secret: Secret, who: Who) -> bool:
    """Whether this identity may know at all that the item version exists."""
    item, me = secret.item, who.identity
    scope = item.scope
    if not scope.tenant or scope.tenant != me.tenant or secret.state == "forgotten":
        return False
    for principal, group in secret.revoked:
        if (
            (principal is None and group is None)
            or principal == me.principal
            or group in me.groups
            or group == "*"
        ):
            return False
    if (
        me.principal not in scope.principals
        and "*" not in scope.groups
        and not set(scope.groups) & set(me.groups)
    ):
        return False
    if item.sensitivity is None or CLEARANCES.index(item.sensitivity) > CLEARANCES.index(
        me.clearance
    ):
        return False
    if scope.environment is not None and scope.environment != me.environment:
        return False
    if (
        scope.task_types
        and who.task_type not in scope.task_types
        and me.purpose not in scope.task_types
    ):
        return False
    if scope.agent_visibility and who.role not in scope.agent_visibility:
        return False
    return TRUSTS.index(item.trust) <= TRUSTS.index(FLOOR)


def may_read(
    secret: Secret,
    who: Who,
    chains: dict[tuple[str, str], list[Secret]],
    moment: datetime,
    past: bool,
) -> bool:
    """Whether title and content may be shown; `past` says that the moment was
    asked for by `as_of`.
    """
    item = secret.item
    if not may_name(secret, who) or secret.state == "quarantined":
        return False
    if (
        secret.retired
        if not past
        else secret.retired_at is not None and secret.retired_at <= moment
    ):
        return False
    chain = chains[secret.tenant, item.item_id]
    before, after = chain[: chain.index(secret)], chain[chain.index(secret) + 1 :]
    if begins(secret, past and any(older.state != "forgotten" for older in before)) > moment:
        return False
    if item.valid_until is not None and item.valid_until <= moment:
        return False
    followed = any(later.state != "forgotten" for later in after)
    marks = (secret.replaced_at, None if followed else secret.marked_at)
    if any(mark is not None and mark <= moment for mark in marks):
        return False
    for later in after:
        gone = (
            later.retired
            if not past
            else later.retired_at is not None and later.retired_at <= moment
        )
        if begins(later, past) <= moment and not gone and later.state != "forgotten":
            return False
    return True


def begins(secret: Secret, recorded: bool) -> datetime:
    """When a version begins; one that does not say so counts from when it was recorded, or else
    since ever.
    """
    return secret.item.valid_from or (NOW if recorded else datetime.min.replace(tzinfo=UTC))


class World:
    """All secrets, and the requests of everybody."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.secrets: list[Secret] = []
        for number in range(150):
            self._add_item(number)
        self._add_namesakes()
        self.chains: dict[tuple[str, str], list[Secret]] = {}
        for secret in self.secrets:
            self.chains.setdefault((secret.tenant, secret.item.item_id), []).append(secret)
        self.by_mark: dict[str, list[Secret]] = {}
        for secret in self.secrets:
            for mark in (secret.content_mark, secret.title_mark, secret.id_mark):
                self.by_mark.setdefault(mark, []).append(secret)

    def _mark(self, kind: str) -> str:
        return f"{kind}q{self.random.getrandbits(48):012x}"

    def _add_item(self, number: int) -> None:
        pick = self.random.choice
        kind = pick(
            (ItemKind.DOCUMENT,) * 4
            + (
                ItemKind.MEMORY,
                ItemKind.MEMORY,
                ItemKind.METRIC,
                ItemKind.METRIC,
                ItemKind.SCHEMA,
                ItemKind.SCHEMA,
            )
            + (
                ItemKind.POLICY,
                ItemKind.INSTRUCTION,
                ItemKind.GLOSSARY,
                ItemKind.TOOL,
                ItemKind.SKILL,
            )
        )
        id_mark = self._mark("i")
        name = f"{kind.value}-{number}-{id_mark}"
        source = pick(tuple(SOURCES))
        versions = pick((1, 1, 1, 2, 3))
        starts = sorted(
            (pick((None, -40, -20, -1, 0, 1, 30)) for _ in range(versions)),
            key=lambda day: day or -99,
        )
        needs = [
            f"schema:{s.item.provenance.source_id}/{s.item.item_id.partition('/')[2]}"
            for s in self.secrets
            if s.item.kind is ItemKind.SCHEMA
        ]
        for version, start in enumerate(starts, start=1):
            self._add_version(kind, name, source, id_mark, str(version), start, needs)

    def _add_version(
        self,
        kind: ItemKind,
        name: str,
        source: str,
        id_mark: str,
        version: str,
        start: int | None,
        needs: list[str],
    ) -> None:
        pick, some = self.random.choice, self.random.sample
        content_mark, title_mark = self._mark("c"), self._mark("t")
        words = (
            f"zebra{self.random.randrange(60)} "
            f"{pick(('refund', 'order', 'region', '退款', '订单'))}"
        )
        content = f"{words} {content_mark} is the rule. " * pick((1, 1, 1, 20))
        if kind is ItemKind.TOOL:
            content = canonical_json(
                {"name": name, "description": content, "input_schema": {}, "annotations": {}}
            )
        groups, principals = pick(
            (
                (("*",), ()),
                (tuple(some(GROUPS, 2)), ()),
                ((), tuple(some(PRINCIPALS, 2))),
                (("finance",), ("ana",)),
                ((), ()),
            )
        )
        item = make_item(
            name,
            content,
            kind=kind,
            source=source,
            version=version,
            title=f"About {words} {title_mark}",
            tenant=pick((*TENANTS, *TENANTS, None))
            if version == "1"
            else self.secrets[-1].item.scope.tenant,
            groups=groups,
            principals=principals,
            sensitivity=pick((*CLEARANCES, Sensitivity.INTERNAL, Sensitivity.PUBLIC, None)),
            environment=pick((None, None, None, "prod", "dev")),
            task_types=pick(((), (), (), ("analysis",), ("support", "audit"))),
            agent_visibility=pick(((), (), (), ("planner",), ("writer",))),
            trust=pick(TRUSTS),
            authority=pick((40, 60, 90)),
            subject=pick((None, "metric:gmv", "metric:refunds")),
            synonyms=(f"other name {content_mark}",),
            valid_from=None if start is None else NOW + start * DAY,
            valid_until=pick((None, None, None, NOW + 50 * DAY, NOW, NOW - DAY)),
            depends_on=tuple(some(needs, min(len(needs), pick((0, 1, 3))))),
        )
        self.secrets.append(Secret(item, content_mark, title_mark, id_mark, words))

    def _add_namesakes(self) -> None:
        """The same ids in every tenant, open to all of it."""
        for number in range(6):
            for tenant in TENANTS:
                content_mark, title_mark = self._mark("c"), self._mark("t")
                item = make_item(
                    f"shared-{number}",
                    f"zebra{number} refund {content_mark}",
                    title=title_mark,
                    tenant=tenant,
                )
                self.secrets.append(
                    Secret(item, content_mark, title_mark, f"shared-{number}", f"zebra{number}")
                )

    # --- what happens

    def happen(self, home: Path, count: int) -> None:
        """Let events befall random items, and keep them in mind."""
        codes = (
            "retired",
            "quarantined",
            "forgotten",
            "revoked",
            "superseded",
            "released",
            "restored",
        )
        for _ in range(count):
            secret = self.random.choice(self.secrets)
            if not secret.tenant:
                continue
            chain = self.chains[secret.tenant, secret.item.item_id]
            whole = self.random.random() < 0.6
            version = None if whole else secret.item.version
            code = self.random.choice(codes)
            more: dict[str, Any] = {}
            if code == "revoked":
                more = self.random.choice(
                    (
                        {},
                        {"principal": self.random.choice(PRINCIPALS)},
                        {"group": self.random.choice(GROUPS)},
                        {"group": "*"},
                    )
                )
            append_overlay(
                home,
                overlay(
                    code,
                    secret.item.item_id,
                    tenant=secret.tenant,
                    version=version,
                    at=NOW - DAY,
                    **more,
                ),
            )
            for touched in chain if whole else [secret]:
                self._apply(touched, code, more, whole=whole)

    def _apply(self, secret: Secret, code: str, more: dict[str, Any], *, whole: bool) -> None:
        match code:
            case "retired":
                secret.retired, secret.retired_at = True, NOW - DAY
            case "restored":
                secret.retired, secret.retired_at = False, None
                # A version that is brought back by name is in force again, whatever was to replace
                # it.
                if not whole:
                    secret.replaced_at = secret.marked_at = None
            case "superseded" if whole:
                secret.replaced_at = NOW - DAY
            case "superseded":
                secret.marked_at = NOW - DAY
            case "revoked":
                secret.revoked.append((more.get("principal"), more.get("group")))
            case _ if secret.state != "forgotten":
                secret.state = {"released": "live"}.get(code, code)
            case _:
                pass

    # --- who asks for what

    def identity(self) -> Identity:
        pick = self.random.choice
        return Identity(
            principal=pick(PRINCIPALS),
            tenant=pick(TENANTS),
            groups=tuple(self.random.sample(GROUPS, self.random.randrange(3))),
            clearance=pick(CLEARANCES),
            environment=pick(ENVIRONMENTS),
            purpose=pick((None, None, "audit", "analysis")),
        )

    def request(self, identity: Identity) -> ContextRequest:
        pick = self.random.choice
        near = [pick(self.secrets).words for _ in range(pick((1, 1, 3)))]
        return ContextRequest(
            run_id=f"run-{self.random.getrandbits(32)}",
            identity=identity,
            agent_role=pick(ROLES),
            task=Task(
                type=pick(TASK_TYPES),
                text=f"{' '.join(near)} {pick(('rule', 'is the rule', 'metric gmv', '规则'))}",
            ),
            token_budget=pick((1, 60, 200, 400, 800, 3_000, 20_000)),
            as_of=pick(
                (None, None, None, NOW - 30 * DAY, NOW - 2 * DAY, NOW + 2 * DAY, NOW + 60 * DAY)
            ),
            required_types=pick(((), (), ("metric",), ("memory", "policy"), ("code",))),
            messages=pick(((), (Message(role="user", content="about refunds"),))),
            observations=pick(((), (Observation(observation_id="1", content="x" * 9_000),))),
        )

    def guess(self) -> str:
        """An item id that exists for somebody, or nearly does."""
        item = self.random.choice(self.secrets).item
        kind, _, rest = item.item_id.partition(":")
        tricks: tuple[Callable[[], str], ...] = (
            lambda: item.item_id,
            lambda: item.item_id,
            lambda: item.item_id,
            lambda: item.item_id[:-1],
            lambda: f"{item.item_id}\x00",
            lambda: f"{item.item_id[:-3]}\x00{item.item_id[-3:]}",
            lambda: f"{kind}:*/{rest.partition('/')[2]}",
            lambda: f"{kind}:../{item.scope.tenant}/{rest}",
            lambda: f"{item.scope.tenant}\t{item.item_id}",
            lambda: "",
            lambda: "%",
            lambda: "\ud800",
            lambda: item.title,
        )
        return self.random.choice(tricks)()


class Watch:
    """Searches outputs for marks and says which secret got out, on which path."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: set[str] = set()
        self.leaks: list[str] = []

    def check(
        self, path: str, output: str, allowed: Callable[[str, Secret], bool], typed: str = ""
    ) -> None:
        """Every mark in `output` must belong to a version for which `allowed(kind of mark, secret)`
        holds.
        """
        echoed = set(MARK.findall(typed))
        for mark in set(MARK.findall(output)) - echoed:
            self.seen.add(path)
            if not any(allowed(mark[0], secret) for secret in self.world.by_mark[mark]):
                self.leaks.append(
                    f"{path}: {mark[0]} of {self.world.by_mark[mark][0].item.item_id}"
                )


def words_of(error: CtxError) -> str:
    return (
        f"{error} {error!r} {canonical_json(error.as_dict())} "
        f"{error.args} {getattr(error, 'trace_id', '')}"
    )


def dumped(values: Iterable[Any]) -> str:
    return " ".join(
        value.model_dump_json() if hasattr(value, "model_dump_json") else repr(value)
        for value in values
    )


def renders(pack: ContextPack) -> str:
    forms = [json.dumps(pack.render(form), ensure_ascii=False) for form in FORMATS]
    return "\n".join([pack.model_dump_json(), repr(pack), *forms])


class Session:
    """Sends requests and looks at everything that comes back."""

    def __init__(self, world: World, project: ContextProject, watch: Watch) -> None:
        self.world = world
        self.project = project
        self.watch = watch
        self.packs: list[tuple[ContextPack, ContextRequest]] = []

    def call(
        self,
        path: str,
        call: Callable[[], str],
        allowed: Callable[[str, Secret], bool],
        typed: str = "",
    ) -> None:
        try:
            output = call()
        except CtxError as error:
            self.watch.check(f"{path} error", words_of(error), lambda _kind, _secret: False, typed)
        else:
            self.watch.check(path, output, allowed, typed)

    def assemble(self, request: ContextRequest) -> None:
        who = Who(request.identity or self.world.identity(), request.task.type, request.agent_role)

        def read(_kind: str, secret: Secret) -> bool:
            return may_read(
                secret, who, self.world.chains, request.as_of or NOW, request.as_of is not None
            )

        def run() -> str:
            pack = self.project.assemble(request, at=NOW)
            self.packs.append((pack, request))
            return renders(pack)

        try:
            output = run()
        except CtxError as error:
            self.watch.check("assemble error", words_of(error), read)
            snapshot_id = getattr(error, "trace_id", None)
        else:
            self.watch.check("assemble", output, read)
            snapshot_id = self.packs[-1][0].snapshot_id
        if snapshot_id is not None:
            self.explain(snapshot_id, request, read)

    def explain(
        self, snapshot_id: str, request: ContextRequest, read: Callable[[str, Secret], bool]
    ) -> None:
        identity = request.identity
        assert identity is not None
        who = Who(identity, request.task.type, request.agent_role)

        def named(kind: str, secret: Secret) -> bool:
            return (kind == "t" and read(kind, secret)) or (kind == "i" and may_name(secret, who))

        self.call("explain", lambda: dumped(self.project.explain(snapshot_id, identity)), named)
        guess = self.world.guess()
        self.call(
            "why", lambda: dumped(self.project.why(snapshot_id, guess, identity)), named, guess
        )

    def look_around(self, identity: Identity) -> None:
        who = Who(identity)
        guess = self.world.guess()
        as_of = self.world.random.choice((None, None, NOW - 30 * DAY, NOW + 60 * DAY))

        def read(_kind: str, secret: Secret) -> bool:
            return may_read(secret, who, self.world.chains, as_of or NOW, as_of is not None)

        def named(kind: str, secret: Secret) -> bool:
            return kind == "i" and may_name(secret, who)

        project, level = (
            self.project,
            self.world.random.choice(("full", "compact", "pointer", "half")),
        )
        when: dict[str, Any] = {"identity": identity, "at": NOW, "as_of": as_of}
        self.call("expand", lambda: dumped([project.expand(guess, level, **when)]), read, guess)
        self.call("why_not", lambda: dumped(project.why_not(guess, **when)), named, guess)
        self.call(
            "history", lambda: dumped(project.history(guess, identity=identity)), named, guess
        )
        if self.world.random.random() < 0.2:
            kind = self.world.random.choice((None, "metric", "document", "tool"))
            self.call("items", lambda: dumped(project.items(kind=kind, limit=1_000, **when)), read)

    def look_back(self, identity: Identity) -> None:
        """Snapshots of one's own and of others, with the rights of today."""
        if not self.packs:
            return
        pack, request = self.world.random.choice(self.packs)
        other, _ = self.world.random.choice(self.packs[-40:])
        mine, project = request.identity, self.project
        assert mine is not None
        for asking in (identity, mine):
            who = Who(asking, request.task.type, request.agent_role)

            def named(kind: str, secret: Secret, who: Who = who) -> bool:
                return may_name(secret, who)

            def ids(kind: str, secret: Secret, who: Who = who) -> bool:
                return kind == "i" and may_name(secret, who)

            def any_role(kind: str, secret: Secret, asking: Identity = asking) -> bool:
                whos = (Who(asking, task, role) for task in TASK_TYPES for role in ROLES)
                return kind == "i" and any(may_name(secret, who) for who in whos)

            def titles(kind: str, secret: Secret, who: Who = who) -> bool:
                return kind in "ti" and may_name(secret, who)

            self.call(
                "replay",
                lambda who=who: renders(project.replay(pack.snapshot_id, who.identity)),
                named,
            )
            self.call(
                "explain later",
                lambda who=who: dumped(project.explain(pack.snapshot_id, who.identity)),
                titles,
            )
            self.call(
                "diff",
                lambda who=who: dumped(
                    [project.diff(pack.snapshot_id, other.snapshot_id, who.identity)]
                ),
                any_role,
            )
            self.call(
                "snapshots",
                lambda who=who: dumped(project.snapshots(identity=who.identity, limit=3)),
                any_role,
            )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_output_holds_a_mark_of_an_item_that_the_caller_may_not_see(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    """Ours: P10, over identities, clocks, budgets, ids and every path, before and after events and
    rebuilds.
    """
    world = World(seed=20_261_130)
    home = make_project(tmp_path, [secret.item for secret in world.secrets], SOURCES, POLICY)
    watch = Watch(world)
    with open_project(home) as project:
        session = Session(world, project, watch)
        for number in range(REQUESTS):
            if number % 250 == 249:
                world.happen(home, 25)
            if number in (REQUESTS // 3, REQUESTS * 2 // 3):
                build_index(home)
            identity = world.identity()
            session.assemble(world.request(identity))
            session.look_around(identity)
            if number % 4 == 0:
                session.look_back(identity)
            if len(watch.leaks) > 20:
                break
        project.status(at=NOW)
    assert not watch.leaks, "\n".join(watch.leaks)
    printed = capfd.readouterr()
    assert MARK.findall(printed.out + printed.err + caplog.text) == []
    # Each path has shown marks of its caller's own, so that silence would have been noticed.
    assert watch.seen >= {
        "assemble",
        "explain",
        "explain later",
        "why",
        "expand",
        "items",
        "replay",
        "diff",
        "snapshots",
    }
