"""Logs are facts on stderr: no content, no secrets, nothing dropped in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.errors import InvalidRequest
from ctx_pipeline.telemetry import CONTENT_KEYS, MASK, configure_logging, get_logger, redact

SECRET = "s3cret-value"


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_an_event_is_one_json_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    configure_logging("info", json=True)
    get_logger(run_id="r1").info("pack_built", size_tokens=812, items=7, query="华东区 GMV")
    out, err = capsys.readouterr()
    assert out == ""
    event = json.loads(err)
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "event": "pack_built", "level": "info", "run_id": "r1", "size_tokens": 812, "items": 7,
        "dropped": ["query"],
    }  # fmt: skip


def test_events_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]):
    configure_logging("warning", json=True)
    get_logger().info("pack_built")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_local_variables(as_json: bool, capsys: pytest.CaptureFixture[str]):
    configure_logging("info", json=as_json)
    try:
        document = SECRET
        len(document) / 0
    except ZeroDivisionError:
        get_logger().exception("build_failed")
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err
    assert SECRET not in err


def test_content_can_be_recorded_but_a_secret_cannot(capsys: pytest.CaptureFixture[str]):
    configure_logging("info", json=True, content="record")
    get_logger().info("query_ran", sql="select 1", api_key=SECRET)
    event = json.loads(capsys.readouterr().err)
    assert event["sql"] == "select 1"
    assert event["api_key"] == MASK


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "db_password",
        "X-Api-Key",
        "Authorization",
        "token",
        "access_token",
        "url",
        "client_secret",
    ],
)
def test_a_secret_is_masked_at_every_depth(key: str):
    fields = {"a": [{"b": {key: SECRET}}], key: SECRET}
    assert SECRET not in json.dumps(redact(fields))
    assert redact(fields)["a"][0]["b"][key] == MASK


@pytest.mark.parametrize("key", ["size_tokens", "token_budget", "source", "pack_id", "principal"])
def test_counts_and_ids_stay(key: str):
    assert redact({key: 3}) == {key: 3}


@given(
    st.recursive(
        st.just(SECRET),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*sorted(CONTENT_KEYS), "password"]), inner, max_size=3
            )
        ),
        max_leaves=10,
    )
)
def test_nothing_under_a_content_key_is_written(value: object):
    assert SECRET not in json.dumps(redact({"text": value, "a": {"content": value}}))


def test_values_that_refer_to_themselves_end():
    loop: dict[str, object] = {}
    loop["again"] = loop
    assert MASK in json.dumps(redact(loop))


def test_an_unknown_level_is_refused_with_those_that_exist():
    with pytest.raises(InvalidRequest) as caught:
        configure_logging("loud")
    assert caught.value.stable_code == "unknown_level"
    assert "warning" in caught.value.fix
