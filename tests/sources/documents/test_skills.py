from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind
from ctx_pipeline.sources import read_source


@pytest.fixture
def skill(read, tmp_path):
    """Read one skill from its text."""

    def run(text: str | bytes, folder: str = "one", **settings):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "SKILL.md").write_bytes(
            text.encode() if isinstance(text, str) else text
        )
        return read("skills", **settings)

    return run


def head(*lines: str, body: str = "Do it.") -> str:
    return "\n".join(["---", *lines, "---", "", body, ""])


def test_a_skill_says_its_name_description_tools_and_body(skill):
    batch = skill(
        head(
            "name: refunds",
            "description: Pays refunds. 办理退款。",
            "allowed-tools: Read, Bash(git:*), mcp__shop__refund",
            "license: Apache-2.0",
            "compatibility: Python 3.11",
            "metadata:",
            '  version: "1.2"',
            "groups: [support]",
            "colour: blue",
            body="# Steps\n\n1. Look up the order. 查询订单。",
        )
    )
    assert batch.errors == ()
    (item,) = batch.items
    assert (item.item_id, item.kind, item.subject) == (
        "skill:src/refunds",
        ItemKind.SKILL,
        "skill:refunds",
    )
    assert (item.title, item.version, item.authority) == ("refunds", "1.2", 70)
    assert item.depends_on == ("tool:*/Read", "tool:*/mcp__shop__refund")
    assert item.scope.groups == ("support",)
    assert item.content == (
        "Skill: refunds\n"
        "Description: Pays refunds. 办理退款。\n"
        "Allowed tools: Read, Bash(git:*), mcp__shop__refund\n"
        "Compatibility: Python 3.11\n"
        "License: Apache-2.0\n"
        "Folder: one\n\n"
        "# Steps\n\n1. Look up the order. 查询订单。"
    )
    assert (item.provenance.locator.path, item.provenance.locator.line_end) == ("one/SKILL.md", 15)


def test_a_long_body_is_cut_and_each_part_needs_the_skill(skill):
    parts = "\n\n".join(f"## Part {n}\n\n" + f"Sentence {n} of the skill. " * 60 for n in range(5))
    text = head("name: long", "description: d", body=parts)
    first, *others = skill(text).items
    assert first.item_id == "skill:src/long"
    assert [item.item_id for item in others] == [
        f"skill:src/long#{n}" for n in range(2, len(others) + 2)
    ]
    assert {item.depends_on for item in others} == {("skill:src/long",)}
    assert {item.subject for item in others} == {"skill:long"}
    assert others[-1].title == "long > Part 4"
    lines = text.split("\n")
    for item in others:
        locator = item.provenance.locator
        assert "\n".join(lines[locator.line_start - 1 : locator.line_end]).strip() == item.content
    assert all(len(item.content or "") < 2_000 for item in (first, *others))


def test_a_body_of_some_length_stays_whole_and_chinese_counts_twice(skill):
    assert len(skill(head("name: a", "description: d", body="word " * 700)).items) == 1
    assert len(skill(head("name: a", "description: d", body="退款。" * 600)).items) == 1
    assert len(skill(head("name: a", "description: d", body="退款。" * 800)).items) > 1


def test_bundled_files_are_listed_and_not_loaded(skill, tmp_path):
    (tmp_path / "one" / "scripts").mkdir(parents=True)
    (tmp_path / "one" / "scripts" / "run.py").write_bytes(b"secret = 1")
    (tmp_path / "stray.md").write_text("stray", encoding="utf-8")
    for number in range(50):
        (tmp_path / "one" / f"{number:02d}.txt").write_bytes(b"x" * 1_234)
    batch = skill(head("name: one", "description: d"))
    content = batch.items[0].content or ""
    assert "- 00.txt (1,234 bytes)" in content
    assert "- and 11 more files" in content
    assert "secret" not in content
    reasons = {file.path: file.reason for file in batch.files}
    assert reasons["one/scripts/run.py"] == "bundled with one/SKILL.md: listed, not loaded"
    assert reasons["stray.md"] == "lies in no folder with a SKILL.md"
    assert {file.status for file in batch.files} == {FileStatus.LOADED, FileStatus.SKIPPED}


