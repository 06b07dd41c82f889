"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

import ctx_pipeline
from ctx_pipeline import errors

REPOSITORY = Path(__file__).resolve().parent.parent
ROOMS = ("assets", "resources", "sensors")

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
OVERSIZE: dict[str, int] = {}
"""Path or path::function -> lines allowed. Only ever removed from."""

PUBLIC_NAMES = [
    "BuildReport",
    "ContextDecisionTrace",
    "ContextItem",
    "ContextPack",
    "ContextPolicy",
    "ContextProject",
    "ContextProjectComponent",
    "ContextRequest",
    "ContextSnapshot",
    "CtxError",
    "Identity",
    "ModelProfile",
    "Task",
    "build",
]

HEAVY = (
    "dagster",
    "duckdb",
    "lancedb",
    "numpy",
    "polars",
    "pyarrow",
    "pydantic",
    "tiktoken",
    "torch",
)

# Written in pieces, so that this file passes its own test.
FORBIDDEN = re.compile(
    "|".join(
        (
            "(?<![A-Za-z0-9_.-])/" + "work/",
            "/tmp/" + r"w\b",
            r"\b[Ii]ssues? ?#" + r"\d+",
            r"\bTO" + r"DO\b",
            r"\bFIX" + r"ME\b",
            "pypi" + r"\.org",
            "python" + "hosted",
            r"registry\.npm" + "js",
            "[Cc]laude" + "[ -][Cc]ode",
        )
    )
)
TEXT_SUFFIXES = {
    "",
    ".json",
    ".jsonl",
    ".lock",
    ".md",
    ".py",
    ".pyi",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}
NOT_OURS = {".git", ".venv", ".ctx", "build", "dist", "fixtures", "LICENSE"}


def _modules() -> Iterator[Path]:
    """Every module once: the rooms where they really are, not through their links."""
    for folder in ("ctx_pipeline", *ROOMS):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if not path.is_symlink() and path.resolve() == path:
                yield path


@lru_cache(maxsize=1)
def _trees() -> dict[str, ast.Module]:
    return {_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in _modules()}


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


def _sizes() -> dict[str, int]:
    """Return the lines of every module, and of every function as `path::name`."""
    sizes: dict[str, int] = {}
    for path, tree in _trees().items():
        sizes[path] = len((REPOSITORY / path).read_text(encoding="utf-8").splitlines())
        for node in _functions(tree):
            name = f"{path}::{node.name}"
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            sizes[name] = max(length, sizes.get(name, 0))
    return sizes


def _most(name: str) -> int:
    return MAX_FUNCTION_LINES if "::" in name else MAX_MODULE_LINES


def test_no_module_outgrows_its_room_and_no_function_a_screen():
    sizes = _sizes()
    assert len(sizes) > 1_000
    assert {name: n for name, n in sizes.items() if n > OVERSIZE.get(name, _most(name))} == {}


def test_the_list_of_exceptions_names_only_what_still_needs_one():
    sizes = _sizes()
    assert [name for name in OVERSIZE if sizes.get(name, 0) <= _most(name)] == []


def test_only_files_that_say_why_import_what_is_private_in_dagster():
    private: dict[str, str] = {}
    for path, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster._"):
                private[path] = ast.unparse(node)
    assert sorted(private) == ["resources/retention.py", "resources/run_records.py"], private


def test_public_surface_is_what_we_decided():
    assert ctx_pipeline.__all__ == sorted(ctx_pipeline.__all__)
    assert sorted(ctx_pipeline.__all__) == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_each_public_name_can_be_reached(name: str):
    assert getattr(ctx_pipeline, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        ctx_pipeline.no_such_name  # noqa: B018


def test_importing_the_package_loads_nothing_heavy():
    script = "import ctx_pipeline, sys; print(*sorted(set(sys.modules) & set(sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", script, *HEAVY],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.strip() == ""


def test_the_version_is_said_once():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == ctx_pipeline.__version__


def test_public_text_speaks_of_the_product_alone():
    found: list[str] = []
    for path in sorted(REPOSITORY.rglob("*")):
        parts = path.relative_to(REPOSITORY).parts
        hidden = any(part.startswith(".") and part not in {".ci", ".gitignore"} for part in parts)
        if (
            hidden
            or NOT_OURS.intersection(parts)
            or path.suffix not in TEXT_SUFFIXES
            or not path.is_file()
        ):
            continue
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        ):
            if match := FORBIDDEN.search(line):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}: {match.group()}")
    assert found == []


def test_the_check_of_public_text_would_find_a_path_of_this_machine():
    assert FORBIDDEN.search("see /wor" + "k/main for more")
    assert FORBIDDEN.search("fixed in issue " + "#12")
    assert not FORBIDDEN.search("a framework/library that works/runs")


