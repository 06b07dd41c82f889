"""Logs of the shell: facts with ids and counts, on stderr, without content and without secrets.

Event names are in the past tense (`pack_built`, `source_loaded`). The core returns reports and
never logs.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, cast

from ctx_pipeline.errors import InvalidRequest

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LEVELS = ("debug", "info", "warning", "error")

CONTENT_KEYS = frozenset(
    {
        "answer", "arguments", "body", "chunk", "completion", "content", "document", "documents",
        "input", "items",
        "messages", "observation", "observations", "output", "preview", "prompt", "query",
        "question", "response",
        "rows", "sample_rows", "snippet", "sql", "state", "task", "text", "tool_context", "value",
    }
)  # fmt: skip
"""Keys that may hold what people, agents or sources wrote; dropped unless content is recorded. A
number under one of them is a count, and stays."""

SECRET_WORDS = (
    "api_key", "apikey", "authorization", "cookie", "credential", "passphrase", "passwd",
    "password", "private_key",
    "secret", "session_token", "access_token", "refresh_token", "bearer",
)  # fmt: skip
SECRET_KEYS = frozenset({"auth", "dsn", "key", "pwd", "token", "url"})
"""Whole keys that are masked; `SECRET_WORDS` mask every key they occur in."""

MASK = "****"
MAX_DEPTH = 8


def is_secret(key: str) -> bool:
    """Return whether a value under this key is never shown, for example `db_password` or
    `X-Api-Key`.
    """
    plain = key.lower().replace("-", "_")
    return plain in SECRET_KEYS or any(word in plain for word in SECRET_WORDS)


def redact(
    fields: Mapping[str, Any], *, record_content: bool = False, depth: int = 0
) -> dict[str, Any]:
    """Return log fields with secrets masked and content dropped, at every depth.

    The names of dropped keys are listed under `dropped`, so that nothing goes missing in silence.
    """
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    for key, value in fields.items():
        if is_secret(key):
            kept[key] = MASK
        elif key.lower() in CONTENT_KEYS and not record_content and not _is_count(value):
            dropped.append(key)
        else:
            kept[key] = _redact_value(value, record_content=record_content, depth=depth)
    if dropped:
        kept["dropped"] = sorted(dropped)
    return kept


def _is_count(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _redact_value(value: Any, *, record_content: bool, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        return MASK
    if isinstance(value, Mapping):
        nested = {str(key): entry for key, entry in cast("Mapping[Any, Any]", value).items()}
        return redact(nested, record_content=record_content, depth=depth + 1)
    if isinstance(value, (list, tuple)):
        entries = cast("list[Any]", value)
        return [
            _redact_value(entry, record_content=record_content, depth=depth + 1)
            for entry in entries
        ]
    return value


def configure_logging(
    level: str = "info", *, json: bool = False, content: Literal["drop", "record"] = "drop"
) -> None:
    """Send log events at `level` and above to stderr, as JSON lines or for people; may be called
    again.

    `content="record"` keeps the keys in `CONTENT_KEYS`; secrets are masked either way.

    Raises:
        InvalidRequest: the level is none of `LEVELS` (`unknown_level`).
    """
    import structlog

    if level not in LEVELS:
        raise InvalidRequest(
            f"unknown log level {level[:20]!r}",
            where="log level",
            fix=f"use one of {', '.join(LEVELS)}",
            code="unknown_level",
        )

    def redacted(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        return redact(event, record_content=content == "record")

    # Plain tracebacks: the default formatter of a terminal shows local variables, and those hold
    # content.
    plain = structlog.dev.plain_traceback
    renderers: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
        if json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            redacted,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger(**fields: Any) -> FilteringBoundLogger:
    """Return a logger that carries `fields` on every event."""
    import structlog

    return structlog.get_logger(**fields)
