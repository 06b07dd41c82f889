"""Questions with what answers them, and the pools they are asked of: real projects made of the
public corpora.

Pool and split are fixed here. A question belongs to one half by its hash: parameters are chosen on
the `choose` half, results are those of the `report` half. No question is ever text of an item.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from testing.corpora_project import DATABASES, make_database

SEED = "ctx-retrieval-1"
METATOOL_PER_HALF = 800
TENANT = "bench"
Half = Literal["choose", "report"]
HALVES: tuple[Half, ...] = ("choose", "report")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the units that answer it."""

    text: str
    gold: frozenset[str]
    half: Half


@dataclass(frozen=True, slots=True)
class Source:
    """One `[[sources]]` entry of a pool."""

    name: str
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Pool:
    """A project and the questions that are asked of it."""

    name: str
    home: Path
    sources: tuple[Source, ...]
    questions: tuple[Question, ...]
    unit: Callable[[str], str | None]
    """Unit that an item id counts as; None: it is not what the questions ask for."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What is counted of a ranking: `hit` or `recall` within `k` units, or `fit` (recall within `k`
    tokens).
    """

    name: str
    how: Literal["hit", "recall", "fit"]
    k: int


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Pools that are measured together. The first measure is the one that has a target."""

    name: str
    pools: tuple[Pool, ...]
    measures: tuple[Measure, ...]
    plain: Callable[[str, str, str], str] = field(
        default=lambda _kind, title, content: f"{title}\n{content}"
    )
    """Text that the plain arms know an item by: of kind, title and content."""


def corpora() -> Path:
    """Return the folder of the corpora."""
    return Path(os.environ.get("CTX_CORPORA", "../shared/corpora"))


def half_of(name: str, text: str) -> Half:
    """Return the half that a question of a set belongs to."""
    return HALVES[_digest(name, text)[0] & 1]


def _digest(name: str, text: str) -> bytes:
    return hashlib.sha256(f"{SEED}:{name}:{text}".encode()).digest()


def _questions(
    name: str, pairs: Iterable[tuple[str, Iterable[str]]], per_half: int | None = None
) -> tuple[Question, ...]:
    """Merge what is asked twice; of each half keep the `per_half` questions of lowest hash."""
    gold: dict[str, set[str]] = {}
    for text, units in pairs:
        gold.setdefault(text, set()).update(units)
    ordered = sorted(
        (text for text, units in gold.items() if units), key=lambda text: _digest(name, text)[1:]
    )
    made = [Question(text, frozenset(gold[text]), half_of(name, text)) for text in ordered]
    return tuple(
        question for half in HALVES for question in [q for q in made if q.half == half][:per_half]
    )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _after_slash(item_id: str) -> str:
    return item_id.partition("/")[2]


def _document(item_id: str) -> str:
    return _after_slash(item_id).partition("#")[0]


def _column(item_id: str) -> str | None:
    name = _after_slash(item_id).lower()
    return name if "." in name else None


def _tool_text(_kind: str, title: str, content: str) -> str:
    """A tool's name, description and, where it has parameters, their schema."""
    tool = json.loads(content)
    schema = json.dumps(tool["input_schema"], ensure_ascii=False) if tool["input_schema"] else ""
    return "\n".join(part for part in (title, tool["description"], schema) if part)


def metatool(work: Path) -> QuestionSet:
    """Requests to one of 199 tools that have a name and a description."""
    folder = corpora() / "metatool"
    tools: Mapping[str, str] = json.loads((folder / "plugin_des.json").read_text(encoding="utf-8"))
    home = work / "metatool"
    _write_json(
        home / "tools/tools.json",
        [{"name": name, "description": text} for name, text in tools.items()],
    )
    with (folder / "all_clean_data.csv").open(encoding="utf-8", newline="") as file:
        pairs = [(row["Query"], [row["Tool"]]) for row in csv.DictReader(file)]
    questions = _questions("metatool", pairs, METATOOL_PER_HALF)
    pool = Pool("metatool", home, (Source("tools", "tools", "tools"),), questions, _after_slash)
    measures = (
        Measure("hit@5", "hit", 5),
        Measure("hit@1", "hit", 1),
        Measure("hit@10", "hit", 10),
    )
    return QuestionSet("metatool", (pool,), measures, _tool_text)


