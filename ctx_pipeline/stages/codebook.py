"""Small numbers that columns hold in place of words. New words go to the end: artifacts keep the
old numbers.
"""

from __future__ import annotations

from ctx_pipeline.contracts.codes import ItemKind, WhenToLoad
from ctx_pipeline.stages.sections import SECTION_NAMES, TOOLS

KINDS: tuple[str, ...] = tuple(kind.value for kind in ItemKind)
WHEN: tuple[WhenToLoad, ...] = tuple(WhenToLoad)
SECTION_LIST: tuple[str, ...] = (*SECTION_NAMES, TOOLS)
WHEN_NAMES: tuple[str, ...] = tuple(when.value for when in WHEN)
