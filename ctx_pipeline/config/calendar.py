"""`[calendar]` of `ctx.toml`: how a project counts its time."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

A_LEAP_YEAR = 2024


class Section(BaseModel, defer_build=True):
    """A table of `ctx.toml`: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _month_and_day(value: str) -> str:
    month, _, day = value.partition("-")
    if not (len(value) == 5 and month.isdigit() and day.isdigit()):
        raise ValueError("write month and day, for example 04-01")
    if value == "02-29":
        raise ValueError("most years have no such day")
    date(A_LEAP_YEAR, int(month), int(day))
    return value


class CalendarSection(Section):
    """`[calendar]`: what time words of a task mean here."""

    fiscal_year_starts: Annotated[str, AfterValidator(_month_and_day)] | None = None
    """Month and day that fiscal years start on, as `04-01`; a fiscal year has the number of the
    year that it ends in. Without it `FY26 Q2` and 上财年 resolve to nothing."""
    week_starts: Literal["monday", "sunday"] = "monday"
    """The day that weeks start on."""

    def fiscal_start(self) -> tuple[int, int] | None:
        """Return the month and day that fiscal years start on."""
        if self.fiscal_year_starts is None:
            return None
        month, day = self.fiscal_year_starts.split("-")
        return int(month), int(day)
