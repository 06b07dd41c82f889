from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from ctx_pipeline.config.settings import SourceConfig
from ctx_pipeline.contracts import FileCode, FileStatus, ItemKind
from ctx_pipeline.errors import ConfigError
from ctx_pipeline.sources import read_source
from ctx_pipeline.sources.code import git

if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)

IDENTITY = {
    "GIT_AUTHOR_NAME": "Hidden Name", "GIT_AUTHOR_EMAIL": "hidden@example.org",
    "GIT_COMMITTER_NAME": "Hidden Name",
    "GIT_COMMITTER_EMAIL": "hidden@example.org", "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


class Work:
    """A work tree that commits on given days."""

    def __init__(self, root):
        self.root = root
        root.mkdir(parents=True)
        self.run("init", "-q", "-b", "main")

    def run(self, *arguments: str, day: int = 1) -> str:
        date = f"2026-03-{day:02d}T12:00:00Z"
        env = {**os.environ, **IDENTITY, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=env, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def commit(self, files: dict[str, str | bytes], message: str, *, day: int) -> str:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.run("add", "-A")
        self.run("commit", "-q", "-m", message, day=day)
        return self.run("rev-parse", "HEAD")


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path / "repo")


FILES = {
    "README.md": "# Shop\n\nSells things. 卖东西。\n",
    "src/shop.py": "from util import x\n\ndef pay():\n    return x\n",
    "src/util.py": "x = 1\n",
    ".env": "KEY=hidden-secret\n",
    ".github/a.md": "# hidden\n",
    "logo.png": b"\x89PNG\0\0",
    "LICENSE": "Free.\n",
}


def by_id(batch) -> dict:
    return {item.item_id: item for item in batch.items}


def test_code_and_documents_of_the_head_become_items(read, work):
    head = work.commit(FILES, "First\n\nBody", day=1)
    batch = read("git", "repo")
    items = by_id(batch)
    assert batch.errors == ()
    assert items["document:src/README.md#1"].kind is ItemKind.DOCUMENT
    assert items["code:src/src/shop.py"].depends_on == ("code:src/src/util.py",)
    pay = items["code:src/src/shop.py::pay"].provenance
    assert (pay.source_type, pay.source_version) == ("git", head)
    assert (pay.locator.path, pay.locator.line_start, pay.locator.line_end) == (
        "repo/src/shop.py",
        3,
        4,
    )
    assert {item.provenance.source_version for item in batch.items} == {head}


def test_every_file_of_the_tree_is_accounted_for_and_hidden_ones_are_not_read(read, work):
    work.commit(FILES, "First", day=1)
    (work.root / "link.py").symlink_to("src/util.py")
    work.commit({}, "Link", day=2)
    batch = read("git", "repo")
    statuses = {file.path.removeprefix("repo/"): file.status for file in batch.files}
    assert set(statuses) == {*FILES, "link.py", git.HISTORY_NAME}
    skipped = {path for path, status in statuses.items() if status is FileStatus.SKIPPED}
    assert skipped == {".env", ".github/a.md", "logo.png", "link.py"}
    assert "hidden" not in "".join(item.content or "" for item in batch.items)


def test_what_is_not_committed_is_not_read(read, work):
    work.commit({"a.py": "x = 1\n"}, "First", day=1)
    (work.root / "a.py").write_text("x = 2\n", encoding="utf-8")
    (work.root / "b.py").write_text("y = 2\n", encoding="utf-8")
    items = by_id(read("git", "repo"))
    assert "x = 1" in (items["code:src/a.py"].content or "")
    assert "code:src/b.py" not in items


def test_an_item_names_the_commit_that_last_changed_its_file(read, work):
    first = work.commit({"a.py": "x = 1\n", "b.py": "y = 1\n"}, "First", day=1)
    untouched = by_id(read("git", "repo"))["code:src/a.py"]
    work.run("checkout", "-q", "-b", "side")
    work.commit({"b.py": "y = 2\n"}, "Side", day=2)
    work.run("checkout", "-q", "main")
    work.run("merge", "-q", "--no-ff", "-m", "Merge", "side", day=3)
    merge = work.run("rev-parse", "HEAD")
    items = by_id(read("git", "repo"))
    assert items["code:src/a.py"] == untouched
    assert items["code:src/a.py"].provenance.source_version == first
    assert items["code:src/b.py"].provenance.source_version == merge


def test_a_file_whose_last_change_lies_too_far_back_has_its_blob_as_version(
    read, work, monkeypatch
):
    work.commit({"old.py": "x = 1\n"}, "First", day=1)
    head = work.commit({"new.py": "y = 1\n"}, "Second", day=2)
    blob = work.run("rev-parse", "HEAD:old.py")
    monkeypatch.setattr(git, "BLAME_COMMITS", 1)
    items = by_id(read("git", "repo"))
    assert items["code:src/old.py"].provenance.source_version == f"blob:{blob}"
    assert items["code:src/new.py"].provenance.source_version == head


def test_the_history_names_days_and_summaries_and_no_people(read, work, monkeypatch):
    first = work.commit({"a.py": "x = 1\n"}, "Erster Wurf 第一次\n\nlong body", day=1)
    second = work.commit({"a.py": "x = 2\n"}, "Second", day=2)
    history = by_id(read("git", "repo"))["code:src/@history"]
    assert (history.kind, history.subject) == (ItemKind.CODE, "history:src")
    assert (history.content or "").split("\n") == [
        f"HEAD: {second}",
        "commits, newest first:",
        f"- {second[:10]} 2026-03-02 Second",
        f"- {first[:10]} 2026-03-01 Erster Wurf 第一次",
    ]
    monkeypatch.setattr(git, "HISTORY_COMMITS", 1)
    text = by_id(read("git", "repo"))["code:src/@history"].content or ""
    assert "[truncated: older commits are not listed]" in text
    assert first[:10] not in text


def test_a_bare_repository_and_a_linked_work_tree_read_alike(read, work, tmp_path):
    work.commit(FILES, "First", day=1)
    work.run("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    work.run("worktree", "add", "-q", str(tmp_path / "linked"), "HEAD")
    ids = [item.item_id for item in read("git", "repo").items]
    assert [item.item_id for item in read("git", "bare.git").items] == ids
    assert [item.item_id for item in read("git", "linked").items] == ids


def test_a_folder_inside_a_repository_is_not_taken_for_it(read, work):
    work.commit({"sub/a.py": "x = 1\n"}, "First", day=1)
    batch = read("git", "repo/sub")
    assert batch.items == ()
    assert [(error.path, error.code) for error in batch.errors] == [
        ("repo/sub", FileCode.UNREADABLE)
    ]


@pytest.mark.parametrize("path", ["nothing", "a\0b", "../nothing"])
def test_a_missing_folder_is_one_error(read, path):
    batch = read("git", path)
    assert (batch.items, [error.code for error in batch.errors]) == ((), [FileCode.MISSING])


def test_a_repository_without_commits_is_one_error(read, work):
    assert [error.code for error in read("git", "repo").errors] == [FileCode.MISSING]


def test_without_the_parser_the_documents_and_the_history_are_read(read, work, monkeypatch):
    from ctx_pipeline.sources.code import grammars as code_grammars

    work.commit({"a.py": "x = 1\n", "README.md": "# 说明\n\n你好。\n"}, "First", day=1)
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    code_grammars.language_of.cache_clear()
    batch = read("git", "repo")
    code_grammars.language_of.cache_clear()
    assert [error.path for error in batch.errors] == ["repo/a.py"]
    assert "ctx-pipeline[code]" in batch.errors[0].message
    assert set(by_id(batch)) >= {"document:src/README.md#1", "code:src/@history"}


def test_a_repository_elsewhere_is_refused(tmp_path):
    source = SourceConfig(name="s", kind="git", path="https://example.org/a.git")
    with pytest.raises(ConfigError):
        read_source(source, tmp_path, tenant="acme")


@pytest.mark.parametrize("content", ["gitdir: /nowhere", "nonsense", "", "gitdir:"])
def test_a_git_file_that_leads_nowhere_is_one_error(read, tmp_path, content):
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / ".git").write_text(content, encoding="utf-8")
    assert [error.code for error in read("git", "repo").errors] == [FileCode.UNREADABLE]


def test_no_program_of_the_repository_runs(read, work, tmp_path):
    work.commit(
        {".gitattributes": "*.py filter=evil diff=evil\n", "a.py": "x = 1\n"}, "First", day=1
    )
    canary = tmp_path / "canary"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n", encoding="utf-8")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "core.sshCommand", "gpg.program", "diff.external",
        "filter.evil.smudge",
        "filter.evil.process", "diff.evil.textconv", "diff.evil.command", "core.askPass",
        "credential.helper",
    ):  # fmt: skip
        work.run("config", key, str(script))
    work.run("config", "log.showSignature", "true")
    hooks = work.root / ".git" / "hooks"
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        shutil.copy(script, hooks / name)
    batch = read("git", "repo")
    assert batch.errors == ()
    assert "code:src/a.py" in by_id(batch)
    assert not canary.exists()


