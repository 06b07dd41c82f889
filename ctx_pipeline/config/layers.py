"""Settings from flags, environment and files as one value, with the place each came from."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ctx_pipeline.config.toml_lines import KeyPath, key_lines
from ctx_pipeline.errors import ConfigError

MAX_CONFIG_BYTES = 1024 * 1024
"""Far above any settings file that a person keeps."""

ENV_PREFIX = "CTX_"
ENV_DELIMITER = "__"
NOT_SETTINGS = frozenset({"CTX_HOME", "CTX_CORPORA", "CTX_DEBUG", "CTX_REQUIRE_POSTGRES"})
"""Variables with our prefix that the command line and the tests read themselves."""

MAX_NAMED_PROBLEMS = 100

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one place, or of several merged; `origins` names the place of each key."""

    values: Values
    origins: Mapping[KeyPath, str] = field(default_factory=dict[KeyPath, str])

    def over(self, base: Layer) -> Layer:
        """Return `base` with this layer's values on top: tables merge, everything else is replaced
        whole.
        """
        replaced = [path for path, _ in _leaves(self.values)]
        kept = {
            path: origin for path, origin in base.origins.items() if not _is_under(path, replaced)
        }
        return Layer(_merged(base.values, self.values), {**kept, **self.origins})

    def origin(self, path: KeyPath) -> str | None:
        """Return the place of the key, else of the nearest table around it, else of a neighbour in
        that table.
        """
        for end in range(len(path), 0, -1):
            if found := self.origins.get(path[:end]):
                return found
            inside = (origin for key, origin in self.origins.items() if key[:end] == path[:end])
            if found := next(inside, None):
                return found
        return None


def _is_under(path: KeyPath, roots: Sequence[KeyPath]) -> bool:
    return any(path[: len(root)] == root for root in roots)


def _leaves(values: Mapping[str, Any], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast("Values", value), (*prefix, key))
        else:
            yield (*prefix, key), value


