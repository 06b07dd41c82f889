"""What the shipped models can take.

Limits are those that the providers publish; `[[models]]` in `ctx.toml` adds others or replaces one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from ctx_pipeline.contracts import ModelProfile
from ctx_pipeline.errors import InvalidRequest

CLAUDE_TOKEN_FACTOR = 1.2
"""Claude has no public exact tokenizer: o200k counts times this factor are budgeted. A published
constant, not a measurement of one text."""

GEMINI_TOKEN_FACTOR = 1.15
"""As `CLAUDE_TOKEN_FACTOR`, for Gemini."""

UNKNOWN_TOKEN_FACTOR = 1.25
"""For the generic profile, whose tokenizer nobody knows."""

LARGE_WINDOW_TOKENS = 200_000
LARGE_CONTEXT_TARGET = 32_000
"""Aim for windows of `LARGE_WINDOW_TOKENS` and more. Answers get worse long before such a window is
full, so the target is a choice of quality and cost; raise it in `[[models]]` for tasks that need
more."""

TARGET_SHARE = 0.25
"""Aim for smaller windows, as a share of the input that fits."""

COMPACTION_SHARE = 0.8
"""Share of the input that fits at which a session is compacted: the third of the pressure zones 50
/ 65 / 80 / 90 %."""

_VERSION_SUFFIX = re.compile(
    r"(?:[-@]\d{4}-\d{2}-\d{2}|[-@]20\d{6}|-preview(?:-\d{2}-\d{2})?|-exp|-latest|-0\d{2}|-v\d(?::\d)?)$"
)
_PROVIDER_PREFIX = re.compile(r"^(?:.*/|(?:[a-z]{2,6}\.)?anthropic\.)")


def _profile(
    model_id: str,
    *,
    window: int | None,
    output: int,
    max_input: int | None = None,
    reserve: int = 8_000,
    reasoning: int = 0,
    encoding: str = "o200k_base",
    factor: float = 1.0,
    image_tokens: int = 800,
    cache_from: int | None = 1_024,
    tool_search: bool = False,
    multimodal: bool = True,
) -> ModelProfile:
    """Return a profile whose targets follow from the window; all sizes in tokens.

    `window` is None where input and output do not share one; then `max_input` is the limit.
    `reserve` is kept free for the answer and `reasoning` for thinking. `cache_from` is the shortest
    prefix that the provider caches; None: it caches nothing.
    """
    fits = max_input or window
    if fits is None:
        raise ValueError("a profile needs window or max_input")
    return ModelProfile(
        model_id=model_id,
        max_input_tokens=fits,
        max_output_tokens=output,
        context_window=window,
        preferred_context_target=LARGE_CONTEXT_TARGET
        if fits >= LARGE_WINDOW_TOKENS
        else int(fits * TARGET_SHARE),
        compaction_threshold=int(fits * COMPACTION_SHARE),
        output_reserve=reserve,
        reasoning_reserve=reasoning,
        tool_schema_budget=min(8_000, fits // 8),
        encoding=encoding,
        token_safety_factor=factor,
        image_tokens=image_tokens,
        supports_prompt_cache=cache_from is not None,
        cache_min_prefix_tokens=cache_from or 0,
        supports_tool_search=tool_search,
        supports_multimodal=multimodal,
    )


def _gpt5(model_id: str) -> ModelProfile:
    return _profile(model_id, window=400_000, max_input=272_000, output=128_000, reasoning=16_000)


def _gpt5_large(model_id: str) -> ModelProfile:
    return _profile(
        model_id,
        window=1_050_000,
        max_input=922_000,
        output=128_000,
        reasoning=16_000,
        tool_search=True,
    )


def _gpt41(model_id: str) -> ModelProfile:
    return _profile(model_id, window=1_047_576, output=32_768)


def _gpt4o(model_id: str) -> ModelProfile:
    return _profile(model_id, window=128_000, output=16_384, reserve=4_000)


def _o_series(model_id: str, *, multimodal: bool = True) -> ModelProfile:
    return _profile(
        model_id, window=200_000, output=100_000, reasoning=25_000, multimodal=multimodal
    )


def _claude(
    model_id: str,
    *,
    window: int = 200_000,
    output: int = 64_000,
    cache_from: int = 1_024,
    tool_search: bool = True,
) -> ModelProfile:
    return _profile(
        model_id,
        window=window,
        output=output,
        factor=CLAUDE_TOKEN_FACTOR,
        image_tokens=1_600,
        cache_from=cache_from,
        tool_search=tool_search,
    )


def _gemini(model_id: str, *, cache_from: int) -> ModelProfile:
    return _profile(
        model_id,
        window=None,
        max_input=1_048_576,
        output=65_536,
        reasoning=8_000,
        factor=GEMINI_TOKEN_FACTOR,
        image_tokens=1_120,
        cache_from=cache_from,
    )


_SHIPPED: dict[str, ModelProfile] = {
    profile.model_id: profile
    for profile in (
        *(_gpt5_large(name) for name in ("gpt-5.6", "gpt-5.5", "gpt-5.4")),
        *(_gpt5(name) for name in ("gpt-5.2", "gpt-5.1", "gpt-5", "gpt-5-mini", "gpt-5-nano")),
        *(_gpt41(name) for name in ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano")),
        *(_gpt4o(name) for name in ("gpt-4o", "gpt-4o-mini")),
        _profile(
            "gpt-4-turbo",
            window=128_000,
            output=4_096,
            reserve=4_000,
            encoding="cl100k_base",
            cache_from=None,
        ),
        _profile(
            "gpt-4",
            window=8_192,
            output=8_192,
            reserve=1_024,
            encoding="cl100k_base",
            cache_from=None,
            multimodal=False,
        ),
        *(_o_series(name) for name in ("o3", "o4-mini")),
        _o_series("o3-mini", multimodal=False),
        *(
            _claude(f"claude-opus-{version}", window=1_000_000, output=128_000, cache_from=4_096)
            for version in ("5", "4-8", "4-7", "4-6")
        ),
        *(_claude(f"claude-sonnet-{version}", window=1_000_000) for version in ("5", "4-6")),
        _claude("claude-opus-4-5", cache_from=4_096),
        _claude("claude-sonnet-4-5"),
        _claude("claude-haiku-4-5", cache_from=4_096, tool_search=False),
        _claude("claude-opus-4-1", output=32_000, tool_search=False),
        _claude("claude-opus-4", output=32_000, tool_search=False),
        _claude("claude-sonnet-4", tool_search=False),
        *(
            _gemini(name, cache_from=4_096)
            for name in ("gemini-3-pro", "gemini-3-flash", "gemini-2.5-pro")
        ),
        _gemini("gemini-2.5-flash", cache_from=1_024),
        _profile(
            "default",
            window=128_000,
            output=8_192,
            reserve=4_000,
            factor=UNKNOWN_TOKEN_FACTOR,
            image_tokens=1_600,
            cache_from=None,
            multimodal=False,
        ),
    )
}

_FAMILIES = {
    "claude-opus": "claude-opus-4-5",
    "claude-sonnet": "claude-sonnet-4-5",
    "claude-haiku": "claude-haiku-4-5",
    "claude-haiku-4": "claude-haiku-4-5",
    "gemini-3": "gemini-3-pro",
    "gemini-2.5": "gemini-2.5-pro",
}
"""Names of a family stand for its member with the smallest window."""


def shipped_profiles() -> tuple[ModelProfile, ...]:
    """Return the profiles that ship, newest of each provider first."""
    return tuple(_SHIPPED.values())


def model_profile(name: str, extra: Sequence[ModelProfile] = ()) -> ModelProfile:
    """Return the limits of a model.

    `extra` (the `[[models]]` of `ctx.toml`) wins over what ships. A provider's prefix (`openai/`,
    `anthropic.`), a release date or a suffix such as `-latest` does not matter: `gpt-5-2025-08-07`
    is `gpt-5`.

    Raises:
        InvalidRequest: nobody knows the model (`unknown_model`); the fix names the nearest one.
    """
    known = {**_SHIPPED, **{profile.model_id: profile for profile in extra}}
    for candidate in _spellings(name):
        if profile := known.get(candidate) or known.get(_FAMILIES.get(candidate, "")):
            return profile
    near = get_close_matches(_spellings(name)[-1], list(known), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? Else add" if near else "add"
    raise InvalidRequest(
        f"no profile for model {name[:80]!r}",
        where="model profile",
        fix=f"{hint} a [[models]] entry with its limits to ctx.toml, or use 'default'",
        code="unknown_model",
    )


def _spellings(name: str) -> list[str]:
    """Return the name as given, in lower case, without provider, and then without each version
    suffix in turn.
    """
    bare = _PROVIDER_PREFIX.sub("", name.strip().lower())
    spellings = [name, name.strip().lower(), bare]
    while (shorter := _VERSION_SUFFIX.sub("", bare)) != bare:
        bare = shorter
        spellings.append(bare)
    if bare.startswith("claude"):
        spellings.append(bare.replace(".", "-"))
    return spellings
