"""What project files say of import names: path aliases of `tsconfig.json`, workspace packages, Go
modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any, cast

from ctx_pipeline.sources.formats.json_lines import JsonProblem, load_json

MAX_PROJECT_BYTES = 256 * 1024
MAX_EXTENDS = 5

_PROJECT_NAME = re.compile(
    r"^(?:tsconfig(?:\.[\w-]+)?\.json|jsconfig\.json|package\.json|go\.mod)$"
)
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:\\.|[^"\\\n])*")|,(?=\s*[}\]])')
_GO_MODULE = re.compile(r"^\s*module\s+(\S+)", re.MULTILINE)


def is_project_file(path: str) -> bool:
    """Say whether a file tells how import names are resolved."""
    return _PROJECT_NAME.match(PurePosixPath(path).name) is not None


@dataclass(frozen=True, slots=True)
class _Aliases:
    base: str | None
    """Folder that bare names start from."""
    paths: tuple[tuple[str, tuple[str, ...]], ...]
    """Pattern with at most one `*` -> patterns of paths relative to the source."""


@dataclass(frozen=True, slots=True)
class Projects:
    """Names by the folder of the project file that defines them."""

    aliases: Mapping[str, _Aliases] = field(default_factory=dict[str, _Aliases])
    packages: Mapping[str, tuple[str, tuple[str, ...]]] = field(
        default_factory=dict[str, tuple[str, tuple[str, ...]]]
    )
    """Package name -> its folder and its entry files."""
    go_modules: Mapping[str, str] = field(default_factory=dict[str, str])
    """Module prefix -> folder."""

    def script_bases(self, path: str, target: str) -> Iterator[str]:
        """Yield where a bare JavaScript import may lie, most specific first,
        without a file ending.
        """
        for folder in _upward(path):
            aliases = self.aliases.get(folder)
            if aliases is None:
                continue
            for pattern, places in aliases.paths:
                star = _match(pattern, target)
                yield from (place.replace("*", star) for place in places if star is not None)
            if aliases.base is not None:
                yield _join(aliases.base, target)
            break
        parts = target.split("/")
        head = 2 if target.startswith("@") else 1
        known = self.packages.get("/".join(parts[:head]))
        if known is not None:
            folder, entries = known
            rest = "/".join(parts[head:])
            yield from (_join(folder, f"{inside}{rest}") for inside in ("", "src/")) if rest else ()
            yield from (
                (_join(folder, entry) for entry in (*entries, "src/index", "index"))
                if not rest
                else ()
            )
        if target.startswith(("@/", "~/")):
            yield from (
                _join(folder, f"{inside}{target[2:]}")
                for folder in _upward(path)
                for inside in ("src/", "")
            )

    def go_folder(self, target: str) -> str | None:
        """Return the folder of a Go package of this source."""
        for module, folder in sorted(self.go_modules.items(), key=lambda pair: -len(pair[0])):
            if target == module:
                return folder
            if target.startswith(f"{module}/"):
                return _join(folder, target[len(module) + 1 :])
        return None


def read_projects(texts: Mapping[str, str]) -> Projects:
    """Read project files by path; one that cannot be understood defines nothing."""
    settings = {path: _json(text) for path, text in texts.items() if path.endswith(".json")}
    aliases: dict[str, _Aliases] = {}
    packages: dict[str, tuple[str, tuple[str, ...]]] = {}
    for path, values in sorted(settings.items()):
        pure = PurePosixPath(path)
        folder = "" if pure.parent.as_posix() == "." else pure.parent.as_posix()
        if pure.name in ("tsconfig.json", "jsconfig.json"):
            aliases[folder] = _aliases(path, settings)
        elif pure.name == "package.json" and isinstance(values.get("name"), str):
            entries = tuple(
                str(values[key]) for key in ("source", "types", "module", "main") if values.get(key)
            )
            packages.setdefault(values["name"], (folder, entries))
    modules = {
        match.group(1): path.rpartition("/")[0]
        for path, text in sorted(texts.items())
        if path.endswith("go.mod") and (match := _GO_MODULE.search(text))
    }
    return Projects(aliases, packages, modules)


def _json(text: str) -> dict[str, Any]:
    """Return the object of a JSON text with comments and trailing commas; empty
    for anything else.
    """
    plain = _TRAILING.sub(
        lambda match: match.group(1) or "", _COMMENT.sub(lambda match: match.group(1) or "", text)
    )
    try:
        value = load_json(plain)
    except JsonProblem:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _aliases(path: str, settings: Mapping[str, dict[str, Any]]) -> _Aliases:
    base: str | None = None
    paths: dict[str, tuple[str, ...]] | None = None
    for _ in range(MAX_EXTENDS):
        folder = path.rpartition("/")[0]
        options = settings[path].get("compilerOptions")
        options = cast("dict[str, Any]", options) if isinstance(options, dict) else {}
        own = options.get("baseUrl")
        if isinstance(own, str) and base is None:
            base = _join(folder, own)
        mapped = options.get("paths")
        if isinstance(mapped, dict) and paths is None:
            start = _join(folder, own) if isinstance(own, str) else folder
            paths = {
                str(pattern): tuple(_join(start, str(place)) for place in cast("list[Any]", places))
                for pattern, places in cast("dict[Any, Any]", mapped).items()
                if isinstance(places, list)
            }
        parent = settings[path].get("extends")
        path = _join(folder, parent) if isinstance(parent, str) and parent.startswith(".") else ""
        path = path if path in settings or not path else f"{path}.json"
        if path not in settings:
            break
    return _Aliases(base, tuple((paths or {}).items()))


def _match(pattern: str, target: str) -> str | None:
    """Return what `*` of a pattern stands for; an empty text where the pattern has none and is the
    target.
    """
    head, star, tail = pattern.partition("*")
    if not star:
        return "" if pattern == target else None
    fits = (
        len(target) >= len(head) + len(tail) and target.startswith(head) and target.endswith(tail)
    )
    return target[len(head) : len(target) - len(tail)] if fits else None


def _upward(path: str) -> Iterator[str]:
    for folder in PurePosixPath(path).parents:
        yield "" if folder.as_posix() == "." else folder.as_posix()


def _join(folder: str, target: str) -> str:
    joined = normpath(f"{folder}/{target}" if folder else target)
    return "" if joined == "." else joined
