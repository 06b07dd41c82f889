from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ctx_pipeline.contracts import FileCode, ItemKind, Sensitivity, Trust
from ctx_pipeline.text import normalise, short_hash

MAX_REPEATED_LINES = 2
"""The header of a table and the rule below it; a fence is one line."""


@pytest.fixture
def one(read, tmp_path):
    """Read one document from its text."""

    def run(text: str | bytes, name: str = "doc.md", **settings):
        content = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(content)
        return read("documents", name, **settings)

    return run


def test_front_matter_governs_the_items(one):
    batch = one(
        "---\ntitle: Refunds\nversion: 1.10\nsubject: policy:refunds\nvalid_from: 2026-01-01\n"
        "valid_until: 2027-01-01T00:00:00+08:00\ntenant: "
        "globex\nprincipals: ana\ngroups: [hr, finance]\n"
        "sensitivity: restricted\nauthority: 10\ntrust: tool_untrusted\nsupersedes: [old.md]\n"
        "colour: blue\n---\nBody.\n",
        tenants=["globex"],
    )
    assert batch.errors == ()
    (item,) = batch.items
    assert (item.item_id, item.version, item.title) == ("document:src/doc.md#1", "1.10", "Refunds")
    assert (item.kind, item.subject, item.content) == (ItemKind.DOCUMENT, "policy:refunds", "Body.")
    assert item.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert item.valid_until == datetime(2026, 12, 31, 16, tzinfo=UTC)
    assert (item.scope.tenant, item.scope.principals, item.scope.groups) == (
        "globex",
        ("ana",),
        ("hr", "finance"),
    )
    assert (item.sensitivity, item.authority, item.trust) == (
        Sensitivity.RESTRICTED,
        10,
        Trust.TOOL_UNTRUSTED,
    )
    assert item.supersedes == ("old.md",)
    assert item.provenance.locator.line_start == item.provenance.locator.line_end == 16
    assert item.provenance.source_version == "1.10"


def test_a_document_cannot_promote_itself(one):
    (item,) = one("---\nauthority: 100\ntrust: system_trusted\n---\nBody").items
    assert (item.authority, item.trust) == (60, Trust.RETRIEVED_INTERNAL)


def test_naming_one_person_restricts_a_document_that_the_source_opens_to_all(one):
    (item,) = one("---\nprincipals: [ana]\n---\nBody").items
    assert (item.scope.principals, item.scope.groups) == (("ana",), ())


def test_an_empty_list_of_groups_denies_and_is_reported(one):
    batch = one("---\ngroups: []\n---\nBody")
    assert batch.items[0].scope.groups == ()
    assert [error.code for error in batch.errors] == [FileCode.MISSING_SCOPE]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_marks_and_newlines_change_nothing(one, mark, newline):
    text = "---\ntitle: T\ngroups: [hr]\n---\n# Head\n\nline 7\n"
    (item,) = one(mark + text.replace("\n", newline)).items
    assert (item.title, item.scope.groups, item.content) == (
        "T > Head",
        ("hr",),
        "# Head\n\nline 7",
    )
    assert (item.provenance.locator.line_start, item.provenance.locator.line_end) == (5, 7)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("title: Configure the harness: Hooks, MCP", "Configure the harness: Hooks, MCP"),
        ('title: say "hi": now', 'say "hi": now'),
        ("title: [draft] Refunds", "[draft] Refunds"),
        ("title: @team notes", "@team notes"),
        ("title: 退款: 政策", "退款: 政策"),
        ("title: `code` first", "`code` first"),
        ("title: *", "*"),
        ("title: yes", "yes"),
        ("title: 2026-01-01", "2026-01-01"),
    ],
)
def test_a_value_that_yaml_stumbles_over_is_recovered_with_its_permissions(one, line, title):
    batch = one(f"---\n{line}\ngroups: [hr]\n---\nBody")
    assert batch.errors == ()
    assert (batch.items[0].title, batch.items[0].scope.groups) == (title, ("hr",))


def test_tabs_in_a_list_are_recovered(one):
    batch = one("---\ntitle: T\ngroups:\n\t- hr\n---\nBody")
    assert batch.errors == ()
    assert batch.items[0].scope.groups == ("hr",)


@pytest.mark.parametrize(
    ("head", "line", "code"),
    [
        ("title: T\ngroups: [hr", 3, FileCode.BAD_FRONT_MATTER),
        ("groups: [*]", 2, FileCode.BAD_FRONT_MATTER),
        ("title: T\nsensitivity: top", 3, FileCode.BAD_FRONT_MATTER),
        ("title: T\nauthority: high", 3, FileCode.BAD_FRONT_MATTER),
        ("tenant: acme\ntenant: globex", 3, FileCode.BAD_FRONT_MATTER),
        ("title: T\ngroups:", 3, FileCode.BAD_FRONT_MATTER),
        ("groups: {hr: true}", 2, FileCode.BAD_FRONT_MATTER),
        ("groups: !!python/object:os.system [hr]", 2, FileCode.BAD_FRONT_MATTER),
        ("groups [hr]\ntenant : acme: x", 3, FileCode.BAD_FRONT_MATTER),
        ("title: T\nvalid_from: 2026-01-01T00:00:00", 3, FileCode.NAIVE_TIME),
        ("valid_from: 2026-01-01 10:00", 2, FileCode.NAIVE_TIME),
        ("valid_until: tomorrow", 2, FileCode.BAD_FRONT_MATTER),
        ("valid_from: 2026-02-01\nvalid_until: 2026-01-01", 1, FileCode.BAD_FRONT_MATTER),
    ],
)
def test_a_head_that_cannot_be_trusted_keeps_the_document_out(one, head, line, code):
    batch = one(f"---\n{head}\n---\nSecret body")
    assert batch.items == ()
    assert [(error.code, error.line) for error in batch.errors] == [(code, line)]
    assert "Secret" not in batch.errors[0].message


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: T\nno end",
        "---\n\ntext\n\n---\n\nmore",
        "---\njust a sentence\n---\nmore",
        "--- \n",
        "---",
    ],
)
def test_a_text_without_a_whole_head_is_content(one, text):
    batch = one(text)
    assert batch.errors == ()
    assert batch.items[0].content == text.strip()


