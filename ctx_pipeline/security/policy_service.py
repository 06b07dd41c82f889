"""What a policy service adds to the one predicate: it is asked about labels, and can only take
away.

An item is visible when the built-in rules let its label pass and the service allows it. No answer,
a wrong answer or half an answer denies everything that was asked.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ctx_pipeline.contracts import Exclusion, PolicyDecision
from ctx_pipeline.security.visibility import CODES, VISIBLE, Codes, ScopeLabel, Viewer
from ctx_pipeline.text import canonical_json, short_hash

if TYPE_CHECKING:
    pass

MAX_KNOWN = 65_536
"""Answers kept in `cached` mode; a label takes about half a kilobyte."""
_DENIED = CODES.index(Exclusion.NOT_PERMITTED) + 1


class PolicyServiceError(Exception):
    """A service gave no valid answer; `code` says why. It never reaches a caller: everything is
    denied.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class DecisionBatch:
    """One question: may this viewer read what has these labels? Items share few labels, so there is
    one each.
    """

    viewer: Viewer
    labels: tuple[ScopeLabel, ...]
    """Different from one another, each without `also`: a label that another one needs is asked
    about itself."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The whole answer to one question."""

    allowed: tuple[bool, ...]
    """In the order of the labels."""
    policy_version: str
    decision_id: str = ""
    """What the service calls its decision; empty: it has no name for it."""


class PolicyService(Protocol):
    """Somebody else's policy, as far as it is asked."""

    name: str

    def version(self) -> str:
        """Return the version of the policy as far as it is known without asking; empty when it is
        not.
        """
        ...

    def decide(self, batch: DecisionBatch) -> Decisions:
        """Answer every label of the batch.

        Raises:
            PolicyServiceError: there is no valid answer.
        """
        ...

    def close(self) -> None:
        """Release what is held. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Permission codes after a service was asked, and the record of its decision."""

    codes: Codes
    decision: PolicyDecision


class PolicyGuard:
    """Asks a service, remembers for as long as it may, and denies where there is no answer. Safe
    between threads.
    """

    def __init__(
        self,
        service: PolicyService,
        *,
        cache_seconds: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._cache_seconds = cache_seconds
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[Viewer, ScopeLabel, str], tuple[bool, float]] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Release what the service holds. Idempotent."""
        self._service.close()

    def narrow(self, labels: Sequence[ScopeLabel], viewer: Viewer, codes: Codes) -> Narrowed:
        """Return `codes` with what the service denies as `not_permitted`. What they deny already is
        not asked about.
        """
        passed_rules: list[int] = np.flatnonzero(codes == VISIBLE).tolist()
        chains = {at: _chain(labels[at]) for at in passed_rules}
        asked = tuple(dict.fromkeys(label for chain in chains.values() for label in chain))
        answer, failure = Decisions((False,) * len(asked), ""), None
        try:
            answer = self._answer(viewer, asked)
        except PolicyServiceError as error:
            failure = error.code
        except (
            Exception
        ):  # an adapter that breaks, whatever breaks in it, must not let anything pass
            failure = "service_error"
        allowed = {label for label, passed in zip(asked, answer.allowed, strict=True) if passed}
        narrowed = codes.copy()
        for at, chain in chains.items():
            if not allowed.issuperset(chain):
                narrowed[at] = _DENIED
        return Narrowed(narrowed, self._record(viewer, asked, answer, failure))

    def _record(
        self, viewer: Viewer, asked: tuple[ScopeLabel, ...], answer: Decisions, failure: str | None
    ) -> PolicyDecision:
        facts = [
            self._service.name,
            answer.policy_version,
            viewer_facts(viewer),
            [asdict(label) for label in asked],
        ]
        return PolicyDecision(
            service=self._service.name,
            policy_version=answer.policy_version,
            decision_id=answer.decision_id
            or short_hash(canonical_json([*facts, list(answer.allowed)]), 16),
            asked=len(asked),
            denied=sum(not passed for passed in answer.allowed),
            failure=failure,
        )

    def _answer(self, viewer: Viewer, asked: tuple[ScopeLabel, ...]) -> Decisions:
        if not asked:
            return Decisions((), self._service.version())
        if self._cache_seconds <= 0:
            return self._ask(viewer, asked)
        version = self._service.version()
        known = self._remembered(viewer, asked, version)
        missing = tuple(label for label in asked if label not in known)
        if missing:
            answer = self._ask(viewer, missing)
            if known and answer.policy_version != version:
                # What is known was decided by another policy.
                known, answer = {}, self._ask(viewer, asked)
                missing = asked
            self._remember(viewer, missing, answer)
            if not known:
                return answer
            known |= dict(zip(missing, answer.allowed, strict=True))
        return Decisions(tuple(known[label] for label in asked), version)

    def _ask(self, viewer: Viewer, labels: tuple[ScopeLabel, ...]) -> Decisions:
        answer = self._service.decide(DecisionBatch(viewer, labels))
        if len(answer.allowed) != len(labels) or any(
            passed not in (True, False) for passed in answer.allowed
        ):
            raise PolicyServiceError("invalid_answer")
        return answer

    def _remembered(
        self, viewer: Viewer, labels: tuple[ScopeLabel, ...], version: str
    ) -> dict[ScopeLabel, bool]:
        now = self._monotonic()
        with self._lock:
            found = {label: self._known.get((viewer, label, version)) for label in labels}
        return {
            label: entry[0]
            for label, entry in found.items()
            if entry is not None and now < entry[1]
        }

    def _remember(self, viewer: Viewer, labels: tuple[ScopeLabel, ...], answer: Decisions) -> None:
        until = self._monotonic() + self._cache_seconds
        with self._lock:
            for label, passed in zip(labels, answer.allowed, strict=True):
                key = (viewer, label, answer.policy_version)
                self._known[key] = (passed, until)
                self._known.move_to_end(key)
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)


def _chain(label: ScopeLabel) -> tuple[ScopeLabel, ...]:
    """Return a label and those that have to permit as well, each on its own."""
    found: list[ScopeLabel] = []
    following: ScopeLabel | None = label
    while following is not None:
        found.append(replace(following, also=None))
        following = following.also
    return tuple(found)


def viewer_facts(viewer: Viewer) -> dict[str, str | list[str] | None]:
    """Return what a service is told of a viewer."""
    return {
        "principal": viewer.principal,
        "tenant": viewer.tenant,
        "groups": sorted(viewer.groups),
        "clearance": viewer.clearance.value,
        "environment": viewer.environment,
        "purpose": viewer.purpose,
        "task_type": viewer.task_type,
        "agent_role": viewer.agent_role,
    }


def label_facts(label: ScopeLabel) -> dict[str, str | list[str] | None]:
    """Return what a service is told of a label; never an item's id, title or text."""
    return {
        "tenant": label.tenant,
        "principals": list(label.principals),
        "groups": list(label.groups),
        "sensitivity": label.sensitivity,
        "environment": label.environment,
        "task_types": list(label.task_types),
        "agent_visibility": list(label.agent_visibility),
        "trust": label.trust,
    }
