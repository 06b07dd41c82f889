from __future__ import annotations

import json

import pytest

from ctx_pipeline.contracts import FileCode, Trust


@pytest.fixture
def lines(read, tmp_path):
    """Read memory lines given as mappings or raw text."""

    def run(*records: object, **settings):
        raw = (
            line if isinstance(line, str) else json.dumps(line, ensure_ascii=True)
            for line in records
        )
        (tmp_path / "notes.jsonl").write_text("\n".join(raw), encoding="utf-8")
        return read("memories", "notes.jsonl", **settings)

    return run


def found(batch) -> list[tuple[FileCode, int | None]]:
    return [(error.code, error.line) for error in batch.errors]


def test_a_line_becomes_a_memory(lines):
    (item,) = lines(
        {
            "id": "m1",
            "text": "Ana prefers weekly reports.",
            "subject": "user:ana",
            "created_at": "2026-01-01T00:00:00Z",
            "observed_at": "2026-01-02T08:00:00+08:00",
            "principals": ["ana"],
            "sensitivity": "confidential",
            "confidence": 0.5,
            "valid_until": "2027-01-01",
        }
    ).items
    assert (item.item_id, item.title, item.subject) == (
        "memory:src/m1",
        "Ana prefers weekly reports.",
        "user:ana",
    )
    assert (item.authority, item.trust, item.confidence) == (40, Trust.USER, 0.5)
    assert item.scope.principals == ("ana",)
    assert str(item.observed_at) == "2026-01-02 00:00:00+00:00"
    assert item.provenance.locator.line_start == item.provenance.locator.line_end == 1


def test_a_verified_memory_ranks_higher_unless_the_source_says_otherwise(lines):
    memory = {"id": "m", "text": "t", "last_verified_at": "2026-01-01T00:00:00Z"}
    assert lines(memory).items[0].authority == 70
    assert lines(memory, authority=50).items[0].authority == 50


def test_a_memory_cannot_raise_its_trust(lines):
    assert lines({"id": "m", "text": "t", "trust": "system_trusted"}).items[0].trust is Trust.USER
    assert (
        lines({"id": "m", "text": "t", "trust": "tool_untrusted"}).items[0].trust
        is Trust.TOOL_UNTRUSTED
    )


def test_json_null_means_the_sources_default(lines):
    (item,) = lines(
        {"id": "m", "text": "t", "groups": None, "tenant": None, "sensitivity": None}
    ).items
    assert (item.scope.tenant, item.scope.groups) == ("acme", ("*",))


def test_bad_lines_are_reported_and_the_others_load(lines):
    batch = lines(
        {"id": "a", "text": "kept"},
        "{not json",
        "",
        {"id": "b"},
        {"text": "no id"},
        [1, 2],
        {"id": "c", "text": "   "},
        {"id": "d", "text": "t", "observed_at": "2026-01-01T00:00:00"},
        {"id": "e", "text": "t", "groups": "hr", "tenant": True},
        '{"id": "f", "id": "g", "text": "t"}',
        '{"id": "h", "text": "t", "confidence": NaN}',
        {"id": "i", "text": "also kept \ud800 \0"},
    )
    assert [item.item_id for item in batch.items] == ["memory:src/a", "memory:src/i"]
    assert batch.items[1].content == "also kept \ufffd \ufffd"
    assert found(batch) == [
        (FileCode.BAD_JSON, 2),
        (FileCode.BAD_RECORD, 4),
        (FileCode.BAD_RECORD, 5),
        (FileCode.BAD_RECORD, 6),
        (FileCode.BAD_RECORD, 7),
        (FileCode.NAIVE_TIME, 8),
        (FileCode.BAD_RECORD, 9),
        (FileCode.BAD_JSON, 10),
        (FileCode.BAD_JSON, 11),
        (FileCode.HIDDEN_CHARACTERS, 12),
    ]


def test_the_same_text_again_is_one_memory_seen_later(lines):
    def seen(day: int, text: str = "Refunds take 3 days!") -> dict[str, str]:
        return {"id": "m", "text": text, "observed_at": f"2026-01-{day:02d}T00:00:00Z"}

    once = lines(seen(1)).items[0]
    batch = lines(seen(1), *(seen(9) for _ in range(10)), seen(5, "Refunds  take 3 days！"))
    assert batch.errors == ()
    (item,) = batch.items
    assert (item.version, item.content) == (once.version, once.content)
    assert str(item.observed_at) == "2026-01-09 00:00:00+00:00"


def test_another_text_without_version_replaces_the_earlier_line(lines):
    batch = lines(
        {"id": "m", "text": "30 days"}, {"id": "n", "text": "x"}, {"id": "m", "text": "14 days"}
    )
    assert {item.content for item in batch.items} == {"14 days", "x"}
    assert found(batch) == [(FileCode.DUPLICATE_ID, 1)]


def test_the_same_text_for_other_people_is_not_merged(lines):
    batch = lines(
        {"id": "m", "text": "t", "principals": ["ana"]},
        {"id": "m", "text": "t", "principals": ["bob"]},
    )
    assert [item.scope.principals for item in batch.items] == [("bob",)]
    assert found(batch) == [(FileCode.DUPLICATE_ID, 1)]


def test_declared_versions_are_versions_and_cannot_be_reused(lines):
    batch = lines(
        {"id": "m", "text": "30 days", "version": 1},
        {"id": "m", "text": "14 days", "version": 2},
        {"id": "m", "text": "7 days", "version": "2"},
    )
    assert [(item.version, item.content) for item in batch.items] == [
        ("1", "30 days"),
        ("2", "14 days"),
    ]
    assert found(batch) == [(FileCode.VERSION_REUSED, 3)]


def test_one_id_in_two_tenants_is_two_memories(lines):
    two = ({"id": "m", "text": "a", "tenant": "acme"}, {"id": "m", "text": "b", "tenant": "globex"})
    batch = lines(*two, tenants=["globex"])
    assert [item.scope.tenant for item in batch.items] == ["acme", "globex"]
    assert batch.errors == ()


def test_deep_and_long_lines_are_clean(lines):
    long = "长" * 400_000
    batch = lines(
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"id":"d","text":"t","x":' + "[" * 100 + "]" * 100 + "}",
        '{"id":"n","text":"t","x":' + "9" * 5_000 + "}",
        {"id": "m", "text": long},
    )
    assert [code for code, _ in found(batch)] == [FileCode.BAD_JSON] * 4
    assert batch.items[0].content == long


def test_only_line_feeds_end_a_line(read, tmp_path):
    text = "a\u2028b\x0bc\x85d"
    (tmp_path / "m.jsonl").write_bytes(
        b"\xef\xbb\xbf" + json.dumps({"id": "m", "text": text}, ensure_ascii=False).encode()
    )
    with (tmp_path / "m.jsonl").open("ab") as file:
        file.write(b'\r\n{"id": "n", "text": "\xff"}\r\n{"id": "o", "text": "t"}')
    batch = read("memories", "m.jsonl")
    assert [item.item_id for item in batch.items] == ["memory:src/m", "memory:src/o"]
    assert found(batch) == [(FileCode.NOT_UTF8, 2), (FileCode.HIDDEN_CHARACTERS, 1)]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("short", "short"),
        ("word " * 40, "word word word word word word word word word word word word…"),
        ("退" * 90, "退" * 60 + "…"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_title_is_cut_between_words(lines, text, title):
    assert lines({"id": "m", "text": text}).items[0].title == title