def test_variables_of_the_caller_do_not_lead_elsewhere(read, work, tmp_path, monkeypatch):
    work.commit({"a.py": "x = 1\n"}, "First", day=1)
    other = Work(tmp_path / "other")
    other.commit({"b.py": "y = 1\n"}, "Other", day=1)
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "broken")
    batch = read("git", "repo")
    assert batch.errors == ()
    assert "code:src/a.py" in by_id(batch)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_repository_of_another_user_is_read_because_the_source_names_it(read, work):
    work.commit({"a.py": "x = 1\n"}, "First", day=1)
    for path in (work.root, work.root / ".git"):
        os.chown(path, 12345, 12345)
    batch = read("git", "repo")
    assert batch.errors == ()
    assert "code:src/a.py" in by_id(batch)


def test_a_damaged_object_is_an_error_of_its_file_alone(read, work):
    work.commit({"a.py": "x = 1\n", "b.py": "y = 1\n"}, "First", day=1)
    sha = work.run("rev-parse", "HEAD:a.py")
    loose = work.root / ".git" / "objects" / sha[:2] / sha[2:]
    loose.unlink()
    batch = read("git", "repo")
    assert [(error.path, error.code) for error in batch.errors] == [
        ("repo/a.py", FileCode.UNREADABLE)
    ]
    assert "code:src/b.py" in by_id(batch)


