"""How many examples a property is tried with: short on a change, long where nobody waits."""

from __future__ import annotations

import os

from hypothesis import settings

USUAL = 100
"""Examples of a property that says nothing: Hypothesis's own default."""

PROFILES = {"ci": USUAL // 2, "full": USUAL * 5, "explore": USUAL * 10}
"""Examples of such a property in each profile; only `explore` looks for new ones at every run."""


def load_profile() -> str:
    """Load the profile that `HYPOTHESIS_PROFILE` names, `ci` by default, and return its name."""
    name = os.environ.get("HYPOTHESIS_PROFILE", "ci")
    for profile, count in PROFILES.items():
        settings.register_profile(
            profile, derandomize=profile != "explore", deadline=None, max_examples=count
        )
    settings.load_profile(name)
    return name


def examples(usual: int) -> int:
    """Return the examples of a property that is worth more or fewer than usual, as the profile has
    it.
    """
    return max(1, usual * settings.default.max_examples // USUAL)
