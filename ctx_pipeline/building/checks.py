"""Every check of a build, declared once: its name, what it says, and whether a failure stops a
build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    passed: bool
    blocking: bool
    """Whether what failed would make serving wrong, so that the build must not be published."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    samples: tuple[str, ...] = ()
    """Ids, or names, of the first things that failed; never content."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    description: str
    """What holds where it passes."""
    blocking: bool = False
    """Whether what failed stops what is built from it."""

    def found(
        self,
        passed: bool,
        counts: dict[str, int],
        samples: tuple[str, ...] = (),
        *,
        only_warns: bool = False,
    ) -> Finding:
        """Return what this check found; `only_warns` of one that blocks: not this time."""
        return Finding(self.name, passed, self.blocking and not only_warns, counts, samples)


# --- of what a stage has staged

ONE_ROW_PER_VERSION = Check(
    "one_row_per_version", "Every item version of a tenant is staged once.", blocking=True
)
ROWS_MATCH_THE_STORE = Check(
    "rows_match_the_store",
    "The rows are the item versions of the store less what was forgotten, counted anew.",
    blocking=True,
)
VECTORS_ARE_OF_ONE_MODEL = Check(
    "vectors_are_of_one_model",
    "Vectors are finite, of length 1, and those that the store has for their text.",
    blocking=True,
)
EVERY_ROW_HAS_A_SCOPE = Check(
    "every_row_has_a_scope",
    "Every row has a tenant, a grant and a sensitivity; without them nobody sees it.",
)
WITHDRAWN_ROWS_STAY_OUT = Check(
    "withdrawn_rows_stay_out",
    "Rows are retired, quarantined or forgotten exactly when the record says so.",
    blocking=True,
)
ONLY_CURRENT_VERSIONS_ARE_LIVE = Check(
    "only_current_versions_are_live",
    "Of each item the newest version that has begun is live, and no other.",
    blocking=True,
)
LABELS_ARE_WITHIN_SCOPE = Check(
    "labels_are_within_scope",
    "Sampled rows are open to nobody to whom their item is closed.",
    blocking=True,
)
AUTHORITY_IS_WITHIN_POLICY = Check(
    "authority_is_within_policy",
    "Authority is 0 to 100, and no higher than the source's own.",
    blocking=True,
)
TOKEN_COUNTS_ARE_EXACT = Check(
    "token_counts_are_exact",
    "Sampled token counts are what the tokenizer says of the staged text.",
    blocking=True,
)

STAGE_CHECKS: Mapping[str, tuple[Check, ...]] = {
    "discovered_items": (ONE_ROW_PER_VERSION, ROWS_MATCH_THE_STORE, VECTORS_ARE_OF_ONE_MODEL),
    "filtered_items": (
        EVERY_ROW_HAS_A_SCOPE,
        WITHDRAWN_ROWS_STAY_OUT,
        ONLY_CURRENT_VERSIONS_ARE_LIVE,
        LABELS_ARE_WITHIN_SCOPE,
    ),
    "ranked_items": (AUTHORITY_IS_WITHIN_POLICY,),
    "budgeted_items": (TOKEN_COUNTS_ARE_EXACT,),
}
"""The checks of each stage that is audited before `assembled_items` publishes."""

# --- of how a source was read

EVERY_FILE_LOADED = Check(
    "every_file_loaded", "Every file of the source was read without an error."
)
NOTHING_VANISHED = Check(
    "nothing_vanished",
    "The source has not lost more of its items than it plausibly would (`max_shrink`). What it "
    "lost is served until somebody confirms it: `ctx retire --source NAME`.",
    blocking=True,
)
SCHEMA_IS_STABLE = Check(
    "schema_is_stable",
    "No table lost a column or changed a type, and right calls of a tool stay right.",
)
VOLUME_IS_USUAL = Check(
    "volume_is_usual",
    "The reading has not added and lost far more items than the ones before.",
)
DEFINITIONS_ARE_VALID = Check(
    "definitions_are_valid",
    "Names are unique, expressions parse, tables and columns exist, versions rise. Reading refuses "
    "a changed definition under an old version by itself, so this check blocks nothing.",
)
TOOLS_ARE_SOUND = Check(
    "tools_are_sound", "No tool's definition has an error that `ctx tools lint` finds."
)
TOOL_TEXTS_ARE_STABLE = Check(
    "tool_texts_are_stable",
    "No text of a tool changed while its parameters stayed as they were.",
)
