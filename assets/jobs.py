"""What the jobs of a context project are called, and how their runs are tagged."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

BUILD_JOB = "build_all"
ASSEMBLE_JOB = "assemble_context_job"
MAINTAIN_JOB = "maintain"
EVICTIONS_JOB = "record_evictions"
JOBS = frozenset({BUILD_JOB, ASSEMBLE_JOB, MAINTAIN_JOB, EVICTIONS_JOB})
KIND_TAG = "ctx/kind"
"""Tag of every job and of its runs: what kind of work it is."""

NO_PROJECT = (
    "There is no context project here, so there are no sources. Set CTX_HOME to a folder with a "
    "ctx.toml (`ctx init DIR` writes one) and reload this code location."
)


def build_job(keys: Sequence[dg.AssetKey], project: str | None) -> Any:
    """Return the job that builds these assets; `project` is its name, None where there is none.

    One process per run: the stages share the rows they have read, and libraries are loaded once.
    """
    return dg.define_asset_job(
        BUILD_JOB,
        selection=dg.AssetSelection.assets(*keys),
        description=(
            NO_PROJECT
            if project is None
            else f"Reads every source of {project!r} and publishes the serving artifact. What has not "
            "changed is not embedded again."
        ),
        executor_def=dg.in_process_executor,
        tags={KIND_TAG: "build"},
    )