def bfcl(work: Path) -> QuestionSet:
    """Requests to the functions they need, among all functions of the corpus by name; the first
    definition counts.
    """
    folder = corpora() / "bfcl/data"
    rows = _json_lines(folder / "BFCL_v4_live_multiple.json")
    others = [
        tool
        for path in sorted((folder / "multi_turn_func_doc").glob("*.json"))
        for tool in _json_lines(path)
    ]
    tools: dict[str, Any] = {}
    for tool in (*(tool for row in rows for tool in row["function"]), *others):
        tools.setdefault(tool["name"], tool)
    home = work / "bfcl"
    _write_json(home / "tools/tools.json", list(tools.values()))
    answers = {
        row["id"]: [name for call in row["ground_truth"] for name in call]
        for row in _json_lines(folder / "possible_answer/BFCL_v4_live_multiple.json")
    }
    pairs = [(row["question"][0][-1]["content"], answers[row["id"]]) for row in rows]
    questions = _questions("bfcl", pairs)
    pool = Pool("bfcl", home, (Source("tools", "tools", "tools"),), questions, _after_slash)
    fits = tuple(Measure(f"fit {tokens}", "fit", tokens) for tokens in (2_000, 1_000, 4_000))
    return QuestionSet(
        "bfcl live_multiple", (pool,), (*fits, Measure("hit@5", "hit", 5)), _tool_text
    )


def bird(work: Path) -> QuestionSet:
    """Analytics questions with evidence to the columns of their SQL, each
    within its own database.
    """
    folder = corpora() / "bird_mini_dev"
    rows = json.loads((folder / "mini_dev_refs.json").read_text(encoding="utf-8"))
    pools: list[Pool] = []
    for database in DATABASES:
        home = work / f"bird_{database}"
        target = home / f"{database}.duckdb"
        if not target.exists():
            make_database(target, folder / f"schemas/{database}.sql")
        columns = _ddl_columns((folder / f"schemas/{database}.sql").read_text(encoding="utf-8"))
        pairs = [
            (
                f"{row['question']} {row['evidence']}",
                {name.lower() for name in row["sql_refs"]["columns"]} & columns,
            )
            for row in rows
            if row["db_id"] == database
        ]
        source = Source(database, "schema_metadata", f"{database}.duckdb")
        pools.append(Pool(f"bird {database}", home, (source,), _questions("bird", pairs), _column))
    measures = tuple(Measure(f"recall@{k}", "recall", k) for k in (10, 20, 40))
    return QuestionSet("bird columns", tuple(pools), measures)


def scenario(work: Path) -> QuestionSet:
    """Long tasks, the turns of a conversation in one, to all functions that they need; pool and
    corpus of `bfcl`.
    """
    (pool,) = bfcl(work).pools
    documents = corpora() / "bfcl/data/multi_turn_func_doc"
    names = {tool["name"] for path in documents.glob("*.json") for tool in _json_lines(path)}
    pairs = [
        (
            " ".join(
                message["content"]
                for turn in row["question"]
                for message in turn
                if message["role"] == "user"
            ),
            {name.rpartition(".")[2] for name in row["path"]} & names,
        )
        for row in _json_lines(corpora() / "bfcl/data/BFCL_v4_multi_turn_base.json")
    ]
    asked = replace(pool, name="scenario", questions=_questions("scenario", pairs))
    measures = (
        Measure("recall@10", "recall", 10),
        Measure("recall@20", "recall", 20),
        Measure("fit 4000", "fit", 4_000),
    )
    return QuestionSet("bfcl scenario", (asked,), measures, _tool_text)


_TABLE = re.compile(r'^CREATE TABLE (?:"([^"]+)"|(\w+))')
_FIELD = re.compile(r'^\s*(?:"([^"]+)"|(\w+))\s+\w+')


def _ddl_columns(ddl: str) -> frozenset[str]:
    found: set[str] = set()
    table = ""
    for line in ddl.splitlines():
        if opened := _TABLE.match(line):
            table = (opened.group(1) or opened.group(2)).lower()
        elif table and not line.startswith("--") and (column := _FIELD.match(line)):
            found.add(f"{table}.{(column.group(1) or column.group(2)).lower()}")
    return frozenset(found)


