"""A small project whose sources have been read, copied for each test, and its
own Dagster instance.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ctx_pipeline import build
from ctx_pipeline.orchestration.build import open_instance

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
[[sources]]
name = "notes"
kind = "memories"
path = "notes.jsonl"
sensitivity = "internal"
groups = ["*"]
"""


def write_old(path: Path, text: str) -> None:
    """Write a file that looks as if nobody had touched it for an hour."""
    path.write_text(text, encoding="utf-8")
    hour_ago = path.stat().st_mtime - 3_600
    os.utime(path, (hour_ago, hour_ago))


@pytest.fixture(scope="session")
def _read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sensors") / "shop"
    (home / "documents").mkdir(parents=True)
    (home / "ctx.toml").write_text(PROJECT, encoding="utf-8")
    write_old(home / "documents" / "refunds.md", "# Refunds\nWithin 30 days. 三十天内。\n")
    write_old(home / "notes.jsonl", '{"id": "m1", "text": "Ana likes short answers"}\n')
    build(home, select="sources/*", progress=False)
    return home


@pytest.fixture
def home(_read: Path, tmp_path: Path) -> Path:
    # The copy keeps the times of its files: they are part of how a source looks.
    return shutil.copytree(_read, tmp_path / "shop")


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with open_instance(home) as opened:
        yield opened
