"""Failed runs, where an operator finds them: a line in `.ctx/alerts.jsonl`, and a call to the
project's webhook.

An alert names ids, classes and codes. It never holds what a source, an agent or an error text said.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctx_pipeline.telemetry import get_logger

if TYPE_CHECKING:
    from pydantic import SecretStr

FILE = "alerts.jsonl"
MAX_BYTES = 256 * 1024
"""When the file would be larger, its older half goes; of a larger one the end is read."""
MAX_ASSETS = 20
LOCK_SECONDS = 10.0
"""How long an alert waits for another one that is being written."""
WEBHOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One failed run."""

    run_id: str
    job: str
    assets: tuple[str, ...]
    """Assets whose step failed, at most `MAX_ASSETS`; empty when the run failed before or between
    steps.
    """
    error: str
    """Class of the first error."""
    code: str
    """Its stable code; empty when it has none."""
    at: datetime

    def as_json(self) -> dict[str, Any]:
        """Return what is written and sent."""
        return {
            **asdict(self),
            "assets": list(self.assets),
            "at": self.at.isoformat().replace("+00:00", "Z"),
        }


def raise_alert(home: Path, alert: Alert, webhook: SecretStr | None = None) -> bool:
    """Write an alert down, log it and send it; a run that has one already changes nothing and gives
    False.

    It never takes the place of the failure it tells of: a file that cannot be written, or a webhook
    that does not answer, is logged.
    """
    log = get_logger()
    try:
        if not _write(home / ".ctx" / FILE, alert):
            return False
    except OSError as refused:
        log.warning("alert_not_written", run_id=alert.run_id, problem=type(refused).__name__)
    log.error("run_failed", **alert.as_json())
    if webhook is not None and (problem := _post(webhook.get_secret_value(), alert)):
        log.warning("alert_not_sent", run_id=alert.run_id, problem=problem)
    return True


def newest_alerts(home: Path, limit: int = 5) -> tuple[Alert, ...]:
    """Return the last alerts of a project, newest first; a damaged line, or
    file, is passed over.
    """
    return tuple(reversed(_alerts(_lines(home / ".ctx" / FILE))[-limit:]))


def alerts_problem(home: Path) -> str:
    """Return why alerts can be neither read nor written, as the class of the error; empty when they
    can.
    """
    try:
        _tail(home / ".ctx" / FILE)
    except OSError as refused:
        return type(refused).__name__
    return ""


def _write(path: Path, alert: Alert) -> bool:
    """Add an alert to the file unless its run has one there."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock"), timeout=LOCK_SECONDS, fallback_to_soft=False):
        lines = _lines(path)
        if any(known.run_id == alert.run_id for known in _alerts(lines)):
            return False
        line = json.dumps(alert.as_json(), ensure_ascii=False, sort_keys=True).encode("utf-8")
        while lines and sum(len(known) + 1 for known in lines) + len(line) + 1 > MAX_BYTES:
            lines = lines[(len(lines) + 1) // 2 :]
        partial = path.with_suffix(".tmp")
        with partial.open("wb") as file:
            file.writelines(known + b"\n" for known in [*lines, line])
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    return True


def _lines(path: Path) -> list[bytes]:
    try:
        return _tail(path)
    except OSError:
        return []


def _tail(path: Path) -> list[bytes]:
    """Return the whole lines in the last `MAX_BYTES` of a file; none when it is not there."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # Reading a pipe in its place would wait for ever.
            raise IsADirectoryError(path)
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - MAX_BYTES)
            file.seek(start)
            return file.read(MAX_BYTES).splitlines()[1 if start else 0 :]
    except FileNotFoundError:
        return []


def _alerts(lines: Iterable[bytes]) -> list[Alert]:
    return [alert for line in lines if (alert := _alert_in(line)) is not None]


def _alert_in(line: bytes) -> Alert | None:
    """Return the alert of a line; None when the line is not one that `raise_alert` writes."""
    try:
        stored = json.loads(line)
        words = [
            stored["run_id"],
            stored["job"],
            stored["error"],
            stored["code"],
            *stored["assets"],
        ]
        if not isinstance(stored["assets"], list) or not all(
            isinstance(word, str) for word in words
        ):
            return None
        # A lone surrogate could not be shown.
        "".join(words).encode("utf-8")
        at = datetime.fromisoformat(stored["at"])
        run_id, job, error, code, *assets = words
        return (
            None
            if at.tzinfo is None
            else Alert(run_id, job, tuple(assets), error, code, at.astimezone(UTC))
        )
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def _post(url: str, alert: Alert) -> str:
    """Send an alert; return the class of what went wrong, or an empty string."""
    import httpx2

    try:
        # Without the environment: its proxies and credentials are not meant for this address.
        with httpx2.Client(
            timeout=WEBHOOK_SECONDS, follow_redirects=False, trust_env=False
        ) as client:
            answer = client.post(url, json=alert.as_json())
        return "" if answer.is_success else f"status {answer.status_code}"
    except Exception as problem:  # the hook must never fail what it tells of
        return type(problem).__name__


__all__ = ["Alert", "alerts_problem", "newest_alerts", "raise_alert"]
