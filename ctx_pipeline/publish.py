"""Definitions put into force from Python: what `ctx publish` calls."""

from ctx_pipeline.orchestration.publish import check, publish
from ctx_pipeline.registry.files import DefinitionFile

__all__ = ["DefinitionFile", "check", "publish"]
