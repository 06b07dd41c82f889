"""What a project's settings need and is not installed is said before a build needs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ctx_pipeline.config.settings import load_config
from ctx_pipeline.inspection.packages import lacking
from ctx_pipeline.orchestration.doctor import diagnose

HEAD = '[project]\nname = "p"\ntenant = "acme"\n'


def source(kind: str, place: str) -> str:
    return f'[[sources]]\nname = "src"\nkind = "{kind}"\n{place}\n'


CASES = [
    (source("code", 'path = "src"'), "tree_sitter_go", "source 'src'", "code"),
    (source("git", 'path = "repo"'), "tree_sitter", "source 'src'", "code"),
    (source("sql", 'url = "postgresql://u@db/x"'), "psycopg", "source 'src'", "postgres"),
    (source("documents", 'path = "s3://bucket/docs"'), "s3fs", "source 'src'", "s3"),
    (source("documents", 'path = "zip://*.md::gs://bucket/a.zip"'), "gcsfs", "source 'src'", "gcs"),
    (source("documents", 'path = "abfs://c@a.host/docs"'), "adlfs", "source 'src'", "azure"),
    ('[embedder]\nmodel = "minilm-int8"\n', "onnxruntime", "[embedder] model", "minilm"),
    ('[embedder]\nmodel = "BAAI/bge-m3"\n', "sentence_transformers", "[embedder] model", "models"),
    (
        '[engine]\nreranker = "BAAI/bge-reranker-base"\n',
        "sentence_transformers",
        "[engine] reranker",
        "models",
    ),
    ('[policy_service]\nkind = "cedar"\npath = "p"\n', "cedarpy", "[policy_service]", "cedar"),
    ('[ledger]\nurl = "postgresql://u@db/x"\n', "psycopg", "[ledger] url", "postgres"),
    ('[dagster]\nurl = "postgresql://u@db/y"\n', "dagster_postgres", "[dagster] url", "postgres"),
]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes packages look as if they were not installed, and all others as
    if they were.
    """
    found = importlib.util.find_spec("json")

    def hide(*packages: str) -> None:
        monkeypatch.setattr(
            "ctx_pipeline.inspection.packages.find_spec",
            lambda name: None if name in packages else found,
        )

    return hide


@pytest.mark.parametrize(("text", "package", "where", "extra"), CASES)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, without, text, package, where, extra
):
    (tmp_path / "ctx.toml").write_text(HEAD + text, encoding="utf-8")
    loaded = load_config(tmp_path)
    without()
    assert lacking(loaded) == ()
    without(package)
    assert [(lack.where, lack.what, lack.fix) for lack in lacking(loaded)] == [
        (where, package, f"pip install 'ctx-pipeline[{extra}]'")
    ]


def test_the_doctor_says_what_is_missing_before_a_build(tmp_path: Path, without):
    text = source("code", 'path = "src"') + '[[sources]]\nname = "wh"\n'
    (tmp_path / "ctx.toml").write_text(
        HEAD + text + 'kind = "documents"\npath = "s3://bucket/docs"\n', encoding="utf-8"
    )
    without("tree_sitter", "s3fs")
    (check,) = [check for check in diagnose(tmp_path).checks if check.name == "packages"]
    assert (check.state, check.code) == ("fail", "missing_package")
    assert check.message == "source 'src' needs tree_sitter; source 'wh' needs s3fs"
    assert check.fix == "pip install 'ctx-pipeline[code]'; pip install 'ctx-pipeline[s3]'"


def test_a_plain_installation_reads_code():
    import tomllib

    root = Path(__file__).resolve().parent.parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    from ctx_pipeline.sources.code.grammars import GRAMMARS

    names = {
        line.split(">=")[0].split(";")[0].replace("-", "_") for line in project["dependencies"]
    }
    assert {"tree_sitter", *(grammar.package for grammar in GRAMMARS)} <= names
