"""Processes of a test's own."""

from __future__ import annotations

import multiprocessing
from typing import Any

IMPORTED = (
    "__main__",
    "pytest",
    "ctx_pipeline.building.pipeline",
    "ctx_pipeline.orchestration.publish",
    "ctx_pipeline.project",
    "testing.artifacts",
    "tests.ledger.children",
)
"""What children use. Not what uses LanceDB: it starts a thread, which a fork leaves behind."""


def processes() -> Any:
    """Process starts that cost a fork of a clean server with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context
