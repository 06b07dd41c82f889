"""Dagster resources: the project, and the session in which a build writes to it."""

from __future__ import annotations

from ctx_pipeline.resources.project import ContextProjectResource
from ctx_pipeline.resources.session import BuildSession, build_lock, session_resource

__all__ = ["BuildSession", "ContextProjectResource", "build_lock", "session_resource"]
