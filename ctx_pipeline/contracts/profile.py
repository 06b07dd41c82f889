"""What a model can take, and what we aim for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ctx_pipeline.contracts.base import SCHEMA_VERSION, Contract, Text

Tokens = Annotated[int, Field(ge=0)]


class ModelProfile(Contract):
    """Limits of one model. `max_input_tokens` is what fits; `preferred_context_target` is what we
    aim for.
    """

    schema_version: str = SCHEMA_VERSION
    model_id: Text
    max_input_tokens: Annotated[int, Field(ge=1)]
    max_output_tokens: Tokens
    context_window: Annotated[int, Field(ge=1)] | None = None
    """Set where input and output share one window."""
    preferred_context_target: Annotated[int, Field(ge=1)]
    compaction_threshold: Tokens
    output_reserve: Tokens = 0
    reasoning_reserve: Tokens = 0
    safety_headroom: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.08
    """Share of the hard limit that stays free."""
    tool_schema_budget: Tokens = 8_000
    max_payload_bytes: Annotated[int, Field(ge=1)] | None = None
    encoding: Text = "o200k_base"
    """tiktoken vocabulary the tokens are counted with."""
    token_safety_factor: Annotated[float, Field(ge=1.0)] = 1.0
    """Factor on counted tokens for models without a public tokenizer."""
    input_price: Annotated[float, Field(ge=0)] | None = None
    """What a million input tokens cost, in the currency of cost budgets. None: not known."""
    cached_input_price: Annotated[float, Field(ge=0)] | None = None
    """The same for tokens that the provider reads from its cache. None: as `input_price`."""
    image_tokens: Tokens = 1_000
    supports_prompt_cache: bool = True
    cache_min_prefix_tokens: Tokens = 1_024
    supports_tool_search: bool = False
    supports_multimodal: bool = False
