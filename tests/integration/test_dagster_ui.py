"""The asset graph as people see it: `ctx dev` on a small project, asked over GraphQL and seen in a
real browser.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from ctx_pipeline import build
from ctx_pipeline.errors import ConfigError, InvalidRequest, Unavailable
from ctx_pipeline.orchestration.backfill import build_partitions
from ctx_pipeline.orchestration.dev import start_dev

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[2]

PROJECT = """\
[project]
name = "shop"
tenant = "acme"
[[sources]]
name = "handbook"
kind = "documents"
path = "documents"
sensitivity = "internal"
groups = ["*"]
freshness = "24h"
owner = "docs"
[usage]
since = 2026-01-01
"""

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# A closed network: without these flags the browser's own services try to reach the outside at every
# start.
FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1500,950"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a built project as `ctx dev` does, give its URL, then interrupt it: it ends well and
    leaves no process.
    """
    home = tmp_path_factory.mktemp("shop")
    (home / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    (home / "documents").mkdir()
    (home / "dagster.py").write_text(
        "raise ImportError('a project file hides a library')\n", encoding="utf-8"
    )
    (home / "documents" / "refunds.md").write_text(
        "# Refunds\nWithin 30 days. 三十天内。\n", encoding="utf-8"
    )
    build(home, progress=False)
    # What the automation would roll up by itself, so that the daemon has nothing else to do.
    today = datetime.now(UTC).date()
    build_partitions(home, f"{today - timedelta(days=9)}..{today}", progress=False)
    log = home / "dev.log"
    script = "import sys; from ctx_pipeline.orchestration.dev import dev; dev(sys.argv[1])"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(home)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=stderr,
            stderr=stderr,
        )
    children: list[psutil.Process] = []
    try:
        url = _eventually(lambda: _url(log, process), "the URL on stderr")
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 4, [child.cmdline() for child in children]
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text(encoding="utf-8")
        _, alive = psutil.wait_procs(children, timeout=0)
        assert alive == []


def test_the_daemon_finds_every_asset_fresh(served: str) -> None:
    def healthy() -> bool:
        nodes = _ask(served, "{assetNodes{assetKey{path} freshnessStatusInfo{freshnessStatus}}}")[
            "assetNodes"
        ]
        # Days have no window: each is rolled up once.
        windowed = [node for node in nodes if node["assetKey"]["path"][0] != "usage"]
        states = {node["freshnessStatusInfo"]["freshnessStatus"] for node in windowed}
        return len(windowed) == 8 and states == {"HEALTHY"}

    # The daemon looks every 30 seconds.
    assert _eventually(healthy, "eight healthy assets")


def test_a_materialisation_from_the_ui_succeeds(served: str) -> None:
    variables = {
        "selector": {
            "repositoryName": "__repository__",
            "repositoryLocationName": "ctx_pipeline",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": ["sources", "handbook"]}],
        }
    }
    launched = _ask(
        served,
        "mutation($selector: JobOrPipelineSelector!) {launchPipelineExecution(executionParams: "
        '{selector: $selector, runConfigData: "{}", mode: "default"}) '
        "{__typename ... on LaunchRunSuccess {run {runId}} "
        "... on PythonError {message} ... on InvalidSubsetError {message}}}",
        variables,
    )["launchPipelineExecution"]
    assert launched["__typename"] == "LaunchRunSuccess", launched
    question = f'{{runOrError(runId: "{launched["run"]["runId"]}") {{... on Run {{status}}}}}}'

    def ended() -> str:
        status = str(_ask(served, question)["runOrError"]["status"])
        return status if status in ("SUCCESS", "FAILURE", "CANCELED") else ""

    assert _eventually(ended, "the end of the run") == "SUCCESS"


