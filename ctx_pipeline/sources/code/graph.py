"""Which files of a source need which others: imports resolved to paths, and the tests that cover a
file.

Exact for Python and JavaScript/TypeScript as far as the source's own files tell; other languages by
the usual layout of their projects. What is not found among the source's files is an external import
and has no edge.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from posixpath import normpath

from ctx_pipeline.index.relations import is_test
from ctx_pipeline.sources.code.parse import Import, ParsedFile
from ctx_pipeline.sources.code.projects import Projects

MAX_TARGETS = 200
"""Edges of one file."""
MAX_REEXPORTS = 5
MAX_PACKAGE_FILES = 50
SCRIPT_ENDINGS = (".ts", ".tsx", ".mts", ".cts", ".d.ts", ".js", ".jsx", ".mjs", ".cjs")
_SCRIPTS = frozenset(("javascript", "typescript", "tsx"))
_EMITTED = re.compile(r"\.(?:m|c)?jsx?$")
_INCLUDE_ENDINGS = {
    "c": ("",),
    "cpp": ("",),
    "bash": ("",),
    "ruby": (".rb", ""),
    "php": ("", ".php"),
}

_TEST_PART = re.compile(r"^test_|_test$|[._](?:spec|test)$|_spec$|Tests?$")


@dataclass(frozen=True, slots=True)
class Graph:
    """Edges between files by path; every target is a file of the source."""

    needs: Mapping[str, tuple[str, ...]]
    external: Mapping[str, tuple[str, ...]]
    """Imports that no file of the source answers, as they are written."""
    tests: Mapping[str, tuple[str, ...]]
    """The test files that cover a file, by path."""


def build_graph(
    files: Mapping[str, ParsedFile],
    languages: Mapping[str, str],
    projects: Projects,
    *,
    root_name: str = "",
) -> Graph:
    """Resolve every import.

    Args:
        files: Parsed files by path relative to the source's folder.
        languages: The grammar's name of each of them.
        projects: What project files (`tsconfig.json`, `package.json`, `go.mod`) say of names.
        root_name: Name of the source's own folder: it may itself be a Python package.
    """
    resolver = _Resolver(files, languages, projects, root_name)
    needs: dict[str, tuple[str, ...]] = {}
    external: dict[str, tuple[str, ...]] = {}
    for path, parsed in files.items():
        targets: dict[str, None] = {}
        unknown: dict[str, None] = {}
        for entry in parsed.imports:
            found = [target for target in resolver.resolve(path, entry) if target != path]
            targets.update(dict.fromkeys(found))
            if not found and not entry.target.startswith("."):
                unknown[entry.target] = None
        targets.update(dict.fromkeys(resolver.covered_by_name(path)))
        needs[path] = tuple(targets)[:MAX_TARGETS]
        external[path] = tuple(unknown)
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted(files):
        if is_test(path):
            for target in needs[path]:
                if not is_test(target):
                    tests[target].append(path)
    return Graph(needs, external, {path: tuple(names) for path, names in tests.items()})


@dataclass(slots=True)
class _Resolver:
    files: Mapping[str, ParsedFile]
    languages: Mapping[str, str]
    projects: Projects
    root_name: str
    modules: dict[str, str] = field(default_factory=dict[str, str])
    """Dotted Python module -> path."""
    folders: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    names: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Last part of a path -> paths."""

    def __post_init__(self) -> None:
        for path in self.files:
            self.folders.setdefault(_folder(path), []).append(path)
            self.names.setdefault(PurePosixPath(path).name, []).append(path)
        for path, language in self.languages.items():
            if language == "python":
                for module in self._module_names(path):
                    known = self.modules.get(module)
                    if known is None or (known.endswith(".pyi") and path.endswith(".py")):
                        self.modules[module] = path

    def resolve(self, path: str, entry: Import) -> Iterable[str]:
        language = self.languages[path]
        if language == "python":
            return self._python(path, entry)
        if language in _SCRIPTS:
            return self._script(path, entry.target)
        if language == "go":
            return self._go(entry.target)
        if language == "rust":
            return self._rust(path, entry.target)
        if (
            language in ("java", "php")
            and "/" not in entry.target
            and not entry.target.endswith(".php")
        ):
            return self._by_suffix(
                re.sub(r"[.\\]", "/", entry.target), ".java" if language == "java" else ".php"
            )
        return self._include(path, entry.target, _INCLUDE_ENDINGS.get(language, ()))

    def covered_by_name(self, path: str) -> Iterator[str]:
        """Yield the file beside a test that has its name without the test's mark."""
        if not is_test(path):
            return
        pure = PurePosixPath(path)
        stem, suffix = (pure.stem, pure.suffix)
        beside = f"{_TEST_PART.sub('', stem)}{suffix}"
        folder = pure.parent.parent if pure.parent.name == "__tests__" else pure.parent
        candidate = (folder / beside).as_posix()
        if beside != pure.name and candidate in self.files:
            yield candidate

    # Python

    def _module_names(self, path: str) -> Iterator[str]:
        parts = list(PurePosixPath(path).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        top = len(parts) - 1
        while top > 0 and self._is_package("/".join(parts[:top])):
            top -= 1
        if self.root_name and self._is_package(""):
            yield ".".join((self.root_name, *parts))
        for first in sorted({0, top, 1 if parts and parts[0] in ("src", "lib", "python") else 0}):
            if parts[first:]:
                yield ".".join(parts[first:])

    def _is_package(self, folder: str) -> bool:
        inside = f"{folder}/" if folder else ""
        return f"{inside}__init__.py" in self.files or f"{inside}__init__.pyi" in self.files

    def _python(self, path: str, entry: Import) -> Iterator[str]:
        dots = len(entry.target) - len(entry.target.lstrip("."))
        if dots:
            folder = PurePosixPath(path).parent
            for _ in range(dots - 1):
                folder = folder.parent
            base = (folder / entry.target.lstrip(".").replace(".", "/")).as_posix()
            yield from self._python_names("" if base == "." else base, entry.names)
            return
        module = self.modules.get(entry.target)
        if module is None and entry.names:
            # A namespace package has no file of its own, its modules have.
            found = [self.modules.get(f"{entry.target}.{name}") for name in entry.names]
            yield from (target for target in found if target)
        if module is None:
            beside = (PurePosixPath(path).parent / entry.target.replace(".", "/")).as_posix()
            yield from self._python_names(beside, entry.names)
            return
        yield from self._taken(module, entry.names, MAX_REEXPORTS)

    def _python_names(self, base: str, names: tuple[str, ...]) -> Iterator[str]:
        """Yield what `from base import names` reads, base being a path without suffix."""
        module = self._python_file(base)
        if module is not None:
            yield from self._taken(module, names, MAX_REEXPORTS)
            return
        inside = f"{base}/" if base else ""
        yield from (found for name in names if (found := self._python_file(f"{inside}{name}")))

    def _python_file(self, base: str) -> str | None:
        inside = f"{base}/" if base else ""
        candidates = (f"{base}.py", f"{inside}__init__.py", f"{base}.pyi", f"{inside}__init__.pyi")
        return next((name for name in candidates if name in self.files), None)

    def _taken(self, module: str, names: tuple[str, ...], depth: int) -> Iterator[str]:
        """Yield a module, or of a package the modules its names come from, through re-exports."""
        folder = _folder(module)
        inside = f"{folder}/" if folder else ""
        package = PurePosixPath(module).stem == "__init__"
        own = not package or not names or "*" in names
        for name in names if package else ():
            submodule = self._python_file(f"{inside}{name}")
            if submodule is not None:
                yield submodule
                continue
            sources = [entry for entry in self.files[module].imports if name in entry.names]
            own = own or not sources or depth == 0
            for entry in sources if depth else ():
                yield from self._reexported(module, entry, name, depth - 1)
        if own or package:
            yield module

    def _reexported(self, module: str, entry: Import, name: str, depth: int) -> Iterator[str]:
        if entry.target.startswith("."):
            dots = len(entry.target) - len(entry.target.lstrip("."))
            folder = PurePosixPath(module).parent
            for _ in range(dots - 1):
                folder = folder.parent
            target = self._python_file(
                (folder / entry.target.lstrip(".").replace(".", "/")).as_posix()
            )
        else:
            target = self.modules.get(entry.target)
        if target is not None and target != module:
            yield from self._taken(target, (name,), depth)

    # JavaScript and TypeScript

    def _script(self, path: str, target: str) -> Iterator[str]:
        if target.startswith("."):
            bases: Iterable[str] = (_join(_folder(path), target),)
        else:
            bases = self.projects.script_bases(path, target)
        for base in bases:
            found = self._script_file(base)
            if found is not None:
                yield found
                return

    def _script_file(self, base: str) -> str | None:
        if base in self.files:
            return base
        stem = _EMITTED.sub("", base)
        stems = (base, stem) if stem != base else (base,)
        for candidate in stems:
            for ending in SCRIPT_ENDINGS:
                if f"{candidate}{ending}" in self.files:
                    return f"{candidate}{ending}"
        inside = f"{base}/index" if base else "index"
        return next(
            (f"{inside}{ending}" for ending in SCRIPT_ENDINGS if f"{inside}{ending}" in self.files),
            None,
        )

    # Others

    def _go(self, target: str) -> Iterator[str]:
        folder = self.projects.go_folder(target)
        if folder is not None:
            files = [
                path
                for path in self.folders.get(folder, ())
                if path.endswith(".go") and not is_test(path)
            ]
            yield from files[:MAX_PACKAGE_FILES]

    def _rust(self, path: str, target: str) -> Iterator[str]:
        for use in _expand_use(target):
            parts = [part for part in use.split("::") if part]
            folder = PurePosixPath(path).parent
            own = (
                folder
                if PurePosixPath(path).stem in ("mod", "lib", "main")
                else PurePosixPath(path).with_suffix("")
            )
            if parts and parts[0] == "crate":
                root = next((f for f in (folder, *folder.parents) if self._is_crate_root(f)), None)
                start, parts = root, parts[1:]
            elif parts and parts[0] in ("self", "super"):
                start = own
                while parts and parts[0] in ("self", "super"):
                    start = start.parent if parts.pop(0) == "super" else start
            else:
                start = own if len(parts) == 1 else None
            if start is None:
                continue
            for length in range(len(parts), 0, -1):
                base = start.joinpath(*parts[:length]).as_posix()
                found = next(
                    (name for name in (f"{base}.rs", f"{base}/mod.rs") if name in self.files), None
                )
                if found:
                    yield found
                    break

    def _is_crate_root(self, folder: PurePosixPath) -> bool:
        return any((folder / name).as_posix() in self.files for name in ("lib.rs", "main.rs"))

    def _by_suffix(self, target: str, ending: str) -> Iterator[str]:
        """Yield the one file whose path ends in a qualified name; PHP maps the name's head to any
        folder.
        """
        parts = target.split("/")
        for first in range(len(parts) if ending == ".php" else 1):
            wanted = f"/{'/'.join(parts[first:])}{ending}"
            found = [
                path
                for path in self.names.get(f"{parts[-1]}{ending}", ())
                if f"/{path}".endswith(wanted)
            ]
            if found:
                yield from found if len(found) == 1 else ()
                return

    def _include(self, path: str, target: str, endings: tuple[str, ...]) -> Iterator[str]:
        name = target.strip("<>\"'")
        for ending in endings:
            near = _join(_folder(path), f"{name}{ending}")
            if near in self.files:
                yield near
                return
            wanted = f"/{normpath(name)}{ending}"
            last = wanted.rsplit("/", 1)[-1]
            found = [other for other in self.names.get(last, ()) if f"/{other}".endswith(wanted)]
            if len(found) == 1:
                yield found[0]
                return


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _join(folder: str, target: str) -> str:
    """Return a relative path inside the source; what leaves it matches no file."""
    joined = normpath(f"{folder}/{target}" if folder else target)
    return "" if joined == "." else joined


def _expand_use(text: str, depth: int = 0) -> list[str]:
    """Return the paths of a Rust use tree: `a::{b, c::D}` gives `a::b` and `a::c::D`."""
    head, brace, rest = text.partition("{")
    if not brace or depth > 8:
        return [text.split(" as ")[0].removesuffix("::*").strip()]
    inner = rest.rsplit("}", 1)[0]
    parts: list[str] = []
    level, start = 0, 0
    for at, letter in enumerate(inner + ","):
        level += (letter == "{") - (letter == "}")
        if letter == "," and level == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    return [head.strip() + path for part in parts if part for path in _expand_use(part, depth + 1)][
        :MAX_TARGETS
    ]
