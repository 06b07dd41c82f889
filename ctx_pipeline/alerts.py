"""Failed runs, where an operator finds them: a line in `.ctx/alerts.jsonl`, and a call to the project's webhook.

An alert names ids, classes and codes. It never holds what a source, an agent or an error text said.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.telemetry import get_logger

if TYPE_CHECKING:
    from pydantic import SecretStr

FILE = "alerts.jsonl"
MAX_BYTES = 256 * 1024
"""When the file is larger, its older half goes."""
MAX_ASSETS = 20
WEBHOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One failed run."""

    run_id: str
    job: str
    assets: tuple[str, ...]
    """Assets whose step failed, at most `MAX_ASSETS`; empty when the run failed before or between steps."""
    error: str
    """Class of the first error."""
    code: str
    """Its stable code; empty when it has none."""
    at: datetime

    def as_json(self) -> dict[str, Any]:
        """Return what is written and sent."""
        return {**asdict(self), "assets": list(self.assets), "at": self.at.isoformat().replace("+00:00", "Z")}


def raise_alert(home: Path, alert: Alert, webhook: SecretStr | None = None) -> bool:
    """Write an alert down, log it and send it; a run that has one already changes nothing and gives False.

    A webhook that does not answer is logged, never an error.
    """
    from filelock import FileLock

    path = home / ".ctx" / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock"), fallback_to_soft=False):
        if any(known.run_id == alert.run_id for known in _read(path)):
            return False
        _append(path, alert)
    log = get_logger()
    log.error("run_failed", **alert.as_json())
    if webhook is not None and (problem := _post(webhook.get_secret_value(), alert)):
        log.warning("alert_not_sent", run_id=alert.run_id, problem=problem)
    return True


def newest_alerts(home: Path, limit: int = 5) -> tuple[Alert, ...]:
    """Return the last alerts of a project, newest first; a damaged line is passed over."""
    return tuple(reversed(_read(home / ".ctx" / FILE)[-limit:]))


def _append(path: Path, alert: Alert) -> None:
    line = json.dumps(alert.as_json(), ensure_ascii=False, sort_keys=True) + "\n"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        # What a killed writer left.
        lines[-1] += b"\n"
    if sum(map(len, lines)) + len(line) > MAX_BYTES:
        lines = lines[len(lines) // 2 :]
    partial = path.with_suffix(".tmp")
    with partial.open("wb") as file:
        file.writelines([*lines, line.encode("utf-8")])
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _read(path: Path) -> list[Alert]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found: list[Alert] = []
    names = {field.name for field in fields(Alert)}
    for line in lines:
        try:
            stored = {name: value for name, value in json.loads(line).items() if name in names}
            stored |= {"assets": tuple(stored["assets"]), "at": datetime.fromisoformat(stored["at"])}
            found.append(Alert(**stored))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found


def _post(url: str, alert: Alert) -> str:
    """Send an alert; return the class of what went wrong, or an empty string."""
    import httpx2

    try:
        # Without the environment: its proxies and credentials are not meant for this address.
        with httpx2.Client(timeout=WEBHOOK_SECONDS, follow_redirects=False, trust_env=False) as client:
            answer = client.post(url, json=alert.as_json())
        return "" if answer.is_success else f"status {answer.status_code}"
    except Exception as problem:  # the hook must never fail what it tells of
        return type(problem).__name__


__all__ = ["Alert", "newest_alerts", "raise_alert"]
