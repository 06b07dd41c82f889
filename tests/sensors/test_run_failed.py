"""A failed run becomes one alert that says what failed and quotes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.assets import sources as assets
from ctx_pipeline.building.alerts import newest_alerts
from ctx_pipeline.definitions import make_definitions
from ctx_pipeline.errors import CtxError, Unavailable
from ctx_pipeline.project import ContextProject
from ctx_pipeline.resources import ContextProjectResource
from ctx_pipeline.sensors.run_failed import run_failed
from ctx_pipeline.workspace import Workspace


class _Hook(BaseHTTPRequestHandler):
    got: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        return


@pytest.fixture
def hook() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    _Hook.got.clear()
    yield f"http://127.0.0.1:{server.server_port}/hook?key=hidden"
    server.shutdown()
    thread.join()
    server.server_close()


def _fail(
    home: Path, instance: dg.DagsterInstance, raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> Any:
    def broken(workspace: Workspace, name: str) -> object:
        raise raised

    monkeypatch.setattr(assets, "refresh_source", broken)
    job = make_definitions(home).resolve_job_def("build_all")
    return job.execute_in_process(
        instance=instance,
        asset_selection=[dg.AssetKey(["sources", "handbook"])],
        raise_on_error=False,
    )


def _notice(home: Path, instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> None:
    context = dg.build_run_status_sensor_context(
        sensor_name="run_failed",
        dagster_instance=instance,
        dagster_run=result.dagster_run,
        dagster_event=result.get_run_failure_event(),
        resources={"ctx_project": ContextProjectResource(home=str(home))},
    ).for_run_failure()
    run_failed(context)


@pytest.mark.parametrize(
    ("raised", "error", "code"),
    [
        (Unavailable("内容 of a source", code="disk_full"), "Unavailable", "disk_full"),
        (OSError("内容 of a source"), "OSError", ""),
    ],
)
def test_a_failed_run_is_told_once_with_asset_class_and_code(
    home: Path, instance: dg.DagsterInstance, hook: str, monkeypatch: pytest.MonkeyPatch,
    raised: BaseException, error: str, code: str,
) -> None:  # fmt: skip
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write(f'[alerts]\nwebhook = "{hook}"\n')
    result = _fail(home, instance, raised, monkeypatch)
    _notice(home, instance, result)
    _notice(home, instance, result)
    (alert,) = newest_alerts(home)
    assert (alert.run_id, alert.job, alert.assets) == (
        result.run_id,
        "build_all",
        ("sources/handbook",),
    )
    assert (alert.error, alert.code) == (error, code)
    assert _Hook.got == [alert.as_json()]
    written = (home / ".ctx" / "alerts.jsonl").read_text(encoding="utf-8")
    assert "内容" not in written
    assert "hidden" not in written
    with ContextProject.open(home) as project:
        assert project.status().alerts == (alert,)


def test_a_run_that_died_is_told_and_a_webhook_that_does_not_answer_fails_nothing(
    home: Path, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    with (home / "ctx.toml").open("a", encoding="utf-8") as config:
        config.write('[alerts]\nwebhook = "http://127.0.0.1:9/key-hidden"\n')
    run = instance.create_run_for_job(make_definitions(home).resolve_job_def("build_all"))
    event = instance.report_run_failed(run, "the process ended")
    context = dg.build_run_status_sensor_context(
        sensor_name="run_failed", dagster_instance=instance, dagster_run=run, dagster_event=event,
        resources={"ctx_project": ContextProjectResource(home=str(home))},
    ).for_run_failure()  # fmt: skip
    run_failed(context)
    (alert,) = newest_alerts(home)
    assert (alert.run_id, alert.assets, alert.error) == (run.run_id, (), "")
    captured = "".join(capfd.readouterr())
    assert "alert_not_sent" in captured
    assert "key-hidden" not in captured


def test_a_build_that_fails_on_the_command_line_leaves_its_alert_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(workspace: Workspace, name: str) -> object:
        raise Unavailable("no", code="disk_full")

    monkeypatch.setattr(assets, "refresh_source", broken)
    with pytest.raises(CtxError):
        build(home, select="sources/notes", progress=False)
    (alert,) = newest_alerts(home)
    assert (alert.assets, alert.error, alert.code) == (
        ("sources/notes",),
        "Unavailable",
        "disk_full",
    )
    assert abs((datetime.now(UTC) - alert.at).total_seconds()) < 3_600


def test_a_failed_run_of_other_assets_in_the_code_location_is_not_told(
    home: Path, instance: dg.DagsterInstance
) -> None:
    @dg.asset
    def orders() -> None:
        raise ValueError("not of the context project")

    job = dg.Definitions(assets=[orders]).resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    _notice(home, instance, result)
    assert newest_alerts(home) == ()
