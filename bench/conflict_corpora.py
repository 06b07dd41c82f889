"""Conflicts that the public corpora give: what is reported for many questions, written out to be
judged by people.

The corpora are one project: metric registries, databases, memories, documents in English and
Chinese, mails.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from ctx_pipeline.building.refresh import refresh_source
from ctx_pipeline.contracts import ContextRequest, Task
from ctx_pipeline.index.artifact import Layout, read_pointer, read_table
from testing.artifacts import ANA, NOW, build_index, open_project, open_workspace
from testing.corpora_project import DATABASES, MANIFESTS, make_database, write_faq

JUDGED = 100
SCENARIOS = ("customer", "finance", "healthcare", "notetaker", "student")


def run_corpora(home: Path, corpora: Path, out: Path, seed: int) -> None:
    """Build the project, ask, and write at most `JUDGED` conflicts with both texts to `out`."""
    _write_project(home, corpora)
    with open_workspace(home) as workspace:
        for source in workspace.config.sources:
            report = refresh_source(workspace, source.name)
            print(f"{source.name:<20}{report.items:>6} items {len(report.errors):>4} errors")
    build_index(home)
    found = list(_reported(home, corpora, seed))
    rng = random.Random(seed)
    sample = found if len(found) <= JUDGED else rng.sample(found, JUDGED)
    out.write_text(
        "\n".join(json.dumps(entry, ensure_ascii=False) for entry in sample) + "\n",
        encoding="utf-8",
    )
    print(f"{len(found)} conflicts between two items, {len(sample)} in {out}")


def _reported(home: Path, corpora: Path, seed: int) -> Iterator[dict[str, Any]]:
    asked = 0
    contents, said = _contents(home), _Said(home)
    seen: set[tuple[str, ...]] = set()
    with open_project(home) as project:
        for text in _questions(home, corpora, seed):
            asked += 1
            pack = project.assemble(
                ContextRequest(task=Task(text=text), identity=ANA, token_budget=60_000), at=NOW
            )
            for record in pack.conflicts:
                sides = [
                    side.item_id for side in (record.winner, *record.losers) if side is not None
                ]
                for pair in combinations(sorted(sides), 2):
                    if pair in seen or not said.contradict(*pair):
                        continue
                    seen.add(pair)
                    yield {
                        "question": text,
                        "subject": record.subject,
                        "reason": record.reason,
                        "winner": record.winner.item_id if record.winner else None,
                        "sides": {side: contents.get(side, "") for side in pair},
                        "said": said.words(*pair),
                    }
        print(f"{asked} questions")


class _Said:
    """The contested claims of each item's newest version."""

    def __init__(self, home: Path) -> None:
        folder = _artifact(home)
        ids = read_table(folder / "discovered.arrow").column("item_id").to_pylist()
        table = read_table(folder / "claims.arrow")
        columns = [
            table.column(name).to_pylist() for name in ("claim_keys", "claim_values", "claim_about")
        ]
        self._claims = {
            item: {key: (value, about) for key, value, about in zip(*listed, strict=True)}
            for item, *listed in zip(ids, *columns, strict=True)
        }

    def contradict(self, left: str, right: str) -> bool:
        one, other = self._claims[left], self._claims[right]
        return any(key in other and other[key][0] != value for key, (value, _) in one.items())

    def words(self, left: str, right: str) -> list[list[str]]:
        one, other = self._claims[left], self._claims[right]
        return [
            [about, other[key][1]]
            for key, (value, about) in one.items()
            if key in other and other[key][0] != value
        ]


def _contents(home: Path) -> dict[str, str]:
    folder = _artifact(home)
    ids = read_table(folder / "discovered.arrow").column("item_id").to_pylist()
    return dict(
        zip(ids, read_table(folder / "transformed.arrow").column("full").to_pylist(), strict=True)
    )


def _artifact(home: Path) -> Path:
    layout = Layout(home)
    pointer = read_pointer(layout)
    assert pointer is not None
    return layout.artifacts / pointer["artifact"]


def _questions(home: Path, corpora: Path, seed: int) -> Iterator[str]:
    """Yield questions of the corpora, and the titles of everything that has a contested claim."""
    for line in (
        (corpora / "docs_cn_versions/faq_qa_first110.jsonl").read_text("utf-8").splitlines()
    ):
        yield json.loads(line)["question"]
    for entry in json.loads((corpora / "bird_mini_dev/mini_dev_refs.json").read_text("utf-8"))[
        :150
    ]:
        yield entry["question"]
    for line in (
        (corpora / "context_bench/filesystem_cloud_first50.jsonl").read_text("utf-8").splitlines()
    ):
        yield str(json.loads(line).get("question") or json.loads(line).get("query") or "records")
    for line in (corpora / "bfcl/data/BFCL_v4_memory.json").read_text("utf-8").splitlines():
        question = json.loads(line)["question"]
        yield question if isinstance(question, str) else question[0][0]["content"]
    folder = _artifact(home)
    keys = read_table(folder / "claims.arrow").column("claim_keys").to_pylist()
    found = read_table(folder / "discovered.arrow")
    titles, ids = found.column("title").to_pylist(), found.column("item_id").to_pylist()
    contested = [at for at, listed in enumerate(keys) if listed]
    print(
        f"{len(keys)} rows, {len(contested)} with contested claims, "
        f"{len({k for ks in keys for k in ks})} of these"
    )
    random.Random(seed).shuffle(contested)
    for at in contested:
        yield f"{titles[at]} {ids[at].rpartition('/')[2]}"


