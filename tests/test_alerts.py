"""The file of alerts stays small and readable."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ctx_pipeline.alerts import FILE, Alert, newest_alerts, raise_alert
from ctx_pipeline.config import load_config
from ctx_pipeline.errors import ConfigError

AT = datetime(2026, 11, 30, 9, tzinfo=UTC)


def _alert(number: int) -> Alert:
    return Alert(run_id=f"run-{number}", job="build_all", assets=("sources/手册",), error="OSError", code="", at=AT)


def test_alerts_come_back_newest_first_and_a_torn_line_hides_none(tmp_path: Path) -> None:
    assert newest_alerts(tmp_path) == ()
    assert raise_alert(tmp_path, _alert(1))
    with (tmp_path / ".ctx" / FILE).open("ab") as file:
        file.write(b'{"run_id": "torn')
    assert raise_alert(tmp_path, _alert(2))
    assert not raise_alert(tmp_path, _alert(1))
    assert newest_alerts(tmp_path) == (_alert(2), _alert(1))
    assert newest_alerts(tmp_path, 1) == (_alert(2),)


def test_the_file_of_alerts_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctx_pipeline.alerts.MAX_BYTES", 1_000)
    for number in range(30):
        raise_alert(tmp_path, _alert(number))
        assert (tmp_path / ".ctx" / FILE).stat().st_size <= 1_000
    assert newest_alerts(tmp_path, 2) == (_alert(29), _alert(28))


@pytest.mark.parametrize("url", ["http://example.com/secret-key", "ftp://example.com", "secret-key"])
def test_a_webhook_is_https_or_this_machine_and_is_never_quoted(tmp_path: Path, url: str) -> None:
    (tmp_path / "ctx.toml").write_text(f'[alerts]\nwebhook = "{url}"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_config(tmp_path)
    assert "secret-key" not in str(refused.value)
    (tmp_path / "ctx.toml").write_text('[alerts]\nwebhook = "https://hooks.example.com/secret-key"\n', encoding="utf-8")
    assert not [row for row in load_config(tmp_path).rows() if "secret-key" in row.value]
