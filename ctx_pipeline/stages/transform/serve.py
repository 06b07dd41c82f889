"""Transform: the renditions that the budget chose, handed out byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctx_pipeline.contracts import Rendition
from ctx_pipeline.stages.candidates import Candidate, Judged

if TYPE_CHECKING:
    from ctx_pipeline.index.reader import ArtifactReader


def serve(judged: Judged, reader: ArtifactReader) -> dict[Candidate, str]:
    """Return the text of everything that is shown, in its chosen rendition."""
    return {
        candidate: _text(candidate, rendition, reader)
        for candidate in judged.candidates
        if (rendition := judged.verdicts[candidate].rendition) is not None
    }


def _text(candidate: Candidate, rendition: Rendition, reader: ArtifactReader) -> str:
    if candidate.blocks is None:
        return reader.block(candidate.row, rendition)
    return candidate.blocks.of(rendition) or candidate.blocks.full