def test_a_file_belongs_to_the_nearest_skill(read, tmp_path):
    for folder in ("outer", "outer/inner"):
        (tmp_path / folder).mkdir()
        text = head(f"name: {folder[-5:]}", "description: d")
        (tmp_path / folder / "SKILL.md").write_text(text, encoding="utf-8")
    (tmp_path / "outer" / "inner" / "x.txt").write_text("x", encoding="utf-8")
    contents = {item.title: item.content or "" for item in read("skills").items}
    assert "x.txt" in contents["inner"]
    assert "x.txt" not in contents["outer"]


# --- recovery


@pytest.mark.parametrize(
    "text",
    [
        head("name: a", "description: Configure the harness: Hooks, MCP", "allowed-tools: Read"),
        "\ufeff"
        + head("name: a", "description: Configure the harness: Hooks, MCP", "allowed-tools: Read"),
        head(
            "name: a", "description: Configure the harness: Hooks, MCP", "allowed-tools: Read"
        ).replace("\n", "\r\n"),
        head("name: a", "description:\tConfigure the harness: Hooks, MCP", "allowed-tools:\tRead"),
        head(
            "name: a",
            "description: Configure the harness: Hooks, MCP",
            "allowed-tools:",
            "\t- Read",
        ),
        head(
            "name: a",
            "description: >-",
            "  Configure the harness:",
            "  Hooks, MCP",
            "allowed-tools: [Read]",
        ),
        "\n\n"
        + head(
            "name: a", "description: 'Configure the harness: Hooks, MCP'", "allowed-tools: [Read]"
        ),
    ],
)
def test_a_head_that_yaml_stumbles_over_is_recovered_with_its_tools(skill, text):
    batch = skill(text)
    assert batch.errors == ()
    content = batch.items[0].content or ""
    assert "Description: Configure the harness: Hooks, MCP\n" in content
    assert "Allowed tools: Read\n" in content
    assert batch.items[0].depends_on == ("tool:*/Read",)


@pytest.mark.parametrize(
    ("value", "tools"),
    [
        ("Read", ["Read"]),
        ("Read Grep", ["Read", "Grep"]),
        ("Read, Grep,Glob", ["Read", "Grep", "Glob"]),
        ("[Read, Grep]", ["Read", "Grep"]),
        (
            "Bash(git add:*), Bash(npm run test, build)",
            ["Bash(git add:*)", "Bash(npm run test, build)"],
        ),
        ("Bash(git: status) Read", ["Bash(git: status)", "Read"]),
        ("Read，Read", ["Read"]),
        ("mcp__github__*", ["mcp__github__*"]),
        ("[]", []),
        ("查询订单", ["查询订单"]),
    ],
)
def test_tools_are_read_in_every_usual_way(skill, value, tools):
    batch = skill(head("name: a", "description: d", f"allowed-tools: {value}"))
    assert batch.errors == ()
    assert f"Allowed tools: {', '.join(tools) or 'none'}\n" in (batch.items[0].content or "")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["name: a", "description: d", "allowed-tools: [Read, Grep"], 4),
        (["name: a", "description: d", "allowed-tools: Bash(git"], 4),
        (["name: a", "description: d", "allowed-tools: Read)"], 4),
        (["name: a", "description: d", "allowed-tools:"], 4),
        (["name: a", "description: d", "allowed-tools: {Read: true}"], 4),
        (["name: a", "description: d", "allowed-tools: true"], 4),
        (["name: a", "description: d", "allowed-tools: [[Read]]"], 4),
        (["name: a", "description: d", "allowed-tools: ['']"], 4),
        (["name: a", "description: d", "allowed-tools: '*'"], 4),
        (["name: a", "description: d", "allowed_tools: Read"], 4),
        (["name: a", "description: d", "Allowed-Tools: Read"], 4),
        (["name: a", "description: d", "allowedTools: [Read]"], 4),
        (["name: a", "description: d", "allowed-tools: Read", "allowed-tools: Bash"], 5),
        (["name: a", "description: d", "disallowed_tools: Bash"], 4),
        (["name: a", "description: d", "groups: [hr"], 4),
        (["name: a", "description: d", "groups:"], 4),
        (["name: a", "description: d", "sensitivity: top"], 4),
        (["name: a", "description: d", "allowed-tools: !!python/object:os.system [Read]"], 4),
        (["name: a"], 1),
        (["name: a", "description:"], 3),
        (["name: a", "description: ''"], 3),
        (["name: a", "description: [d]"], 3),
        (["description: d"], 1),
        (["name: a/b", "description: d"], 2),
        (["name: a#2", "description: d"], 2),
        (["name: ''", "description: d"], 2),
        ([f"name: {'a' * 65}", "description: d"], 2),
        (["name: a", f"description: {'d' * 5_000}"], 3),
        (["just a sentence"], 1),
        ([], 1),
    ],
)
def test_a_skill_whose_head_cannot_be_trusted_is_refused_with_its_line(skill, lines, line):
    batch = skill(head(*lines, body="Secret body"))
    assert batch.items == ()
    assert [(error.path, error.code, error.line) for error in batch.errors] == [
        ("one/SKILL.md", FileCode.BAD_FRONT_MATTER, line)
    ]
    assert "Secret" not in batch.errors[0].message
    assert batch.files[0].status is FileStatus.FAILED


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: a\ndescription: d\nallowed-tools: Read\n\nSecret body",
        "name: a\n\nSecret body",
        "",
        "---",
    ],
)
def test_a_head_that_is_not_closed_is_refused(skill, text):
    batch = skill(text)
    assert batch.items == ()
    assert [(error.code, error.line) for error in batch.errors] == [(FileCode.BAD_FRONT_MATTER, 1)]


