"""Who asks: the flags that say so, and what `ctx.toml` says where they are silent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctx_pipeline.cli.checking import checked
from ctx_pipeline.cli.choices import CLEARANCES, names, one_of

if TYPE_CHECKING:
    from ctx_pipeline.contracts import Identity


@dataclass(frozen=True, slots=True)
class IdentityFlags:
    """Who asks, as far as flags say so; None was not given."""

    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask as a member of this tenant.")
    ] = None
    principal: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask as this person or agent.")
    ] = None
    groups: Annotated[
        str | None, typer.Option(metavar="A,B", help="Groups of the principal; '' is none.")
    ] = None
    clearance: Annotated[
        str | None,
        one_of(CLEARANCES, metavar="LEVEL", help="public, internal, confidential or restricted."),
    ] = None
    environment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the agent runs.")
    ] = None
    purpose: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the context is for.")
    ] = None

    def spelled(self) -> list[tuple[str, str]]:
        """Return the flags that were given, as they were given."""
        return [
            (item.name, value)
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
        ]

    def given(self) -> dict[str, Any]:
        """Return the fields of an identity that flags set."""
        found: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.groups is not None:
            found["groups"] = names(self.groups)
        return {name: value for name, value in found.items() if value is not None}


def merged_identity(flags: IdentityFlags, base: Identity | None) -> Identity | None:
    """Return who asks: flags over `base`, field by field; None when flags say nothing.

    Groups belong to a tenant, so another `--tenant` drops those of `base`.

    Raises:
        InvalidRequest: tenant or principal is missing, or a value is not accepted.
    """
    from ctx_pipeline.contracts import Identity

    given = flags.given()
    if not given:
        return None
    known: dict[str, Any] = base.model_dump(exclude_none=True) if base is not None else {}
    if "tenant" in given and given["tenant"] != known.get("tenant"):
        known.pop("groups", None)
    return checked(lambda: Identity.model_validate({**known, **given}), "identity")
