"""What the tests of the adapters share: one way to read a source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.sources import SourceReading, read_source


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., SourceReading]:
    """Return a function that reads `path` below the test's own folder as a source of one kind, for
    everyone.
    """

    def run(
        kind: str, path: str | Path = ".", *, tenant: str | None = "acme", **settings: Any
    ) -> SourceReading:
        entry = {"name": "src", "kind": kind, "path": str(path), "groups": ["*"], **settings}
        source = SourceConfig.model_validate(entry)
        return read_source(source, tmp_path, tenant=tenant)

    return run
