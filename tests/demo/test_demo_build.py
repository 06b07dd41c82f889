"""The demo is built once, and again only when something of it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctx_pipeline.demo import create_demo
from ctx_pipeline.demo.build import build_demo
from ctx_pipeline.orchestration.build import build
from ctx_pipeline.workspace import Workspace

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow
def test_the_demo_is_built_again_only_when_something_has_changed(tmp_path: Path):
    home = create_demo(tmp_path / "demo", rows=2_000).home

    def run(where: Path) -> object:
        return build(where, progress=False)

    assert build_demo(home, run)
    assert not build_demo(home, run)
    note = home / "documents" / "zh" / "new-note.md"
    note.write_text("# 新说明\n\n华东区的口径不变。\n", encoding="utf-8")
    assert build_demo(home, run)
    assert not build_demo(home, run)
    settings = home / "ctx.toml"
    settings.write_text(settings.read_text(encoding="utf-8") + "\n# 注\n", encoding="utf-8")
    assert build_demo(home, run)
    with Workspace.open(home) as workspace:
        pointer = workspace.layout.pointer
    pointer.unlink()
    assert build_demo(home, run)
    assert not build_demo(home, run)