def _dangerous(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                yield f"{owner}.{attribute}"
            case _:
                pass


def test_nothing_loads_pickles_or_unsafe_yaml_or_xml():
    banned = {
        "pickle",
        "cloudpickle",
        "dill",
        "marshal",
        "shelve",
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
    }
    found = {
        f"{path}: {name}"
        for path, tree in _trees().items()
        for name in _dangerous(tree)
        if name in banned or name.startswith("xml.")
    }
    assert found == set()


def test_the_library_never_prints():
    found = [
        f"{path}:{node.lineno}"
        for path, tree in _trees().items()
        if not path.startswith("ctx_pipeline/cli")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert found == []


def _error_classes() -> list[type[errors.CtxError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.CtxError)
    ]


def test_each_error_class_has_a_code_of_its_own():
    codes = [kind.__dict__.get("code") for kind in _error_classes()]
    assert None not in codes
    assert len(set(codes)) == len(codes)


def test_the_error_tree_at_the_top_of_the_file_is_the_real_one():
    tree = errors.__doc__ or ""
    for kind in _error_classes():
        line = next(
            (line for line in tree.splitlines() if re.search(rf"\b{kind.__name__}\b", line)), None
        )
        assert line is not None, kind
        if documented := re.search(r"HTTP (\d+), exit (\d+)(, retryable)?", line):
            http, code, retryable = documented.groups()
            assert (kind.http_status, kind.exit_code, kind.retryable) == (
                int(http),
                int(code),
                retryable is not None,
            )


def _map_of_the_house() -> list[str]:
    text = (REPOSITORY / "AGENTS.md").read_text(encoding="utf-8")
    block = text.split("## Layout", 1)[1].split("```")[1]
    return [line.split()[0] for line in block.strip().splitlines()]


def test_the_map_of_the_house_is_the_tree():
    named = _map_of_the_house()
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
    kept = {"__pycache__", "__init__.py", "py.typed"}
    rooms = {
        f"ctx_pipeline/{path.name}{'/' if path.is_dir() and not path.is_symlink() else ''}"
        for path in (REPOSITORY / "ctx_pipeline").iterdir()
        if path.name not in kept
    }
    assert rooms == {name for name in named if name.startswith("ctx_pipeline/")}


def test_the_map_runs_from_the_ground_up():
    contract = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contract["tool"]["importlinter"]["contracts"][0]["layers"]
    floor = {
        room.strip(): number
        for number, layer in enumerate(reversed(layers))
        for room in layer.split("|")
    }
    rooms = [
        Path(name).name.removesuffix(".py")
        for name in _map_of_the_house()
        if name.startswith("ctx_pipeline/")
    ]
    assert set(rooms) == set(floor)
    floors = [floor[room] for room in rooms]
    assert floors == sorted(floors)


def test_the_rooms_are_links_into_the_package():
    for room in ROOMS:
        link = REPOSITORY / "ctx_pipeline" / room
        assert link.is_symlink()
        assert link.resolve() == (REPOSITORY / room).resolve()


def test_the_dagster_settings_of_the_repository_are_accepted(tmp_path: Path):
    dagster = importlib.import_module("dagster")
    (tmp_path / "dagster.yaml").write_text(
        (REPOSITORY / "dagster.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    with dagster.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.run_monitoring_enabled
        assert instance.run_retries_enabled
        assert not instance.telemetry_enabled
        assert instance.get_settings("concurrency")["pools"] == {
            "granularity": "op",
            "default_limit": 1,
        }


def test_a_project_starts_with_the_dagster_settings_of_the_repository():
    import yaml

    from ctx_pipeline.orchestration.instance import INSTANCE_TEMPLATE

    ours = yaml.safe_load((REPOSITORY / "dagster.yaml").read_text(encoding="utf-8"))
    project = yaml.safe_load(INSTANCE_TEMPLATE)
    assert {key: project.get(key) for key in ours} == ours


def test_the_workspace_names_the_definitions_of_the_package():
    import yaml

    workspace = yaml.safe_load((REPOSITORY / "workspace.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (location,) = workspace["load_from"]
    target = project["tool"]["dg"]["project"]["code_location_target_module"]
    assert location["python_module"]["module_name"] == target


def test_the_lock_pins_every_dependency_within_its_floor_and_no_file():
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    outside = {
        requirement.name: pinned.get(canonicalize_name(requirement.name))
        for requirement in map(Requirement, wanted)
        if pinned.get(canonicalize_name(requirement.name), "0") not in requirement.specifier
    }
    assert outside == {}
    assert "torch" not in pinned


def test_guidance_for_agents_fits_on_a_few_screens():
    assert len((REPOSITORY / "AGENTS.md").read_text(encoding="utf-8").splitlines()) <= 150
