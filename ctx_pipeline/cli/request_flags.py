"""The flags of `ctx assemble` that fill a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ctx_pipeline.cli.choices import KINDS, RISKS, names, one_of, some_of
from ctx_pipeline.cli.run import FlagGroup


@dataclass(frozen=True, slots=True)
class RequestFlags(FlagGroup):
    """What a request says, as far as flags say it; None was not given."""

    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model profile. Default: the project's.")
    ] = None
    phase: Annotated[
        str | None, typer.Option(metavar="NAME", help="Phase of the agent's work.")
    ] = None
    budget: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Most tokens the pack may take.")
    ] = None
    role: Annotated[str | None, typer.Option(metavar="NAME", help="Role of the agent.")] = None
    task_type: Annotated[str | None, typer.Option(metavar="NAME", help="Type of the task.")] = None
    required_types: Annotated[
        str | None, some_of(KINDS, metavar="A,B", help="Kinds of items that the pack must have.")
    ] = None
    risk: Annotated[str | None, one_of(RISKS, help="How much is at stake.")] = None
    session_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Session that the call belongs to.")
    ] = None
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Run that the call belongs to.")
    ] = None
    turn_id: Annotated[str | None, typer.Option(metavar="ID", help="Turn of the run.")] = None
    goal: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the task is for; restated at the end.")
    ] = None
    constraint: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A constraint of the task; may be given again."),
    ] = None

    def of_request(self) -> dict[str, Any]:
        """Return the fields of the request; None was not given."""
        kinds = self.required_types
        return {
            "model_profile": self.model,
            "phase": self.phase,
            "token_budget": self.budget,
            "agent_role": self.role,
            "required_types": None if kinds is None else names(kinds),
            "risk": self.risk,
            "session_id": self.session_id,
            "run_id": self.run_id,
            "turn_id": self.turn_id,
        }

    def of_task(self) -> dict[str, Any]:
        """Return the fields of the task; None was not given."""
        return {"type": self.task_type, "goal": self.goal, "constraints": self.constraint}
