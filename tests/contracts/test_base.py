"""What every contract promises: frozen, closed, UTC, and silent about input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ctx_pipeline import contracts
from ctx_pipeline.contracts import (
    ContextRequest,
    Contract,
    Identity,
    ImportedContract,
    Observation,
    Task,
    UtcDatetime,
)


class Moment(Contract):
    at: UtcDatetime


def _subclasses(kind: type[Contract]) -> Iterator[type[Contract]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("ctx_pipeline."):
            yield child
        yield from _subclasses(child)


OURS = sorted(set(_subclasses(Contract)) - {ImportedContract}, key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_a_contract_is_frozen_closed_and_silent(model: type[Contract]):
    expected = "ignore" if issubclass(model, ImportedContract) else "forbid"
    config = model.model_config
    assert (config.get("frozen"), config.get("extra")) == (True, expected)
    assert config.get("hide_input_in_errors") is True
    assert config.get("allow_inf_nan") is False


def test_every_published_name_is_a_contract_or_a_code():
    assert len(set(contracts.__all__)) == len(contracts.__all__)
    assert all(hasattr(contracts, name) for name in contracts.__all__)


def test_a_field_cannot_be_reassigned():
    task = Task(text="explain")
    with pytest.raises(ValidationError, match="frozen"):
        task.text = "other"  # type: ignore[misc]


def test_an_unknown_field_is_refused_and_its_value_not_repeated():
    with pytest.raises(ValidationError) as caught:
        Identity.model_validate({"principal": "ana", "tenant": "acme", "password": "hunter2"})
    assert "password" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("naive", [datetime(2026, 1, 31), "2026-01-31T00:00:00", "2026-01-31"])
def test_a_time_without_a_zone_is_refused(naive: Any):
    with pytest.raises(ValidationError, match="zone"):
        Moment(at=naive)


@pytest.mark.parametrize("field", ["as_of"])
def test_a_request_refuses_a_naive_time(field: str):
    with pytest.raises(ValidationError, match="zone"):
        ContextRequest.model_validate({"task": {"text": "x"}, field: "2026-01-31T00:00:00"})


@given(st.datetimes(timezones=st.timezones()))
def test_a_time_with_a_zone_becomes_the_same_instant_in_utc(at: datetime):
    try:
        instant = at.astimezone(UTC)
    except OverflowError:
        with pytest.raises(ValidationError, match="years 1 to 9999"):
            Moment(at=at)
        return
    moment = Moment(at=at)
    assert moment.at == instant
    assert moment.at.tzinfo is UTC
    written = json.loads(moment.model_dump_json())["at"]
    assert written.endswith("Z")
    assert Moment.model_validate_json(moment.model_dump_json()) == moment


def test_a_time_at_the_end_of_the_calendar_is_refused_cleanly():
    with pytest.raises(ValidationError, match="years 1 to 9999"):
        Moment(at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))


@given(st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF), max_size=40))
def test_text_in_a_contract_can_always_be_stored(text: str):
    observation = Observation(observation_id="o", content=text)
    assert "\x00" not in observation.content
    observation.content.encode("utf-8")
    assert Observation.model_validate_json(observation.model_dump_json()) == observation


def test_chinese_and_english_text_pass_unchanged():
    text = "华东区上个月 GMV 同比, year on year – “quoted” 🧾"
    assert Observation(observation_id="o", content=text).content == text


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(number: float):
    with pytest.raises(ValidationError):
        ContextRequest(task=Task(text="x"), cost_budget=number)
