"""Every error that reaches a user.

CtxError
├── InvalidRequest       the caller can fix it        (HTTP 422, exit 2)
│   ├── ConfigError      ctx.toml or a flag is wrong
│   ├── BudgetTooSmall   protected items do not fit
│   └── GateFailed       a hard preflight check failed
├── NotPermitted         policy said no               (HTTP 403, exit 3)
├── NotFound             no such thing for you        (HTTP 404, exit 4)
├── Corrupt              stored bytes are wrong       (HTTP 500, exit 5)
├── Conflict             someone else won             (HTTP 409, exit 6, retryable)
└── Unavailable          try again later              (HTTP 503, exit 7, retryable)
"""

from __future__ import annotations

from typing import ClassVar


class CtxError(Exception):
    """Base of every typed error: a stable `code`, what was wrong, where, and what to do."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, where: str = "", fix: str = "", code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix
        self.stable_code = code or type(self).code

    def as_dict(self) -> dict[str, str | bool]:
        """Return the public form: code, message, where, fix, retryable."""
        return {
            "code": self.stable_code,
            "message": self.message,
            "where": self.where,
            "fix": self.fix,
            "retryable": self.retryable,
        }

    def __str__(self) -> str:
        lines = [f"{self.stable_code}: {self.message}"]
        if self.where:
            lines.append(f"  in:  {self.where}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class InvalidRequest(CtxError):
    """The caller sent something that cannot be served and can correct it."""

    code = "invalid_request"
    exit_code = 2
    http_status = 422


class ConfigError(InvalidRequest):
    """`ctx.toml`, an environment variable or a flag is wrong."""

    code = "invalid_config"


class BudgetTooSmall(InvalidRequest):
    """Items that may never be dropped need more tokens than the budget has."""

    code = "budget_too_small"


class GateFailed(InvalidRequest):
    """A hard preflight check failed; no pack is returned.

    `trace_id` names the stored decision trace that `explain` reads.
    """

    code = "gate_failed"

    def __init__(
        self,
        message: str,
        *,
        trace_id: str,
        where: str = "",
        fix: str = "",
        code: str | None = None,
    ) -> None:
        super().__init__(message, where=where, fix=fix, code=code)
        self.trace_id = trace_id


class NotPermitted(CtxError):
    """Policy denies this to this identity."""

    code = "not_permitted"
    exit_code = 3
    http_status = 403


class NotFound(CtxError):
    """No such thing exists for this identity."""

    code = "not_found"
    exit_code = 4
    http_status = 404


class Corrupt(CtxError):
    """Stored bytes are not what was written."""

    code = "corrupt"
    exit_code = 5


class Conflict(CtxError):
    """Another writer won, or two versions claim the same identity."""

    code = "conflict"
    exit_code = 6
    http_status = 409
    retryable = True


class Unavailable(CtxError):
    """Something this call needs is missing or busy now."""

    code = "unavailable"
    exit_code = 7
    http_status = 503
    retryable = True
