"""The assembly op: one request through the same engine as every other surface, with its budget shown in the run."""

# pyright: reportUnknownMemberType=false
# Dagster's annotations leave type parameters out.
# Annotations are not postponed in this module: Dagster reads the classes of context and config from them.

from collections import Counter
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ctx_pipeline.assets.jobs import ASSEMBLE_JOB, KIND_TAG
from ctx_pipeline.assets.metadata import markdown_table
from ctx_pipeline.resources import ContextProjectResource

if TYPE_CHECKING:
    from datetime import datetime

    from ctx_pipeline.contracts import ContextPack, ContextRequest, Identity


class AssembleConfig(dg.Config):
    """One request, as JSON."""

    request: dict[str, Any] = Field(
        description=(
            'A ContextRequest, for example {"task": {"text": "why did revenue fall?"}, "token_budget": 4000}. '
            "Who looks is the identity of ctx.toml; an identity in the request may only have less: fewer "
            "groups, a lower clearance. The request is kept in the run storage with the run."
        )
    )
    at: str | None = Field(
        default=None,
        description="The clock, an ISO time with its offset. Empty: now. The same clock repeats a call.",
    )


@dg.op(
    out=dg.Out(
        dict,
        io_manager_key="ctx_pack_memory",
        description="The ContextPack as JSON; it stays in this process.",
    ),
    description=(
        "Assembles one context pack with the engine that serves agents, and keeps its snapshot. Read the pack later "
        "with `ctx replay <snapshot_id>`."
    ),
)
def assemble_context(
    context: dg.OpExecutionContext, config: AssembleConfig, ctx_project: ContextProjectResource
) -> dict[str, Any]:
    """Assemble one pack."""
    request = _request(config.request)
    with ctx_project.open() as opened:
        _require_within(request.identity, opened.identity())
        pack = opened.assemble(request, at=_clock(config.at), durable=True)
    context.add_output_metadata(_metadata(pack))
    return pack.model_dump(mode="json")


EXAMPLE = {"task": {"text": "What changed this week? 本周有什么变化？"}, "token_budget": 4000}
"""What the launchpad shows first, and what a run without a configuration assembles."""


@dg.job(
    name=ASSEMBLE_JOB,
    description=(
        "Assembles one context pack from a request in the run configuration. The launchpad begins "
        "with a request that runs as it is: change its text."
    ),
    config=dg.RunConfig(ops={"assemble_context": AssembleConfig(request=EXAMPLE)}),
    executor_def=dg.in_process_executor,
    tags={KIND_TAG: "assemble"},
)
def assemble_context_job() -> None:
    """Assemble one pack."""
    assemble_context()


def _request(raw: dict[str, Any]) -> "ContextRequest":
    from pydantic import ValidationError

    from ctx_pipeline.contracts import ContextRequest
    from ctx_pipeline.errors import InvalidRequest

    try:
        return ContextRequest.model_validate(raw)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidRequest(
            f"the request is not valid: {first['msg']}",
            where=".".join(("request", *(str(part) for part in first["loc"]))),
            fix="see the JSON Schema of ContextRequest",
        ) from None


def _require_within(asked: "Identity | None", own: "Identity") -> None:
    """Refuse an identity that could see something which the one of the code location cannot.

    Raises:
        NotPermitted: whoever launched the run asked for another principal or tenant, or for more rights.
    """
    from ctx_pipeline.contracts import SENSITIVITY_RANK
    from ctx_pipeline.errors import NotPermitted

    if asked is None:
        return
    less = (
        (asked.principal, asked.tenant) == (own.principal, own.tenant)
        and set(asked.groups) <= set(own.groups)
        and SENSITIVITY_RANK[asked.clearance] <= SENSITIVITY_RANK[own.clearance]
        and asked.environment in (None, own.environment)
        and asked.purpose in (None, own.purpose)
    )
    if not less:
        raise NotPermitted(
            "the identity in the run configuration is not that of this code location, or has more rights",
            where="request.identity",
            fix="leave it out; [identity] of ctx.toml says who looks in a run",
            code="identity_not_configured",
        )


def _clock(text: str | None) -> "datetime | None":
    from datetime import datetime

    from ctx_pipeline.errors import InvalidRequest

    if text is None or not text.strip():
        return None
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequest(
            "the clock is not an ISO time",
            where="at",
            fix="for example 2026-01-31T00:00:00Z",
            code="invalid_time",
        ) from None


def _metadata(pack: "ContextPack") -> dict[str, Any]:
    budget = pack.budget
    rows = [(section.section, section.planned, section.used) for section in budget.sections]
    return {
        "snapshot_id": pack.snapshot_id,
        "hash": pack.hash,
        "items": len(pack.items),
        "capabilities": len(pack.capabilities),
        "conflicts": len(pack.conflicts),
        "total_tokens": pack.total_tokens,
        "usable_tokens": budget.usable,
        "index_version": pack.index_version,
        "policy_version": pack.policy_version,
        "denied": dg.MetadataValue.json(pack.denied),
        "budget": dg.MetadataValue.md(
            markdown_table(("section", "planned tokens", "used tokens"), rows)
        ),
        "warnings": dg.MetadataValue.md(
            markdown_table(
                ("code", "times"),
                sorted(Counter(warning.code for warning in pack.warnings).items()),
            )
        ),
    }
