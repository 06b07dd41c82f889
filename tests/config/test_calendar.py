"""`[calendar]` of ctx.toml."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ctx_pipeline.config.calendar import CalendarSection


def test_a_project_says_when_its_fiscal_years_and_weeks_start():
    section = CalendarSection(fiscal_year_starts="04-01", week_starts="sunday")
    assert section.fiscal_start() == (4, 1)
    assert CalendarSection().fiscal_start() is None


@pytest.mark.parametrize("value", ["4-1", "13-01", "02-29", "02-30", "april", "2026-04-01"])
def test_a_day_that_no_year_starts_on_is_refused(value: str):
    with pytest.raises(ValidationError):
        CalendarSection(fiscal_year_starts=value)