def faq(work: Path) -> QuestionSet:
    """Chinese product questions to their answers, among all Chinese documents of the corpora."""
    rows = _json_lines(corpora() / "docs_cn_versions/faq_qa_first110.jsonl")
    home = work / "faq"
    (home / "answers").mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        (home / f"answers/{number:03d}.md").write_text(row["text"] + "\n", encoding="utf-8")
    pairs = [(row["question"], [f"{number:03d}.md"]) for number, row in enumerate(rows)]
    pool = Pool(
        "faq",
        home,
        (Source("answers", "documents", "answers"),),
        _questions("faq", pairs),
        _document,
    )
    measures = (
        Measure("hit@5", "hit", 5),
        Measure("hit@1", "hit", 1),
        Measure("hit@10", "hit", 10),
    )
    return QuestionSet("chinese faq", (pool,), measures, lambda _kind, _title, content: content)


def context_bench(work: Path) -> QuestionSet:
    """Multi-hop questions to the files they need: a chunk of a file counts as the file."""
    folder = corpora() / "context_bench"
    home = work / "context_bench"
    home.mkdir(parents=True, exist_ok=True)
    rows = _json_lines(folder / "filesystem_cloud_first50.jsonl")
    pairs = [(row["input"], row["agent_args"]["extra"]["required_files"]) for row in rows]
    source = Source("records", "documents", str((folder / "files").resolve()))
    pool = Pool("context_bench", home, (source,), _questions("context_bench", pairs), _document)
    return QuestionSet("context_bench", (pool,), (Measure("fit 4000", "fit", 4_000),))


def memory(work: Path) -> QuestionSet:
    """Questions about earlier conversations to the message that holds the answer, each within its
    scenario.
    """
    folder = corpora() / "bfcl/data"
    asked = {row["id"]: row for row in _json_lines(folder / "BFCL_v4_memory.json")}
    answers = {
        row["id"]: row for row in _json_lines(folder / "possible_answer/BFCL_v4_memory.json")
    }
    pools: list[Pool] = []
    for scenario in sorted({row["scenario"] for row in asked.values()}):
        messages: dict[str, str] = {}
        for talk in _json_lines(folder / f"memory_prereq_conversation/memory_{scenario}.json"):
            for turn, part in enumerate(talk["question"]):
                messages[f"{talk['id']}.{turn}"] = part[-1]["content"]
        home = work / f"memory_{scenario}"
        (home / "memories").mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"id": key, "text": text}, ensure_ascii=False)
            for key, text in messages.items()
        ]
        (home / "memories/memories.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        pairs = [
            (row["question"][0][-1]["content"], _holders(str(answers[key]["source"]), messages))
            for key, row in asked.items()
            if row["scenario"] == scenario
        ]
        source = Source("memories", "memories", "memories")
        pools.append(
            Pool(f"memory {scenario}", home, (source,), _questions("memory", pairs), _after_slash)
        )
    measures = (
        Measure("hit@5", "hit", 5),
        Measure("hit@1", "hit", 1),
        Measure("fit 1000", "fit", 1_000),
    )
    return QuestionSet(
        "bfcl memory", tuple(pools), measures, lambda _kind, _title, content: content
    )


def _holders(source: str, messages: Mapping[str, str]) -> list[str]:
    """Return the messages that hold the longest part of a source sentence."""
    parts = [_folded(part) for part in source.split("...") if part.strip()]
    longest = max(parts, key=len, default="")
    return [key for key, text in messages.items() if longest and longest in _folded(text)]


def _folded(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


SETS: tuple[Callable[[Path], QuestionSet], ...] = (
    metatool,
    bfcl,
    scenario,
    bird,
    faq,
    context_bench,
    memory,
)


def unit_ranking(pool: Pool, item_ids: Sequence[str]) -> list[str | None]:
    """Return the unit of each item id in order; None where an item or its unit has been counted."""
    seen: set[str] = set()
    units: list[str | None] = []
    for item_id in item_ids:
        unit = pool.unit(item_id)
        units.append(None if unit is None or unit in seen else unit)
        if unit is not None:
            seen.add(unit)
    return units
