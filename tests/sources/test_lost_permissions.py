"""A permission that a person wrote and the reader would not understand keeps the record out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ctx_pipeline
from ctx_pipeline.contracts import FileCode
from ctx_pipeline.sources.formats.front_matter import split_front_matter
from ctx_pipeline.sources.record_item import meant_permission

MISTYPED = (
    ("Groups", ["finance"]),
    ("Sensitivity", "restricted"),
    ("sensitivty", "restricted"),
    ("sensitivities", "restricted"),
    ("group", ["finance"]),
    ("gruops", ["finance"]),
    ("Tenant", "acme-corp"),
    ("tenent", "acme-corp"),
    ("principal", "ana"),
    ("Princi-pals", "ana"),
    ("ｇｒｏｕｐｓ", ["finance"]),
)


@pytest.fixture
def one(read, tmp_path):
    def run(text: str, name: str = "doc.md"):
        (tmp_path / name).write_bytes(text.encode())
        return read("documents", name)

    return run


def refused(batch) -> list[tuple[FileCode, int | None]]:
    assert batch.items == ()
    return [(error.code, error.line) for error in batch.errors]


@pytest.mark.parametrize(("key", "value"), MISTYPED)
def test_a_mistyped_permission_keeps_a_document_out(one, key, value):
    head = f"---\ntitle: T\n{key}: {json.dumps(value)}\n---\nSecret body"
    assert refused(one(head)) == [(FileCode.BAD_FRONT_MATTER, 3)]


@pytest.mark.parametrize(("key", "value"), MISTYPED)
def test_a_mistyped_permission_keeps_that_memory_out(read, tmp_path, key, value):
    records = ({"id": "h", "text": "kept"}, {"id": "i", "text": "t", key: value})
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    batch = read("memories", "m.jsonl")
    assert [item.item_id for item in batch.items] == ["memory:src/h"]
    assert [(error.code, error.line) for error in batch.errors] == [(FileCode.BAD_RECORD, 2)]


@pytest.mark.parametrize(
    "key",
    [
        *(
            "tenant",
            "principals",
            "groups",
            "sensitivity",
            "title",
            "subject",
            "tags",
            "grounds",
            "growth",
            "group_by",
        ),
        *("sensor", "description", "trust", "version", "g" * 100_000),
    ],
)
def test_an_exact_key_and_an_unrelated_key_are_not_near_misses(key):
    assert meant_permission(key) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("--- # comment\ngroups: [finance]\n---\nbody", 2),
        ("--- # comment\n# who may see it\n\ngroups: [finance]\n---\nbody", 4),
        ("---\ttab\ngroups: [finance]\n---\nbody", 2),
        ("----\ngroups: [finance]\n----\nbody", 2),
        (" ---\ngroups: [finance]\n ---\nbody", 2),
        ("\n\n--- #\ngroups: [finance]\n---\nbody", 4),
        ("\n \n\u200b\n---\ngroups: [finance]\n---\nbody", 5),
        ("<!-- licence -->\n---\ngroups: [finance]\n---\nbody", 3),
        ("<!-- licence -->\n\n---\n# who may see it\ngroups: [finance]\n---\nbody", 5),
        ("\u2028\u2028---\u2028groups: [finance]\u2028---\u2028body", 1),
        ("%YAML 1.2\n---\nsensitivity: restricted\n---\nbody", 3),
        ("---\u2028groups: [finance]\u2028---\u2028body", 1),
        ("---\x85Groups: [finance]\x85---\x85body", 1),
        ("---\n- groups: [finance]\n---\nbody", 2),
        ("---\n- title: T\n\n# note\n\n- Group: [finance]\n---\nbody", 6),
        ("---\n" + "- a: b\n" * 40 + "- groups: [finance]\n---\nbody", 42),
        ('+++\ntitle = "T"\ngroups = ["finance"]\n+++\nbody', 3),
        ("+++\n[access]\nsensitivty = 'restricted'\n+++\nbody", 3),
        ("--- {title: T, groups: [finance]}\n---\nbody", 1),
        ("---\ntitle: a: b\u2028groups: [finance]\n---\nbody", 2),
        ("---\ntitle: T\n--- # again\ngroups: [finance]\n---\nbody", 4),
        ("---\nTitle\nGroups: [finance]\nbody never closed", 3),
    ],
)
def test_a_head_that_is_not_read_keeps_its_document_out(one, text, line):
    assert refused(one(text)) == [(FileCode.BAD_FRONT_MATTER, line)]


@pytest.mark.parametrize(
    "text",
    [
        "Groups: finance and people may ask for access.\n\nTenant: whoever rents the flat.",
        "# Access\n\nGroups: [finance]\n\nSensitivity: restricted",
        "Intro\n\n---\n\ngroups: [finance]\n---\nA talk about front matter",
        "<!-- licence -->\n# Access\n\nGroups: finance",
        "---\n\n# Access\n\nGroups: finance",
        "--- # note\ntitle: T\n---\n# Access\n\ngroups: an example",
        "---\ntitle: T\n---\nGroups: finance\n\n---\n\nTenant: acme",
        "+++\ntitle = 'T'\n+++\nbody",
        "----\nA line, then text about groups of people: three.\n",
        "---\n" + "filler\n\n" * 40 + "groups: far below",
    ],
)
def test_prose_about_permissions_is_content(one, text):
    batch = one(text)
    assert batch.errors == ()
    assert len(batch.items) >= 1


def test_a_mistyped_permission_in_the_metadata_of_a_skill_keeps_it_out(read, tmp_path):
    (tmp_path / "SKILL.md").write_text(
        "---\nname: s\ndescription: d\nmetadata:\n  Groups: [hr]\n---\nbody"
    )
    assert refused(read("skills")) == [(FileCode.BAD_FRONT_MATTER, 4)]


def test_real_heads_and_texts_are_not_refused(corpora):
    demo = Path(ctx_pipeline.__file__).parent / "demo" / "files"
    files = [*demo.rglob("*.md"), *corpora.rglob("*.md"), *corpora.rglob("*.txt")]
    assert len(files) > 60
    for file in files:
        split_front_matter(file.read_text(encoding="utf-8", errors="replace"))
    faq = (
        (corpora / "docs_cn_versions" / "faq_qa_first110.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    for line in faq:
        for value in json.loads(line).values():
            split_front_matter(str(value))