def _places(values: Any, prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the path of every key and array entry that holds a value, not those of the tables
    around them.
    """
    if isinstance(values, dict):
        for key, value in cast("Values", values).items():
            yield from _places(value, (*prefix, key))
        return
    yield prefix
    if isinstance(values, (list, tuple)):
        for index, entry in enumerate(cast("Sequence[Any]", values)):
            yield from _places(entry, (*prefix, index))


def _merged(base: Values, top: Values) -> Values:
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merged(cast("Values", below), cast("Values", value))
        result[key] = value
    return result


def read_toml(path: Path, *, label: str, under: tuple[str, ...] = ()) -> Layer:
    """Read a TOML file, its keys placed below the table `under`; origins are `label:LINE`.

    Raises:
        ConfigError: `invalid_toml` with the line, or `unreadable_config`.
    """
    text = _file_text(path, label)
    try:
        values: Values = tomllib.loads(text)
        lines = key_lines(text.replace("\r\n", "\n"))
    except ValueError as broken:
        place, reason = _syntax_place(str(broken), text)
        raise ConfigError(
            f"not valid TOML: {reason}", where=f"{label}:{place}", code="invalid_toml"
        ) from broken
    except RecursionError as deep:
        raise ConfigError(
            "values are nested too deeply", where=label, code="invalid_toml"
        ) from deep
    return Layer(
        _nested(under, values), {(*under, *key): f"{label}:{line}" for key, line in lines.items()}
    )


def _file_text(path: Path, label: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as refused:
        raise ConfigError(
            f"the file cannot be read: {refused.strerror}", where=label, code="unreadable_config"
        ) from refused
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"the file is larger than {MAX_CONFIG_BYTES} bytes",
            where=label,
            code="unreadable_config",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = content.count(b"\n", 0, broken.start) + 1
        raise ConfigError(
            "the file is not UTF-8",
            where=f"{label}:{line}",
            fix="save it as UTF-8",
            code="invalid_toml",
        ) from broken


def _syntax_place(message: str, text: str) -> tuple[int, str]:
    found = re.search(r" \(at line (\d+), column \d+\)$", message)
    if found:
        return int(found.group(1)), message[: found.start()]
    return text.rstrip("\n").count("\n") + 1, message.removesuffix(" (at end of document)")


def read_flags(overrides: Mapping[str, object] | None) -> Layer:
    """Read flags: dotted keys (`project.name`) or nested tables; None means that the flag was not
    given.
    """
    values: Values = {}
    for key, value in (overrides or {}).items():
        if value is None:
            continue
        values = _merged(values, _nested(key.split("."), value))
    return Layer(values, dict.fromkeys(_places(values), "flag"))


def read_environ(model: type[BaseModel]) -> Layer:
    """Read `CTX_<TABLE>__<KEY>` variables for the keys of `model`.

    Lists are JSON or separated by commas. Variables that name no key are kept, so that validation
    reports them.
    """
    names = {
        tuple(name[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER)): name
        for name in sorted(os.environ)
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in NOT_SETTINGS
    }
    if not names:
        return Layer({})
    values = _environ_values(model)
    for path, name in names.items():
        if path[0] not in model.model_fields:
            values[path[0]] = ""
        elif not os.environ[name] and _is_list(model, path):
            # The library hands an empty value on undecoded; an empty list must still take away what
            # is below it.
            values = _merged(values, _nested(path, []))
    return Layer(values, {place: f"env {_variable(place, names)}" for place in _places(values)})


def _is_list(model: type[BaseModel], path: tuple[str, ...]) -> bool:
    table = _table(model, path[:-1])
    info = table.model_fields.get(path[-1]) if table else None
    return info is not None and get_origin(info.annotation) is tuple


def _nested(path: Sequence[str], value: object) -> Values:
    for key in reversed(path):
        value = {key: value}
    return cast("Values", value)


def _variable(path: KeyPath, names: Mapping[tuple[str, ...], str]) -> str:
    for end in range(len(path), 0, -1):
        for key, name in names.items():
            if key[:end] == path[:end]:
                return name
    return ENV_PREFIX


def _environ_values(model: type[BaseModel]) -> Values:
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

    class Source(EnvSettingsSource):
        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:
            try:
                decoded: Any = super().decode_complex_value(field_name, field, value)
            except (ValueError, RecursionError):
                decoded = value
            if get_origin(getattr(field, "annotation", None)) is tuple and not isinstance(
                decoded, list
            ):
                return [part.strip() for part in str(value).split(",") if part.strip()]
            return cast("Any", decoded)

    class Settings(model, BaseSettings):  # pyright: ignore[reportGeneralTypeIssues]  # the base is a parameter
        model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER)

    return dict(Source(Settings)())


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one key."""

    where: str
    message: str
    fix: str = ""
    code: str = "invalid_value"


def problems_of(error: ValidationError, model: type[BaseModel], layer: Layer) -> list[Problem]:
    """Translate a validation error into problems that name the place and what is accepted, never
    the value.

    Unknown keys come first; a key that is missing because it is misspelt is named once, as unknown.
    """
    unknown: list[Problem] = []
    other: list[Problem] = []
    misspelt: set[KeyPath] = set()
    entries = error.errors(include_url=False, include_input=False)
    for entry in sorted(entries, key=lambda entry: entry["type"] != "extra_forbidden"):
        path: KeyPath = entry["loc"]
        where = layer.origin(path) or "settings"
        key = dotted(path, layer.values)
        if entry["type"] == "extra_forbidden":
            known = _known_keys(model, path[:-1])
            near = nearest(str(path[-1]), known)
            misspelt.add((*path[:-1], near or ""))
            fix = f"did you mean {near!r}?" if near else f"known keys: {', '.join(sorted(known))}"
            unknown.append(Problem(where, f"unknown key {key!r}", fix, "unknown_key"))
        elif entry["type"] != "missing":
            message = _MESSAGES.get(entry["type"], entry["msg"]).removeprefix("Value error, ")
            fix = _fix_of(entry["type"], entry.get("ctx", {}), _written(path, layer.values))
            other.append(Problem(where, f"{key!r}: {message[:1].lower()}{message[1:]}", fix))
        elif path not in misspelt:
            other.append(Problem(where, f"{key!r} is required and missing", f"add {path[-1]!r}"))
    return unknown + other


def _fix_of(kind: str, context: Mapping[str, Any], written: Any) -> str:
    """Return what to do about a value: what the validator said, or the word of a closed set that
    was meant.
    """
    if kind == "not_accepted":
        return str(context.get("fix", ""))
    if kind in ("enum", "literal_error") and isinstance(written, str):
        return meant(written, re.findall(r"'([^']*)'", str(context.get("expected", ""))))
    return ""


def meant(word: str, known: Sequence[str]) -> str:
    """Return the question whether another word of a closed set was meant; empty when none is like
    it.
    """
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else ""


def _written(path: KeyPath, values: Any) -> Any:
    for key in path:
        try:
            values = values[key]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def not_accepted(message: str, fix: str) -> Exception:
    """Return what a validator raises so that the problem says what to do."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError("not_accepted", "{message}", {"message": message, "fix": fix})


_MESSAGES = {
    "model_type": "should be a table",
    "dict_type": "should be a table",
    "tuple_type": "should be a list",
}


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one error that says what is wrong, where and what to do for every problem, a line each
    after the first.

    Raises:
        ConfigError: there is at least one problem.
    """
    if not problems:
        return
    first, *rest = problems
    message = first.message
    if rest:
        lines = [
            f"also {problem.where}: {problem.message}{_hint(problem)}"
            for problem in rest[:MAX_NAMED_PROBLEMS]
        ]
        if len(rest) > MAX_NAMED_PROBLEMS:
            lines.append(f"and {len(rest) - MAX_NAMED_PROBLEMS} more")
        message = "\n  ".join([message, *lines])
    raise ConfigError(message, where=first.where, fix=first.fix, code=first.code)


def _hint(problem: Problem) -> str:
    return f" ({problem.fix})" if problem.fix else ""


def nearest(key: str, known: Sequence[str]) -> str | None:
    """Return the known key that a misspelt one most likely means."""
    lowered = {name.lower(): name for name in known}
    matches = get_close_matches(key.lower().replace("-", "_"), list(lowered), n=1, cutoff=0.6)
    return lowered[matches[0]] if matches else None


def dotted(path: KeyPath, values: Mapping[str, Any]) -> str:
    """Write a key path as people read it; an array entry is called by its name where it has one."""
    parts: list[str] = []
    inner: Any = values
    for key in path:
        try:
            inner = inner[key]
        except (KeyError, IndexError, TypeError):
            inner = None
        parts.append(_label(inner, key) if isinstance(key, int) else key)
    return ".".join(parts)


def _label(entry: Any, index: int) -> str:
    if isinstance(entry, dict):
        for key in ("name", "model_id"):
            name = cast("Values", entry).get(key)
            if isinstance(name, str) and re.fullmatch(r"[\w.:/@-]{1,64}", name):
                return name
    return str(index)


def _known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    table = _table(model, path)
    return list(table.model_fields) if table else []


def _table(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    named = False
    for key in path:
        if current is None or not isinstance(key, str):
            continue
        if named:
            # The key is a name of the reader's own, as in `policy.sources.NAME`.
            named = False
            continue
        info = current.model_fields.get(key)
        current = _model_in(info.annotation) if info else None
        named = info is not None and get_origin(info.annotation) is dict
    return current


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
