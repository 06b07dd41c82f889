"""What one model call sees."""

from __future__ import annotations

from typing import Annotated, Any, Literal, overload

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, UtcDatetime
from ctx_pipeline.contracts.render import (
    Anthropic,
    OpenAIChat,
    OpenAIResponses,
    Rendering,
    render,
)
from ctx_pipeline.contracts.sections import Capability, PackItem, PackSection, Tokens


class ConflictSide(Contract):
    """One claim of a conflict."""

    item_id: str
    version: str
    authority: int
    title: str


class ConflictRecord(Contract):
    """Two or more items that say different things about one subject."""

    subject: str
    winner: ConflictSide | None
    """None: it could not be resolved."""
    losers: tuple[ConflictSide, ...]
    reason: str
    needs_confirmation: bool = False
    question: str | None = None


class PackWarning(Contract):
    """Something the caller should know; the pack is still valid."""

    code: str
    message: str
    item_id: str | None = None


class SectionBudget(Contract):
    """Tokens planned and used for one section."""

    section: str
    planned: Tokens
    used: Tokens
    borrowed: Tokens = 0
    """Tokens used beyond what was planned: what other sections left."""


class BudgetReport(Contract):
    """How the window was divided, in tokens."""

    hard_limit: Tokens
    usable: Tokens
    soft_target: Tokens
    output_reserve: Tokens
    headroom: Tokens
    affordable: Tokens | None = None
    """Tokens that the cost budget pays for. None: there is none, or the profile has no price."""
    cost: Annotated[float, Field(ge=0)] | None = None
    """What the pack costs as input, at the profile's price. None: it has no price."""
    cost_cached: Annotated[float, Field(ge=0)] | None = None
    """The same where the provider has the stable prefix in its cache. None: no price, or it caches
    none so short."""
    sections: tuple[SectionBudget, ...]


class PrefixInfo(Contract):
    """The part of the text that stays the same from call to call."""

    hash: str
    stable_tokens: Tokens
    dynamic_tokens: Tokens
    cache_break: str | None = None


class PolicyDecision(Contract):
    """What a policy service decided for a call. It can only take away from what labels permit."""

    service: str
    """Which service: `cedar` or `http`."""
    policy_version: str
    """Version of the service's own policy; empty where it gave no valid answer."""
    decision_id: str
    """What the service calls its decision, else its hash."""
    asked: Annotated[int, Field(ge=0)]
    """Labels that it was asked about: those that the built-in rules let pass."""
    denied: Annotated[int, Field(ge=0)]
    """Labels that it denied."""
    failure: str | None = None
    """Why it gave no valid answer, as a code; then all that it was asked about is denied."""


class ResolvedPeriod(Contract):
    """What a time word of the task stands for, in UTC."""

    text: str
    """The words, as the task has them."""
    start: UtcDatetime
    end: UtcDatetime
    """The first instant after it."""


class ContextPack(Contract):
    """A budgeted, permitted, conflict-resolved context for one model call."""

    schema_version: str = SCHEMA_VERSION
    pack_id: str
    snapshot_id: str
    sections: tuple[PackSection, ...]
    capabilities: tuple[Capability, ...]
    conflicts: tuple[ConflictRecord, ...]
    warnings: tuple[PackWarning, ...]
    budget: BudgetReport
    total_tokens: Tokens
    """Tokens of `render("text")` plus those of the visible tool schemas."""
    prefix: PrefixInfo
    policy_version: str
    policy_rules: tuple[str, ...] = ()
    """Rules of the policy that applied, in order."""
    policy_decision: PolicyDecision | None = None
    """What the policy service decided. None: there is none."""
    ranking_version: str
    compaction_version: str
    index_version: str
    overlay_sequence: int
    tokenizer: str
    denied: dict[str, int]
    """How many index rows of the tenant each permission rule removed."""
    periods: tuple[ResolvedPeriod, ...] = ()
    """What the time words of the task stand for; the model sees them beside the state."""
    tool_context: Annotated[dict[str, Any], Field(exclude=True, repr=False)] = {}
    hash: str
    """SHA-256 over rendered text, item versions and renditions, tool hashes and policy version."""

    @overload
    def render(self, format: Literal["text"] = "text") -> str: ...
    @overload
    def render(self, format: Literal["openai_chat"]) -> OpenAIChat: ...
    @overload
    def render(self, format: Literal["openai_responses"]) -> OpenAIResponses: ...
    @overload
    def render(self, format: Literal["anthropic"]) -> Anthropic: ...
    @overload
    def render(self, format: Literal["langchain"]) -> list[dict[str, str]]: ...
    @overload
    def render(self, format: str) -> Rendering: ...
    def render(self, format: str = "text") -> Rendering:
        """Return the pack as `text` (str) or as a provider's messages.

        Raises:
            InvalidRequest: the format is unknown.
        """
        return render(self.sections, self.capabilities, format)

    @property
    def items(self) -> tuple[PackItem, ...]:
        """Every item shown, in order."""
        return tuple(item for section in self.sections for item in section.items)
