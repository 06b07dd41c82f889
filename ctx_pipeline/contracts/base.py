"""The base of every contract: frozen, closed, and silent about the caller's input in its errors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from ctx_pipeline.text import repair, repair_json

SCHEMA_VERSION = "1"
"""Version of every JSON Schema in `contracts/schemas/`; a reader refuses a newer one by name."""


def _require_aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(
            "time has no zone: write it with an offset, for example 2026-01-31T00:00:00Z"
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("time lies outside the years 1 to 9999 in UTC") from None


def _iso(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


UtcDatetime = Annotated[
    datetime,
    AfterValidator(_require_aware),
    PlainSerializer(_iso, return_type=str, when_used="json"),
]
"""A timezone-aware instant, converted to UTC; a naive time is refused."""


def _repair_text(value: Any) -> Any:
    return repair(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_repair_text)]
"""A string whose lone surrogates and NULs are replaced by U+FFFD, so that every store can hold it.
"""


JsonObject = Annotated[dict[str, Any], BeforeValidator(repair_json)]
"""A JSON object: finite numbers, bounded depth, strings that every store can hold."""


class Contract(BaseModel):
    """A value that crosses a boundary. Unknown fields are errors; no field can be reassigned."""

    # Built at first use: one process uses a few of the contracts, and most of them only inside of
    # another.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,
    )


class ImportedContract(Contract):
    """A value read from somebody else's format: unknown fields are ignored, not refused."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, allow_inf_nan=False
    )