def test_a_backfill_from_the_ui_builds_each_day_in_a_run_of_its_own(served: str) -> None:
    days = ["2026-01-01", "2026-01-02"]
    variables = {
        "params": {
            "assetSelection": [{"path": ["usage", "daily_exposure"]}],
            "partitionNames": days,
        }
    }
    launched = _ask(
        served,
        "mutation($params: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: "
        "$params) "
        "{__typename ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message}}}",
        variables,
    )["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    question = (
        f'{{partitionBackfillOrError(backfillId: "{launched["backfillId"]}") '
        "{... on PartitionBackfill {status runs {status tags {key value}}}}}"
    )

    def ended() -> list[tuple[str, str]]:
        backfill = _ask(served, question)["partitionBackfillOrError"]
        if backfill["status"] not in (
            "COMPLETED_SUCCESS",
            "COMPLETED_FAILED",
            "FAILED",
            "CANCELED",
        ):
            return []
        tags = ({tag["key"]: tag["value"] for tag in run["tags"]} for run in backfill["runs"])
        return [
            (tag["dagster/partition"], run["status"])
            for tag, run in zip(tags, backfill["runs"], strict=True)
        ]

    assert sorted(_eventually(ended, "the end of the backfill", 240)) == [
        (day, "SUCCESS") for day in days
    ]


@pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium"
)
def test_a_browser_shows_the_published_artifact(served: str, tmp_path: Path) -> None:
    """Set UI_SCREENSHOTS to a folder to keep the pictures."""
    pictures = Path(os.environ.get("UI_SCREENSHOTS", tmp_path))
    asset = _look(
        f"{served}/assets/stages/assembled_items", pictures / "assembled_items.png", tmp_path
    )
    for text in (
        "Publishes the parts above",
        "context-platform",
        "stays fresh",
        "Row count",
        "Materialize",
    ):
        assert text in asset
    graph = _look(
        f"{served}/locations/ctx_pipeline/asset-groups/stages", pictures / "stages.png", tmp_path
    )
    assert all(
        name in graph for name in ("discovered_items", "budgeted_items", "context_snapshots")
    )
    assert (pictures / "stages.png").read_bytes().startswith(b"\x89PNG")


def test_dev_refuses_what_it_cannot_serve(tmp_path: Path, served: str) -> None:
    with pytest.raises(ConfigError), start_dev(tmp_path):
        pass
    (tmp_path / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    with pytest.raises(InvalidRequest, match="loopback"), start_dev(tmp_path, host="0.0.0.0"):
        pass
    taken = int(served.rsplit(":", 1)[1])
    with pytest.raises(Unavailable) as busy, start_dev(tmp_path, port=taken):
        pass
    assert busy.value.stable_code == "port_taken"


def _look(url: str, picture: Path, scratch: Path) -> str:
    """Return the text of a page after its scripts have run, and keep a picture of it."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    assert CHROMIUM is not None
    options = (
        f"--user-data-dir={scratch / 'profile'}",
        "--virtual-time-budget=25000",
        f"--screenshot={picture}",
    )
    shown = subprocess.run(
        [CHROMIUM, *FLAGS, *options, "--dump-dom", url],
        capture_output=True,
        check=True,
        timeout=120,
    )
    return re.sub(r"<[^>]+>", " ", shown.stdout.decode())


def _url(log: Path, process: subprocess.Popen[bytes]) -> str:
    text = log.read_text(encoding="utf-8")
    assert process.poll() is None, text
    found = re.search(r"^asset graph: (http://127\.0\.0\.1:\d+)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _ask(url: str, query: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
    body = json.dumps({"query": query, "variables": variables or {}}).encode()
    request = urllib.request.Request(
        f"{url}/graphql", data=body, headers={"content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        parsed: dict[str, Any] = json.load(answer)
    assert "errors" not in parsed, parsed
    data: dict[str, Any] = parsed["data"]
    return data


Found = TypeVar("Found")


def _eventually(look: Callable[[], Found], what: str, seconds: float = 150.0) -> Found:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not seen within {seconds:.0f} s: {what}"
        time.sleep(0.5)
    return found
