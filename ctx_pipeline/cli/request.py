"""Flags, files and stdin as requests. Messages name fields and flags, never what was in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ctx_pipeline.cli.checking import checked
from ctx_pipeline.cli.identity import IdentityFlags, merged_identity
from ctx_pipeline.errors import InvalidRequest

if TYPE_CHECKING:
    from ctx_pipeline.contracts import ContextRequest, Identity

MAX_INPUT_BYTES = 64 * 1024 * 1024
"""Far above any request that a model can read."""

STDIN = "-"


def parse_time(value: str | None, flag: str) -> datetime | None:
    """Return an ISO 8601 time with an offset, in UTC; None stays None.

    Raises:
        InvalidRequest: it is no time (`invalid_time`) or has no zone (`naive_time`); a bare date
            has none either.
    """
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            "this is no time",
            where=flag,
            fix="write it as 2026-01-31T00:00:00Z",
            code="invalid_time",
        ) from None
    raise InvalidRequest(
        "the time has no zone",
        where=flag,
        fix=f"write it with an offset, for example {moment:%Y-%m-%dT%H:%M:%S}Z",
        code="naive_time",
    )


def read_text(name: str, flag: str) -> str:
    """Return the UTF-8 text of a file, or of stdin for `-`; a byte order mark is dropped.

    Raises:
        InvalidRequest: it cannot be read (`unreadable`), is too large (`too_large`) or is not UTF-8
            (`not_utf8`).
    """
    try:
        if name == STDIN:
            content = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                content = file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError) as refused:
        reason = getattr(refused, "strerror", None) or "not a file name"
        raise InvalidRequest(
            f"the input cannot be read: {reason}",
            where=flag,
            fix="name a file, or - for stdin",
            code="unreadable",
        ) from refused
    if len(content) > MAX_INPUT_BYTES:
        raise InvalidRequest(
            f"the input is larger than {MAX_INPUT_BYTES} bytes",
            where=flag,
            fix="send less",
            code="too_large",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        raise InvalidRequest(
            f"the input is not UTF-8 at byte {broken.start}",
            where=flag,
            fix="convert it to UTF-8",
            code="not_utf8",
        ) from None


def read_json_object(name: str, flag: str) -> dict[str, Any]:
    """Return the JSON object in a file, or on stdin for `-`.

    Raises:
        InvalidRequest: as `read_text`, or it is not one JSON object (`invalid_json`).
    """
    fix = "send one JSON object"
    try:
        value: Any = json.loads(read_text(name, flag), parse_constant=_no_constant)
    except json.JSONDecodeError as broken:
        place = f"{flag}, line {broken.lineno} column {broken.colno}"
        raise InvalidRequest(
            f"not valid JSON: {broken.msg}", where=place, fix=fix, code="invalid_json"
        ) from None
    except (ValueError, RecursionError):
        raise InvalidRequest(
            "not valid JSON: a number that JSON does not have, or too deep",
            where=flag,
            fix=fix,
            code="invalid_json",
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest("the JSON is not an object", where=flag, fix=fix, code="invalid_json")
    return cast("dict[str, Any]", value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def build_request(
    stored: Mapping[str, Any] | None,
    flags: Mapping[str, Any],
    task: Mapping[str, Any],
    who: IdentityFlags,
    own: Identity | None,
) -> ContextRequest:
    """Return a request: the stored one, if any, with flags over it field by field.

    `own` is the identity of `ctx.toml`; the stored request's own comes first.

    Raises:
        InvalidRequest: there is no text (`no_text`), or a field is not accepted.
    """
    from ctx_pipeline.contracts import ContextRequest, Identity

    fields: dict[str, Any] = {**(stored or {}), **_given(flags)}
    stored_task = fields.get("task", {})
    if isinstance(stored_task, dict):
        fields["task"] = {**cast("dict[str, Any]", stored_task), **_given(task)}
        text = fields["task"].get("text", "")
        if isinstance(text, str) and not text.strip() and not fields.get("messages"):
            raise InvalidRequest(
                "there is no text to assemble a context for",
                where="TEXT",
                fix='ctx assemble "what the agent is to do", or --request FILE',
                code="no_text",
            )
    stored_identity = fields.get("identity")
    base = (
        own
        if stored_identity is None
        else checked(lambda: Identity.model_validate(stored_identity), "identity")
    )
    if (identity := merged_identity(who, base)) is not None:
        fields["identity"] = identity
    return checked(lambda: ContextRequest.model_validate(fields), "request")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}
