"""What the command line says where somebody has most likely meant something else."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ctx_pipeline.cli.app import app
from testing.artifacts import make_item, make_project


def ctx(home: Path, *words: str):
    return CliRunner().invoke(app, ["--home", str(home), *words], env={"CTX_HOME": None})


@pytest.mark.parametrize("text", ["", "  ", "\u3000\n"])
def test_an_empty_task_is_refused(tmp_path: Path, text: str):
    home = make_project(tmp_path, [make_item("a", "退款规则")])
    result = ctx(home, "assemble", text, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "no_text")


def test_names_joined_by_commas_are_shown_as_they_are_selected(tmp_path: Path):
    home = make_project(tmp_path, [make_item("a", "refunds")])
    result = ctx(home, "build", "--select", "sources/handbook,stages/rankd_items")
    assert result.exit_code == 2
    assert "'sources/handbook or stages/rankd_items'" in result.stderr
    assert "did you mean 'stages/ranked_items'?" in result.stderr


def test_runs_write_no_debugging_lines_to_a_terminal():
    import dagster as dg

    from ctx_pipeline.definitions import quiet_console

    fields = quiet_console.config_schema.config_type.fields
    given = {name: field.default_value for name, field in fields.items()}
    assert quiet_console(dg.build_init_logger_context(given)).level == logging.WARNING
