"""Write the JSON Schemas of the public contracts: `python -m ctx_pipeline.contracts.schema`."""

from __future__ import annotations

import json
from pathlib import Path

from ctx_pipeline import contracts
from ctx_pipeline.contracts.base import Contract

FOLDER = Path(__file__).parent / "schemas"

PUBLISHED: tuple[type[Contract], ...] = (
    contracts.BuildReport,
    contracts.ContextDecisionTrace,
    contracts.ContextItem,
    contracts.ContextPack,
    contracts.ContextPolicy,
    contracts.ContextRequest,
    contracts.ContextSnapshot,
    contracts.LifecycleEvent,
    contracts.ModelProfile,
    contracts.PublishReport,
    contracts.RetireReport,
    contracts.SnapshotDiff,
    contracts.ToolContextItem,
)


def schema_text(model: type[Contract]) -> str:
    """Return the model's JSON Schema as it is checked in."""
    return (
        json.dumps(model.model_json_schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    )


def schema_path(model: type[Contract]) -> Path:
    """Return the file that holds the model's JSON Schema."""
    return FOLDER / f"{model.__name__}.schema.json"


def main() -> None:
    """Write every schema file anew."""
    FOLDER.mkdir(exist_ok=True)
    for model in PUBLISHED:
        schema_path(model).write_text(schema_text(model), encoding="utf-8")


if __name__ == "__main__":
    main()
