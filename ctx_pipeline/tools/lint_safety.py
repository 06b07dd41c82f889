"""Lint of what a definition does to the model that reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from ctx_pipeline.tools.findings import LintTool, ToolFinding
from ctx_pipeline.tools.poison import suspicions
from ctx_pipeline.tools.schema_walk import is_within_limits, properties_of, schemas, show_path

_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_-])(?:pass(?:word|wd|phrase)?|pwd|secret|api_?key|apikey|private_?key|credentials?|authorization"
    r"|bearer|access_?token|auth_?token)"
    r"(?:$|[_-])|(?:apiKey|accessToken|authToken|clientSecret|privateKey|secretKey)|密码|密钥|令牌"
)
SECRET_CHARS = 200
"""What is looked at of a value that may be a secret."""
_NO_SECRET = re.compile(
    r"(?i)^$|^[x*.•-]+$|your|example|placeholder|changeme|<.*>|\{.*\}|\$|^(?:none|null|test|string|secret|token"
    r"|password)$|xxx"
)


def safety_findings(tool: LintTool) -> Iterator[ToolFinding]:
    """Look at every text of a definition, wherever it stands; each code is given once, with its
    first place.
    """
    seen: set[str] = set()
    for code, message, place in suspicions(tool.raw):
        seen.add(code)
        yield tool.finding(code, message, at=place)
    if "secret_value" not in seen:
        yield from _secret_parameters(tool)


def _secret_parameters(tool: LintTool) -> Iterator[ToolFinding]:
    """Find values shown for a parameter that is named like a secret."""
    schema = tool.definition.input_schema or {}
    if not is_within_limits(schema):
        return
    for path, part in schemas(schema):
        for name, parameter in properties_of(part).items():
            if not isinstance(parameter, dict) or not _SECRET_NAME.search(name):
                continue
            shown = cast("dict[str, Any]", parameter)
            values = [
                shown.get("default"),
                shown.get("const"),
                shown.get("example"),
                *_listed(shown.get("examples")),
            ]
            if any(
                isinstance(value, str) and not _NO_SECRET.search(value[:SECRET_CHARS])
                for value in values
            ):
                at = show_path(("input_schema", *path, "properties", name))
                yield tool.finding("secret_value", f"a value is given for {name!r}", at=at)
                return


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
