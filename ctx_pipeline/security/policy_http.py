"""A policy service over HTTP: one POST of JSON for each question, and a whole answer or none.

The question is `{protocol, batch_id, viewer, labels: [{id, ...}]}`. The answer is
`{protocol, batch_id, policy_version, decision_id?, decisions: {id: "allow" |
"deny"}}`, one decision for each label.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from ctx_pipeline.contracts.base import Contract
from ctx_pipeline.security.policy_service import (
    DecisionBatch,
    Decisions,
    PolicyServiceError,
    label_facts,
    viewer_facts,
)
from ctx_pipeline.text import canonical_json, short_hash

if TYPE_CHECKING:
    import httpx2
    from pydantic import SecretStr

PROTOCOL = "ctx.policy.v1"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""A decision takes about 20 bytes."""


class PolicyAnswer(Contract):
    """What a service answers. Fields that it adds are ignored; everything that is named here is
    exact.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, strict=True)

    protocol: Literal["ctx.policy.v1"]
    batch_id: str
    """That of the question: the answer to another one is none."""
    policy_version: Annotated[str, Field(min_length=1, max_length=256)]
    decision_id: Annotated[str, Field(max_length=256)] = ""
    decisions: dict[str, Literal["allow", "deny"]]


class HttpService:
    """A service that answers at one address. Redirects, proxies and compressed answers are not
    taken.
    """

    name = "http"

    def __init__(self, url: str, *, token: SecretStr | None, timeout_seconds: float) -> None:
        self._url = url
        self._token = token
        self._timeout_seconds = timeout_seconds
        self._client: httpx2.Client | None = None
        self._version = ""
        self._lock = threading.Lock()

    def version(self) -> str:
        """Return the version of the last answer."""
        return self._version

    def decide(self, batch: DecisionBatch) -> Decisions:
        """Ask about every label and return the whole answer."""
        question = _question(batch)
        content = self._post(canonical_json(question).encode("utf-8"))
        try:
            answer = PolicyAnswer.model_validate_json(content)
        except ValidationError:
            raise PolicyServiceError("malformed_answer") from None
        names = [label["id"] for label in question["labels"]]
        if answer.batch_id != question["batch_id"]:
            raise PolicyServiceError("another_answer")
        if _repeats(content) or set(answer.decisions) != set(names):
            raise PolicyServiceError("incomplete_answer")
        self._version = answer.policy_version
        allowed = tuple(answer.decisions[name] == "allow" for name in names)
        return Decisions(allowed, answer.policy_version, answer.decision_id)

    def _post(self, body: bytes) -> bytes:
        """Return the answer's bytes.

        The library's time limit is one for each step, which a server that sends a byte at a time
        never reaches. So the question is sent by a thread of its own, which ends when its
        connection is closed.
        """
        client = self._opened()
        outcome: list[bytes | PolicyServiceError] = []
        thread = threading.Thread(
            target=lambda: outcome.append(self._exchange(client, body)),
            name="ctx-policy",
            daemon=True,
        )
        thread.start()
        thread.join(self._timeout_seconds)
        if not outcome:
            self.close()
            raise PolicyServiceError("timeout")
        if isinstance(outcome[0], PolicyServiceError):
            raise outcome[0]
        return outcome[0]

    def _exchange(self, client: httpx2.Client, body: bytes) -> bytes | PolicyServiceError:
        import httpx2

        content = bytearray()
        try:
            with client.stream("POST", self._url, content=body, headers=self._headers()) as answer:
                if answer.status_code != 200:
                    return PolicyServiceError(f"status_{answer.status_code}")
                for part in answer.iter_raw():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        return PolicyServiceError("answer_too_large")
        except httpx2.TimeoutException:
            return PolicyServiceError("timeout")
        except Exception:  # whatever breaks, the waiting thread has to hear of it
            return PolicyServiceError("unreachable")
        return bytes(content)

    def _headers(self) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",
        }
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token.get_secret_value()}"
        return headers

    def _opened(self) -> httpx2.Client:
        import httpx2

        with self._lock:
            if self._client is None:
                self._client = httpx2.Client(
                    timeout=self._timeout_seconds, follow_redirects=False, trust_env=False
                )
            return self._client

    def close(self) -> None:
        """Close the connections. Idempotent; a question after it opens new ones."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None


def _question(batch: DecisionBatch) -> dict[str, Any]:
    labels = [
        {"id": f"label-{number}", **label_facts(label)} for number, label in enumerate(batch.labels)
    ]
    question: dict[str, Any] = {
        "protocol": PROTOCOL,
        "viewer": viewer_facts(batch.viewer),
        "labels": labels,
    }
    return {**question, "batch_id": short_hash(canonical_json(question), 32)}


def _repeats(content: bytes) -> bool:
    """Whether an object of the answer names a key twice: readers of JSON differ on which counts."""
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        made = dict(pairs)
        repeated = repeated or len(made) != len(pairs)
        return made

    json.loads(content, object_pairs_hook=look)
    return repeated