def test_a_file_above_the_limit_is_an_error_and_the_next_is_read(read, work):
    work.commit(
        {"a.md": "x" * (9 * 1024 * 1024), "b.md": "text\n", "c.md": b"\xff\xfe\0"}, "First", day=1
    )
    batch = read("git", "repo", max_file_bytes=1_000)
    assert {error.path: error.code for error in batch.errors} == {
        "repo/a.md": FileCode.TOO_LARGE,
        "repo/c.md": FileCode.NOT_UTF8,
    }
    assert "document:src/b.md#1" in by_id(batch)


def test_names_of_any_bytes_are_read(read, work):
    work.commit({"目录/文件 1.md": "内容\n", 'q"uote.md': "text\n"}, "First", day=1)
    (work.root.joinpath(os.fsdecode(b"\xff.md"))).write_text("raw\n", encoding="utf-8")
    work.commit({}, "Second", day=2)
    batch = read("git", "repo")
    assert batch.errors == ()
    names = ("目录/文件 1.md", 'q"uote.md', "\ufffd.md")
    assert {f"document:src/{name}#1" for name in names} <= set(by_id(batch))
    versions = {item.provenance.source_version for item in batch.items}
    assert all(len(version or "") == 40 for version in versions)


def test_submodules_are_named_and_not_entered(read, work, tmp_path):
    other = Work(tmp_path / "other")
    sha = other.commit({"b.py": "y = 1\n"}, "Other", day=1)
    work.commit({"a.py": "x = 1\n"}, "First", day=1)
    work.run("update-index", "--add", "--cacheinfo", f"160000,{sha},libs/other")
    work.run("commit", "-q", "-m", "Module", day=2)
    files = {file.path: file.reason for file in read("git", "repo").files}
    assert "submodule" in (files["repo/libs/other"] or "")
