"""The checked-in JSON Schemas are those of the models."""

from __future__ import annotations

import json

import pytest

from ctx_pipeline.contracts.base import Contract
from ctx_pipeline.contracts.schema import FOLDER, PUBLISHED, schema_path, schema_text


@pytest.mark.parametrize("model", PUBLISHED, ids=lambda model: model.__name__)
def test_the_schema_file_is_what_the_model_says(model: type[Contract]):
    """After a change of a contract: `python -m ctx_pipeline.contracts.schema`."""
    assert schema_path(model).read_text(encoding="utf-8") == schema_text(model)


def test_no_schema_file_is_left_of_a_model_that_is_gone():
    assert {path.name for path in FOLDER.iterdir()} == {
        schema_path(model).name for model in PUBLISHED
    }


@pytest.mark.parametrize("model", PUBLISHED, ids=lambda model: model.__name__)
def test_a_schema_refuses_unknown_fields_and_names_its_version(model: type[Contract]):
    schema = json.loads(schema_text(model))
    assert schema["additionalProperties"] is False
    assert "schema_version" in schema["properties"]
