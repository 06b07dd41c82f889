"""Building the demo, unless it is built already and nothing of it has changed since."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctx_pipeline import __version__
from ctx_pipeline.config.settings import load_config
from ctx_pipeline.errors import CtxError
from ctx_pipeline.machine_faults import typed_system_errors
from ctx_pipeline.text import canonical_json

BUILT = Path(".ctx") / "demo-built.json"


def build_demo(home: Path, build: Callable[[Path], object]) -> bool:
    """Build the demo in `home` with `build`; return False where it is built and nothing has
    changed.
    """
    noted = _noted(home)
    if noted is not None and noted == _state(home):
        return False
    before = _looks(home)
    build(home)
    # What was changed while the build read it is left to the next one.
    if (after := _state(home)) is not None and before == _looks(home):
        with typed_system_errors(home):
            (home / BUILT).write_text(after, encoding="utf-8")
    return True


def _looks(home: Path) -> dict[str, str] | None:
    """Return how each source looks without reading it; None where one cannot be looked at."""
    from ctx_pipeline.sources.fingerprint import source_fingerprint

    looks: dict[str, str] = {}
    for source in load_config(home).config.sources:
        look = source_fingerprint(source, home)
        if look is None:
            return None
        looks[source.name] = look.digest
    return looks


def _state(home: Path) -> str | None:
    """Return what the built demo is made from, as one text; None when it has to be built."""
    from ctx_pipeline.building.generation import current_generation
    from ctx_pipeline.index.artifact import read_pointer
    from ctx_pipeline.index.history import published_generation
    from ctx_pipeline.workspace import Workspace

    try:
        with Workspace.open(home) as workspace:
            pointer = read_pointer(workspace.layout)
            if pointer is None or published_generation(workspace.layout) != current_generation(
                workspace
            ):
                return None
            if not (workspace.layout.artifacts / pointer["artifact"] / "manifest.json").is_file():
                return None
            looks = _looks(home)
    except CtxError:
        # A build says what is wrong, or mends it.
        return None
    if looks is None:
        return None
    facts: dict[str, Any] = {
        "version": __version__,
        "artifact": pointer["content_hash"],
        "sources": looks,
        "settings": (home / "ctx.toml").read_text(encoding="utf-8"),
    }
    return canonical_json(facts)


def _noted(home: Path) -> str | None:
    try:
        text = (home / BUILT).read_text(encoding="utf-8")
        return canonical_json(json.loads(text))
    except (OSError, ValueError):
        return None
