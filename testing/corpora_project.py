"""A context project made of the public corpora: real manifests, schemas, tools, documents and
records.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb

TENANT = "acme"
METRICFLOW = "metricflow_manifests/metricflow_semantics/test_helpers/semantic_manifest_yamls"
MANIFESTS = {
    "mf_simple": f"{METRICFLOW}/simple_manifest",
    "mf_scd": f"{METRICFLOW}/scd_manifest",
    "mf_multi_hop": f"{METRICFLOW}/multi_hop_join_manifest",
    "dsi_simple": "dsi_manifests/tests/fixtures/semantic_manifest_yamls/simple_semantic_manifest",
}
DATABASES = ("debit_card_specializing", "financial", "student_club", "superhero", "toxicology")

_COLUMN = re.compile(r'^\s*(?:"([^"]+)"|(\w+))\s+\w+')
_TABLE = re.compile(r'^CREATE TABLE (?:"([^"]+)"|(\w+))')


def make_corpora_project(home: Path, corpora: Path) -> Path:
    """Write a project over the corpora into `home` and return it. Reads the
    corpora where they are.
    """
    home.mkdir(parents=True, exist_ok=True)
    sources = [
        _source(name, "semantic_registry", str(corpora / path)) for name, path in MANIFESTS.items()
    ]
    for database in DATABASES:
        make_database(
            home / "warehouse" / f"{database}.duckdb",
            corpora / f"bird_mini_dev/schemas/{database}.sql",
        )
        sources.append(_source(database, "schema_metadata", f"warehouse/{database}.duckdb"))
    sources.append(_source("github", "tools", str(corpora / "github_mcp_tools/snaps")))
    write_faq(home / "faq", corpora)
    sources.append(_source("faq", "documents", "faq"))
    sources.append(
        _source("skills", "documents", str(corpora / "skills_anthropic/skills/*/SKILL.md"))
    )
    sources.append(_source("records", "documents", str(corpora / "context_bench/files")))
    head = f"""[project]
name = "corpora"
tenant = "{TENANT}"
default_model = "gpt-5"

[identity]
principal = "ana"
tenant = "{TENANT}"
groups = ["analysts"]
clearance = "confidential"
"""
    (home / "ctx.toml").write_text("\n".join([head, *sources]), encoding="utf-8")
    return home


def _source(name: str, kind: str, path: str) -> str:
    grants = 'sensitivity = "internal"\ngroups = ["*"]'
    return f'[[sources]]\nname = "{name}"\nkind = "{kind}"\npath = {json.dumps(path)}\n{grants}\n'


def write_faq(folder: Path, corpora: Path) -> None:
    """Write each question and answer as one Markdown document, `000.md` onward."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        (corpora / "docs_cn_versions/faq_qa_first110.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    for number, line in enumerate(lines):
        entry = json.loads(line)
        text = f"# {entry['question']}\n\n{entry['text']}\n"
        (folder / f"{number:03d}.md").write_text(text, encoding="utf-8")


def make_database(target: Path, ddl: Path) -> None:
    """Create the tables of a commented DDL file in a new DuckDB database, comments included."""
    target.parent.mkdir(parents=True, exist_ok=True)
    text = ddl.read_text(encoding="utf-8")
    with duckdb.connect(str(target)) as connection:
        connection.execute(re.sub(r"^--.*$", "", text, flags=re.MULTILINE))
        for statement in _comments(text):
            connection.execute(statement)


def _comments(ddl: str) -> list[str]:
    """Return a COMMENT statement for each table and column that a comment line stands above."""
    statements: list[str] = []
    table, note = "", ""
    for line in ddl.splitlines():
        if line.startswith("--"):
            words = line[2:].strip()
            if (
                not note
                and words
                and not words.startswith(("Stats:", "Foreign keys:", "[", "{", "}", "]", '"'))
            ):
                note = words
            continue
        if opened := _TABLE.match(line):
            table = opened.group(1) or opened.group(2)
            target = f'TABLE "{table}"'
        elif table and (column := _COLUMN.match(line)):
            target = f'COLUMN "{table}"."{column.group(1) or column.group(2)}"'
        else:
            continue
        if note:
            quoted = note.replace("'", "''")
            statements.append(f"COMMENT ON {target} IS '{quoted}'")
        note = ""
    return statements