def test_the_name_in_the_head_counts_and_the_folder_is_said(skill):
    (item,) = skill(head("name: refunds", "description: d"), folder="payments").items
    assert item.item_id == "skill:src/refunds"
    assert "Folder: payments" in (item.content or "")


@pytest.mark.parametrize("second", ["same", "SAME", "ｓａｍｅ"])
def test_of_two_skills_with_one_name_the_first_is_kept(read, tmp_path, second):
    for folder, name in (("a", "same"), ("b", second)):
        (tmp_path / folder).mkdir()
        text = head(f"name: {name}", f"description: from {folder}")
        (tmp_path / folder / "SKILL.md").write_text(text, encoding="utf-8")
    batch = read("skills")
    assert [item.item_id for item in batch.items] == ["skill:src/same"]
    assert "from a" in (batch.items[0].content or "")
    assert [(error.path, error.code, error.line) for error in batch.errors] == [
        ("b/SKILL.md", FileCode.DUPLICATE_ID, 2)
    ]


def test_permissions_in_the_metadata_count(skill):
    (item,) = skill(
        head("name: a", "description: d", "metadata:", "  groups: [hr]", "  author: ana")
    ).items
    assert item.scope.groups == ("hr",)


def test_a_single_file_and_a_glob_name_skills(read, tmp_path):
    (tmp_path / "s" / "a").mkdir(parents=True)
    (tmp_path / "s" / "a" / "SKILL.md").write_text(
        head("name: a", "description: d"), encoding="utf-8"
    )
    for path in ("s/a/SKILL.md", "s/*/SKILL.md", "s/a", "s"):
        assert [item.item_id for item in read("skills", path).items] == ["skill:src/a"]


@given(lines=st.lists(st.sampled_from([
    "name: a", "description: d", "description: a: b", "allowed-tools: Read", "allowed-tools: [Read",
    "\t- x", "---",
    "allowed-tools:", "  - Read", "metadata:", "  x: y", "groups: [hr]", "\x00", "key", "- item",
    "'", '"', "&a", "*a",
]), max_size=8))  # fmt: skip
def test_no_head_loses_its_tools(tmp_path_factory, lines):
    home = tmp_path_factory.mktemp("home")
    (home / "SKILL.md").write_text("\n".join(["---", *lines, "---", "body"]), encoding="utf-8")
    batch = read_source(
        SourceConfig(name="s", kind="skills", path=".", groups=("*",)), home, tenant="acme"
    )
    assert bool(batch.items) != bool(batch.errors)
    restricted = any(
        line.startswith("allowed-tools")
        for line in lines[: lines.index("---") if "---" in lines else 99]
    )
    for item in batch.items[:1]:
        assert ("Allowed tools: " in (item.content or "")) == restricted


def test_fourteen_real_skills_load(read, corpora):
    batch = read("skills", corpora / "skills_anthropic")
    assert batch.errors == ()
    skills = [item for item in batch.items if "#" not in item.item_id]
    assert len(skills) == 14
    assert {"skill:src/template-skill", "skill:src/claude-api"} <= {item.item_id for item in skills}
    assert all("Description: " in (item.content or "") for item in skills)
    api = [item for item in batch.items if item.item_id.startswith("skill:src/claude-api#")]
    assert len(api) > 20
    assert read("skills", corpora / "skills_anthropic") == batch