def _write_project(home: Path, corpora: Path) -> None:
    sources = [
        _source(name, "semantic_registry", str(corpora / path)) for name, path in MANIFESTS.items()
    ]
    migrated = "dsi_manifests/tests/fixtures/semantic_manifest_yamls/measure_migrated_manifest"
    sources.append(_source("dsi_migrated", "semantic_registry", str(corpora / migrated)))
    sources.append(_source("osi", "semantic_registry", str(corpora / "osi/examples")))
    products = _write_metric_hub(home, corpora)
    sources.extend(
        _source(f"hub_{product}", "semantic_registry", f"hub/{product}") for product in products
    )
    for database in DATABASES:
        make_database(
            home / "warehouse" / f"{database}.duckdb",
            corpora / f"bird_mini_dev/schemas/{database}.sql",
        )
        sources.append(_source(database, "schema_metadata", f"warehouse/{database}.duckdb"))
    write_faq(home / "faq", corpora)
    _write_memories(home / "memories", corpora)
    _write_mails(home / "mails", corpora)
    sources.append(_source("evidence", "memories", "memories/evidence.jsonl"))
    sources.extend(
        _source(f"talk_{name}", "memories", f"memories/{name}.jsonl") for name in SCENARIOS
    )
    for name, path in (
        ("faq", "faq"),
        ("mails", "mails"),
        ("records", str(corpora / "context_bench/files")),
        ("skills", str(corpora / "skills_anthropic/skills/*/SKILL.md")),
        ("demo_en", str(Path(__file__).parent.parent / "ctx_pipeline/demo/files/documents/en")),
        ("demo_zh", str(Path(__file__).parent.parent / "ctx_pipeline/demo/files/documents/zh")),
        ("osi_docs", str(corpora / "osi")),
        ("tau", str(corpora / "tau_bench/envs")),
    ):
        sources.append(_source(name, "documents", path))
    demo = Path(__file__).parent.parent / "ctx_pipeline/demo/files"
    sources.append(
        _source("demo_registry", "semantic_registry", str(demo / "semantic/metrics.yaml"))
    )
    sources.append(_source("demo_glossary", "glossary", str(demo / "semantic/glossary.yaml")))
    sources.append(_source("demo_memories", "memories", str(demo / "memories")))
    head = '[project]\nname = "corpora"\ntenant = "acme"\ndefault_model = "gpt-5"\n'
    (home / "ctx.toml").write_text("\n".join([head, *sources]), encoding="utf-8")


def _source(name: str, kind: str, path: str) -> str:
    grants = 'groups = ["*"]\nsensitivity = "internal"'
    return f'[[sources]]\nname = "{name}"\nkind = "{kind}"\npath = {json.dumps(path)}\n{grants}\n'


def _write_metric_hub(home: Path, corpora: Path) -> list[str]:
    """Write the definitions of each product as metrics with all their versions; return the
    products.
    """
    metrics: dict[str, list[dict[str, Any]]] = {}
    for line in (corpora / "metric_hub/versions.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        said = entry["def"]
        if entry["kind"] != "metrics" or entry.get("end") == "removed":
            continue
        record = {
            "name": entry["name"],
            "version": entry["version"],
            "valid_from": entry["valid_from"],
            "description": said.get("description"),
            "expression": said.get("select_expression"),
            "table": said.get("data_source"),
            "synonyms": [said["friendly_name"]] if said.get("friendly_name") else None,
        }
        record = {key: value for key, value in record.items() if value}
        metrics.setdefault(entry["product"], []).append(record)
    for product, listed in metrics.items():
        (home / "hub" / product).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"metrics": listed}, ensure_ascii=False)
        (home / "hub" / product / "metrics.json").write_text(text, encoding="utf-8")
    return sorted(metrics)


def _write_memories(folder: Path, corpora: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        lines: list[str] = []
        path = corpora / f"bfcl/data/memory_prereq_conversation/memory_{scenario}.json"
        for talk in (json.loads(line) for line in path.read_text("utf-8").splitlines()):
            said = [
                turn["content"]
                for turns in talk["question"]
                for turn in turns
                if turn["role"] == "user"
            ]
            lines += [
                json.dumps({"id": f"{talk['id']}-{at}", "text": text})
                for at, text in enumerate(said)
            ]
        (folder / f"{scenario}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    refs = json.loads((corpora / "bird_mini_dev/mini_dev_refs.json").read_text("utf-8"))
    evidence = [
        json.dumps({"id": f"q{entry['question_id']}", "text": entry["evidence"]})
        for entry in refs
        if entry["evidence"]
    ]
    (folder / "evidence.jsonl").write_text("\n".join(evidence), encoding="utf-8")


def _write_mails(folder: Path, corpora: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate(
        (corpora / "bipia/email/train.jsonl").read_text("utf-8").splitlines()
    ):
        text = json.loads(line)["context"].replace("|CONTENT:", "\n\n").replace("SUBJECT:", "# ")
        (folder / f"{number:03d}.md").write_text(text, encoding="utf-8")
