"""The file of alerts stays small and readable."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctx_pipeline.building.alerts import FILE, MAX_BYTES, Alert, newest_alerts, raise_alert
from ctx_pipeline.config.settings import load_config
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.orchestration.doctor import diagnose

AT = datetime(2026, 11, 30, 9, tzinfo=UTC)


def _alert(number: int) -> Alert:
    return Alert(
        run_id=f"run-{number}",
        job="build_all",
        assets=("sources/手册",),
        error="OSError",
        code="",
        at=AT,
    )


def test_alerts_come_back_newest_first_and_a_torn_line_hides_none(tmp_path: Path) -> None:
    assert newest_alerts(tmp_path) == ()
    assert raise_alert(tmp_path, _alert(1))
    with (tmp_path / ".ctx" / FILE).open("ab") as file:
        file.write(b'{"run_id": "torn')
    assert raise_alert(tmp_path, _alert(2))
    assert not raise_alert(tmp_path, _alert(1))
    assert newest_alerts(tmp_path) == (_alert(2), _alert(1))
    assert newest_alerts(tmp_path, 1) == (_alert(2),)


def test_the_file_of_alerts_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx_pipeline.building.alerts.MAX_BYTES", 1_000)
    for number in range(30):
        raise_alert(tmp_path, _alert(number))
        assert (tmp_path / ".ctx" / FILE).stat().st_size <= 1_000
    assert newest_alerts(tmp_path, 2) == (_alert(29), _alert(28))


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**_alert(9).as_json(), **wrong})
        for wrong in (
            {"at": "2026-11-30T09:00:00"},
            {"at": "0001-01-01T00:00:00+14:00"},
            {"at": 1},
            {"run_id": 1},
            {"job": None},
            {"assets": "abc"},
            {"assets": [1]},
            {"code": "\ud800"},
        )
    ]
    + ["[" * 100_000, "[]", "1", "昨天"],
)
def test_a_damaged_line_is_passed_over(tmp_path: Path, line: str) -> None:
    raise_alert(tmp_path, _alert(1))
    with (tmp_path / ".ctx" / FILE).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    raise_alert(tmp_path, _alert(2))
    assert newest_alerts(tmp_path) == (_alert(2), _alert(1))
    assert (tmp_path / ".ctx" / FILE).read_bytes().count(b"\n") == 3


def test_of_a_huge_file_that_is_no_text_the_end_is_read_and_kept(tmp_path: Path) -> None:
    raise_alert(tmp_path, _alert(1))
    path = tmp_path / ".ctx" / FILE
    path.write_bytes(b"\xff" * 3 * MAX_BYTES + b"\n" + path.read_bytes())
    assert newest_alerts(tmp_path) == (_alert(1),)
    assert raise_alert(tmp_path, _alert(2))
    assert path.stat().st_size <= MAX_BYTES
    assert newest_alerts(tmp_path) == (_alert(2), _alert(1))


def test_an_alert_that_cannot_be_written_hides_no_failure_and_is_told_by_the_doctor(
    tmp_path: Path,
) -> None:
    (tmp_path / "ctx.toml").write_text('[project]\nname = "x"\n', encoding="utf-8")
    (tmp_path / ".ctx" / FILE).mkdir(parents=True)
    assert raise_alert(tmp_path, _alert(1))
    assert newest_alerts(tmp_path) == ()
    (found,) = [check for check in diagnose(tmp_path).checks if check.name == "alerts"]
    assert (found.state, found.code) == ("warn", "unreadable")
    shutil.rmtree(tmp_path / ".ctx")
    (tmp_path / ".ctx").write_text("in the way", encoding="utf-8")
    assert raise_alert(tmp_path, _alert(1))


@pytest.mark.parametrize(
    "url", ["http://example.com/secret-key", "ftp://example.com", "secret-key"]
)
def test_a_webhook_is_https_or_this_machine_and_is_never_quoted(tmp_path: Path, url: str) -> None:
    (tmp_path / "ctx.toml").write_text(f'[alerts]\nwebhook = "{url}"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path)
    assert "secret-key" not in str(refused.value)
    (tmp_path / "ctx.toml").write_text(
        '[alerts]\nwebhook = "https://hooks.example.com/secret-key"\n', encoding="utf-8"
    )
    assert not [row for row in load_config(tmp_path).rows() if "secret-key" in row.value]
