"""The map of the house: its rooms by floor, and what each imports, as the code has it."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = "ctx_pipeline"
LAYERS_CONTRACT = "Arrows point one way between rooms"


def floors() -> list[list[str]]:
    """Return the rooms of each floor, from the ground up, as the import contract orders them."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["name"] == LAYERS_CONTRACT)
    return [[room.strip() for room in layer.split("|")] for layer in reversed(layers)]


def arrows() -> dict[str, set[str]]:
    """Return which other rooms each room imports, inside functions too."""
    graph = grimp.build_graph(PACKAGE)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            room, other = _room(module), _room(imported)
            if room and other and room != other:
                found[room].add(other)
    return found


def meanings() -> dict[str, str]:
    """Return what each room is for, as the map in AGENTS.md says."""
    text = (REPOSITORY / "AGENTS.md").read_text(encoding="utf-8")
    block = text.split("## Layout", 1)[1].split("```")[1]
    lines = (line.split(maxsplit=1) for line in block.strip().splitlines())
    return {
        path.removeprefix(f"{PACKAGE}/").rstrip("/").removesuffix(".py"): meaning.strip()
        for path, meaning in lines
        if path.startswith(f"{PACKAGE}/")
    }


def _room(module: str) -> str:
    """Return the room of a module; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def rooms_table() -> list[tuple[str, ...]]:
    """Return the rows of the map, the top floor first: floor, room, what it owns and imports."""
    imports, owns = arrows(), meanings()
    return [
        (
            str(number) if number else "ground",
            f"`{room}`",
            owns[room],
            ", ".join(f"`{other}`" for other in sorted(imports[room])) or "nothing of ours",
        )
        for number, rooms in reversed(list(enumerate(floors())))
        for room in rooms
    ]