def test_an_unclosed_head_with_permissions_is_refused(one):
    batch = one("---\ntitle: T\ngroups: [hr]\nSecret body")
    assert batch.items == ()
    assert [(error.code, error.line) for error in batch.errors] == [(FileCode.BAD_FRONT_MATTER, 3)]


def test_chunks_are_numbered_and_know_lines_and_headings(one):
    parts = [f"## Part {n}\n\n" + f"Sentence {n} of the handbook. " * 45 for n in range(1, 4)]
    text = "# Handbook\n\n" + "\n\n".join(parts) + "\n"
    batch = one("---\ntitle: Guide\n---\n" + text)
    lines = ("---\ntitle: Guide\n---\n" + text).split("\n")
    assert [item.item_id for item in batch.items] == [
        f"document:src/doc.md#{n}" for n in range(1, len(batch.items) + 1)
    ]
    assert len(batch.items) >= 3
    for item in batch.items:
        locator = item.provenance.locator
        assert item.content is not None
        assert "\n".join(lines[locator.line_start - 1 : locator.line_end]).strip() == item.content
    last = batch.items[-1]
    assert last.provenance.locator.heading_path == ("Handbook", "Part 3")
    assert last.title == "Guide > Part 3"
    assert last.version == short_hash(last.content)


def test_the_title_falls_back_to_the_heading_and_the_file_name(one):
    assert one("# Refund policy\n\ntext").items[0].title == "Refund policy"
    assert one("text", name="notes.txt").items[0].title == "notes.txt"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Orders &gt; Refunds &amp; R&D\n\nt", "Orders > Refunds & R&D"),
        ("# 退款 &#8212; 说明 &#x3e; 一\n\nt", "退款 — 说明 > 一"),
        ("# The `&gt;` of a query &copy2026\n\nt", "The `&gt;` of a query &copy2026"),
        ("# &nosuchname; &#99999999;\n\nt", "&nosuchname; &#99999999;"),
        ("---\ntitle: Orders &gt; Refunds\n---\nt", "Orders > Refunds"),
    ],
)
def test_character_references_of_a_title_are_the_characters(one, text, title):
    assert one(text).items[0].title == title


def test_a_reference_hides_nothing_in_a_title(one):
    (item,) = one("# left &#x202e;right &#0;\n\nt").items
    assert item.title.isprintable()
    assert item.provenance.locator.heading_path[0].isprintable()


def test_a_changed_chunk_changes_its_version_alone(one):
    parts = [f"# P{n}\n\n" + "words here. " * 120 for n in range(3)]
    before = {item.item_id: item.version for item in one("\n\n".join(parts)).items}
    parts[1] = parts[1].replace("words", "terms")
    after = {item.item_id: item.version for item in one("\n\n".join(parts)).items}
    assert [item_id for item_id in before if before[item_id] != after[item_id]] == [
        "document:src/doc.md#2"
    ]


def test_record_files_are_cut_between_records(read, corpora):
    batch = read("documents", corpora / "context_bench" / "files")
    assert batch.errors == ()
    assert len(batch.items) > 500
    assert all((item.content or "").startswith("### ") for item in batch.items)
    text = (corpora / "context_bench" / "files" / "pets.txt").read_text(encoding="utf-8")
    pets = [item for item in batch.items if item.item_id.startswith("document:src/pets.txt#")]
    assert sum((item.content or "").count("### ") for item in pets) == text.count("### ")


def test_real_documents_load_with_true_line_numbers(read, corpora):
    batch = read("documents", corpora / "osi")
    assert batch.errors == ()
    for item in batch.items:
        locator = item.provenance.locator
        name = item.item_id.removeprefix("document:src/").rsplit("#", 1)[0]
        lines = (corpora / "osi" / name).read_text(encoding="utf-8").split("\n")
        held = [
            normalise(line).strip() for line in lines[locator.line_start - 1 : locator.line_end]
        ]
        assert item.content is not None
        assert held[0]
        assert held[-1]
        shown = [line.strip() for line in item.content.split("\n")]
        begin = shown.index(held[0])
        assert shown[begin : begin + len(held)] == held
        # What cuts a code block or a table in two is mended by the line that opens it, its rule,
        # and a fence.
        assert begin <= 2
        assert shown[begin + len(held) :] in ([], ["```"])
