"""Model limits are known by the names that people use."""

from __future__ import annotations

import pytest

from ctx_pipeline.config.profiles import (
    CLAUDE_TOKEN_FACTOR,
    GEMINI_TOKEN_FACTOR,
    LARGE_CONTEXT_TARGET,
    model_profile,
    shipped_profiles,
)
from ctx_pipeline.contracts import ModelProfile
from ctx_pipeline.errors import InvalidRequest


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai/gpt-4o-2024-11-20", "gpt-4o"),
        ("GPT-4.1", "gpt-4.1"),
        ("gpt-5.6", "gpt-5.6"),
        ("o3", "o3"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("anthropic/claude-opus-4-1", "claude-opus-4-1"),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "claude-sonnet-4"),
        ("claude-haiku", "claude-haiku-4-5"),
        ("gemini-2.5-pro-preview-06-05", "gemini-2.5-pro"),
        ("google/gemini-2.5-flash-001", "gemini-2.5-flash"),
        ("gemini-3", "gemini-3-pro"),
        ("default", "default"),
    ],
)
def test_a_release_date_or_provider_does_not_hide_a_model(name: str, model_id: str):
    assert model_profile(name).model_id == model_id


@pytest.mark.parametrize(
    "name", ["gpt-5.7", "gpt-5-turbo", "o5", "claude", "llama-4", "", "  ", "gpt", "华东"]
)
def test_a_model_that_nobody_described_is_refused_and_not_guessed(name: str):
    with pytest.raises(InvalidRequest) as caught:
        model_profile(name)
    assert caught.value.stable_code == "unknown_model"
    assert "[[models]]" in caught.value.fix


def test_the_nearest_model_is_named():
    with pytest.raises(InvalidRequest) as caught:
        model_profile("gpt-5-minni")
    assert "'gpt-5-mini'" in caught.value.fix


@pytest.mark.parametrize("profile", shipped_profiles(), ids=lambda profile: profile.model_id)
def test_a_shipped_profile_aims_below_what_fits(profile: ModelProfile):
    window = profile.context_window or profile.max_input_tokens + profile.max_output_tokens
    reserves = profile.output_reserve + profile.reasoning_reserve
    assert (
        0
        < profile.preferred_context_target
        < profile.compaction_threshold
        < profile.max_input_tokens
        <= window
    )
    assert profile.preferred_context_target + reserves <= window * (1 - profile.safety_headroom)
    assert profile.output_reserve <= profile.max_output_tokens
    assert profile.tool_schema_budget < profile.max_input_tokens
    assert profile.encoding in {"o200k_base", "cl100k_base"}


def test_large_windows_share_one_target():
    large = [profile for profile in shipped_profiles() if profile.max_input_tokens >= 200_000]
    assert len(large) > 10
    assert {profile.preferred_context_target for profile in large} == {LARGE_CONTEXT_TARGET}


def test_models_without_a_public_tokenizer_carry_their_factor():
    factors = {profile.model_id: profile.token_safety_factor for profile in shipped_profiles()}
    assert {f for name, f in factors.items() if name.startswith("claude")} == {CLAUDE_TOKEN_FACTOR}
    assert {f for name, f in factors.items() if name.startswith("gemini")} == {GEMINI_TOKEN_FACTOR}
    assert {f for name, f in factors.items() if name.startswith(("gpt", "o3", "o4"))} == {1.0}
    assert factors["default"] > 1.0


def test_a_projects_own_profile_wins_over_a_shipped_one():
    own = model_profile("gpt-5").model_copy(update={"preferred_context_target": 64_000})
    assert model_profile("openai/gpt-5-2025-08-07", [own]).preferred_context_target == 64_000


def test_a_projects_own_profile_is_found_by_its_exact_name():
    own = model_profile("default").model_copy(update={"model_id": "House/Model-2026-01-01"})
    assert model_profile("House/Model-2026-01-01", [own]) is own
