"""Flags that take one of a few words: a wrong word is answered with the nearest right one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

from ctx_pipeline.errors import InvalidRequest

FORMATS = ("text", "openai_chat", "openai_responses", "anthropic", "langchain")
LEVELS = ("full", "compact", "pointer")
RISKS = ("low", "medium", "high")
CLEARANCES = ("public", "internal", "confidential", "restricted")
KINDS = (
    "policy",
    "instruction",
    "task",
    "state",
    "history",
    "document",
    "memory",
    "observation",
    "skill",
    "artifact_ref",
    "metric",
    "glossary",
    "schema",
    "tool",
    "code",
    "web",
)
"""Spelled out, so that `ctx --help` loads no contracts."""


def one_of(known: Sequence[str], *, help: str, metavar: str | None = None) -> Any:
    """Return an option whose value is one of `known`; help lists them unless `metavar` stands
    there.

    Another value is wrong usage, and the error names the nearest one.
    """
    return typer.Option(
        metavar=metavar or f"<{'|'.join(known)}>", help=help, callback=_check(known, several=False)
    )


def some_of(known: Sequence[str], *, help: str, metavar: str) -> Any:
    """Return an option whose value is words of `known` with commas between them."""
    return typer.Option(metavar=metavar, help=help, callback=_check(known, several=True))


def _check(known: Sequence[str], *, several: bool) -> Callable[..., str | None]:
    def check(parameter: typer.CallbackParam, value: str | None) -> str | None:
        for word in () if value is None else names(value) if several else (value,):
            if word not in known:
                raise _unknown(word, known, parameter.opts[0])
        return value

    return check


def names(value: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word for part in value.split(",") if (word := part.strip())]


def _unknown(word: str, known: Sequence[str], flag: str) -> InvalidRequest:
    from ctx_pipeline.config.layers import nearest

    near = nearest(word, known)
    every = ", ".join(known)
    return InvalidRequest(
        f"this is none of the values of {flag}",
        where=flag,
        fix=f"use one of: {every}" if near is None else f"did you mean {near!r}? Else: {every}",
        code="usage",
    )
