"""What was typed, checked against a contract: messages name fields, never what was in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ctx_pipeline.errors import InvalidRequest

Made = TypeVar("Made")
MAX_NAMED_PROBLEMS = 5


def checked(make: Callable[[], Made], where: str) -> Made:
    """Return what `make` makes.

    Raises:
        InvalidRequest: its fields are wrong; `where` gets the path of the first, the message names
            up to five.
    """
    from pydantic import ValidationError

    try:
        return make()
    except ValidationError as wrong:
        problems = [
            (
                ".".join([where, *(str(part)[:80] for part in error["loc"])]),
                error["msg"].removeprefix("Value error, "),
            )
            for error in wrong.errors(include_url=False, include_context=False, include_input=False)
        ]
        first = problems[0][0]
        named = "; ".join(f"{path}: {message}" for path, message in problems[:MAX_NAMED_PROBLEMS])
        more = len(problems) - MAX_NAMED_PROBLEMS
        raise InvalidRequest(
            named + (f"; and {more} more" if more > 0 else ""),
            where=first,
            fix="correct the fields named; `--help` lists the flags that set them",
        ) from None
