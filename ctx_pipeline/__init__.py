"""ctx_pipeline builds the context an agent sees: chosen, budgeted, permitted, reproducible.

Importing the package loads nothing heavy; each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctx_pipeline.contracts import (
        BuildReport,
        ContextDecisionTrace,
        ContextItem,
        ContextPack,
        ContextPolicy,
        ContextRequest,
        ContextSnapshot,
        Identity,
        ModelProfile,
        Task,
    )
    from ctx_pipeline.errors import CtxError
    from ctx_pipeline.orchestration.build import build
    from ctx_pipeline.orchestration.component import ContextProjectComponent
    from ctx_pipeline.project import ContextProject

__version__ = "0.1.0"

_HOMES = {
    "BuildReport": "ctx_pipeline.contracts",
    "ContextDecisionTrace": "ctx_pipeline.contracts",
    "ContextItem": "ctx_pipeline.contracts",
    "ContextPack": "ctx_pipeline.contracts",
    "ContextPolicy": "ctx_pipeline.contracts",
    "ContextProject": "ctx_pipeline.project",
    "ContextProjectComponent": "ctx_pipeline.orchestration.component",
    "ContextRequest": "ctx_pipeline.contracts",
    "ContextSnapshot": "ctx_pipeline.contracts",
    "CtxError": "ctx_pipeline.errors",
    "Identity": "ctx_pipeline.contracts",
    "ModelProfile": "ctx_pipeline.contracts",
    "Task": "ctx_pipeline.contracts",
    "build": "ctx_pipeline.orchestration.build",
}

__all__ = [
    "BuildReport",
    "ContextDecisionTrace",
    "ContextItem",
    "ContextPack",
    "ContextPolicy",
    "ContextProject",
    "ContextProjectComponent",
    "ContextRequest",
    "ContextSnapshot",
    "CtxError",
    "Identity",
    "ModelProfile",
    "Task",
    "build",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
