"""YAML as a person wrote it: scalars stay text, mappings know their lines, and a key given twice is
an error.

Plain YAML 1.1 reads `version: 1.10` as 1.1, `on:` as true and a time without zone as if it had one.
Here every scalar but `null`, `true` and `false` stays the text that was written; the models turn it
into numbers and times.
"""

from __future__ import annotations

import re
from typing import Any, cast

import yaml

MAX_NODES = 1_000_000
"""Most values of one file with aliases written out; more is an alias bomb."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class LineDict(dict[str, Any]):
    """A mapping that knows where it was written; lines count from 1."""

    line: int = 1
    line_end: int = 1
    key_lines: dict[str, int]


class YamlProblem(Exception):
    """Why a text is not YAML that can be used, and on which line."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class _Loader(_Base):
    """Safe loader with the rules of this module."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _first, _pattern, _tag in (
    ("~nN\0", r"^(?:~|null|Null|NULL|)$", "tag:yaml.org,2002:null"),
    ("tTfF", r"^(?:true|True|TRUE|false|False|FALSE)$", "tag:yaml.org,2002:bool"),
    ("<", r"^(?:<<)$", "tag:yaml.org,2002:merge"),
):
    for _char in _first:
        _key = "" if _char == "\0" else _char
        _Loader.yaml_implicit_resolvers.setdefault(_key, []).append((_tag, re.compile(_pattern)))


def _construct_mapping(loader: Any, node: Any) -> LineDict:
    loader.flatten_mapping(node)
    mapping = LineDict()
    mapping.line = node.start_mark.line + 1
    mapping.line_end = _last_line(node)
    mapping.key_lines = {}
    own: set[str] = set()
    for key_node, value_node in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            raise YamlProblem(key_node.start_mark.line + 1, "a key is not plain text")
        if not _merged(node, key_node):
            if key in own:
                raise YamlProblem(key_node.start_mark.line + 1, "a key is given twice: keep one")
            own.add(key)
        mapping[key] = loader.construct_object(value_node, deep=True)
        mapping.key_lines[key] = key_node.start_mark.line + 1
    return mapping


def _last_line(node: Any) -> int:
    """Return the last line of a node's text; the end that YAML reports of a block is where the next
    thing begins.
    """
    last: Any = node
    while last.id != "scalar" and last.value and not last.flow_style:
        child: Any = last.value[-1]
        last = child[1] if last.id == "mapping" else child
    end: int = last.end_mark.line + (1 if last.end_mark.column else 0)
    return max(int(last.start_mark.line) + 1, end)


def _merged(node: Any, key_node: Any) -> bool:
    """Say whether a key came in through `<<` from a mapping written elsewhere; the mapping's own
    key wins.
    """
    start, end = node.start_mark.index, node.end_mark.index
    return not start <= key_node.start_mark.index < end


def _construct_unknown(loader: Any, node: Any) -> Any:
    raise YamlProblem(node.start_mark.line + 1, "a tag is not allowed here: write plain values")


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor(None, _construct_unknown)


def load_yaml(text: str) -> list[Any]:
    """Return the documents of a YAML text.

    Raises:
        YamlProblem: it is not YAML, a key is given twice, or it is too deep or too large.
    """
    loader = cast("Any", _Loader(text))
    documents: list[Any] = []
    try:
        while loader.check_data():
            documents.append(loader.get_data())
    except yaml.MarkedYAMLError as error:
        # A list that is never closed fails at the end of the text; where it was opened says more.
        opened = error.context_mark if "flow" in str(error.context) else None
        mark = opened or error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise YamlProblem(
            line, f"is not valid YAML: {error.problem or 'unknown problem'}"
        ) from None
    except (yaml.YAMLError, ValueError):
        raise YamlProblem(
            None, "is not valid YAML: it has characters that YAML does not allow"
        ) from None
    except RecursionError:
        raise YamlProblem(None, "is nested too deeply") from None
    finally:
        loader.dispose()
    _check_size(documents)
    return documents


def _check_size(value: Any) -> None:
    stack: list[Any] = [value]
    seen = 0
    while stack:
        top = stack.pop()
        seen += 1
        if isinstance(top, dict):
            stack.extend(cast("dict[str, Any]", top).values())
        elif isinstance(top, list):
            stack.extend(cast("list[Any]", top))
        if seen > MAX_NODES:
            raise YamlProblem(
                None, f"has more than {MAX_NODES:,} values with its aliases written out"
            )
