from __future__ import annotations

from ctx_pipeline.contracts import FileCode, ItemKind, Trust


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_agent_files_are_instructions_of_their_folder(read, tmp_path):
    write(tmp_path, "guide/AGENTS.md", "# Root\n\nBe brief.\n")
    write(tmp_path, "guide/api/CLAUDE.md", "Be exact.\n")
    batch = read("instructions", "guide")
    assert batch.errors == ()
    root, api = batch.items
    assert (root.item_id, root.subject) == ("instruction:src/AGENTS.md", "instruction:guide")
    assert (api.item_id, api.subject) == ("instruction:src/api/CLAUDE.md", "instruction:guide/api")
    assert (api.provenance.locator.path, api.kind) == ("guide/api/CLAUDE.md", ItemKind.INSTRUCTION)
    assert (root.trust, root.authority, root.title) == (Trust.SYSTEM_TRUSTED, 95, "Root")


def test_the_root_folder_is_a_dot(read, tmp_path):
    write(tmp_path, "AGENTS.md", "Be brief.")
    assert read("instructions", "AGENTS.md").items[0].subject == "instruction:."


def test_other_texts_are_whole_policies_with_front_matter(read, tmp_path):
    body = "# Refunds\n\n" + "Never refund twice. " * 500
    write(tmp_path, "rules/refunds.md", f"---\nsubject: policy:refunds\ngroups: [cs]\n---\n{body}")
    write(tmp_path, "rules/data.json", "{}")
    (item,) = read("instructions", "rules").items
    assert (item.item_id, item.kind, item.subject) == (
        "policy:src/refunds.md",
        ItemKind.POLICY,
        "policy:refunds",
    )
    assert item.content == body.strip()
    assert item.scope.groups == ("cs",)
    assert (item.provenance.locator.line_start, item.provenance.locator.line_end) == (5, 7)


def test_a_policy_with_a_broken_head_is_not_loaded(read, tmp_path):
    write(tmp_path, "a.md", "---\ngroups: [cs\n---\nSecret")
    batch = read("instructions", "a.md")
    assert (batch.items, [error.code for error in batch.errors]) == (
        (),
        [FileCode.BAD_FRONT_MATTER],
    )


def test_real_skill_texts_with_hard_heads_load(read, corpora):
    batch = read("instructions", corpora / "skills_anthropic")
    assert batch.errors == ()
    assert len(batch.items) > 20
