"""Transform: the renditions that the budget chose, handed out byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctx_pipeline.stages.candidates import Candidate, Judged, Verdict

if TYPE_CHECKING:
    from ctx_pipeline.index.reader import ArtifactReader


def serve(judged: Judged, reader: ArtifactReader) -> dict[Candidate, str]:
    """Return the text of everything that is shown, in its chosen rendition."""
    return {
        candidate: _text(candidate, verdict, reader)
        for candidate in judged.candidates
        if (verdict := judged.verdicts[candidate]).rendition is not None
    }


def _text(candidate: Candidate, verdict: Verdict, reader: ArtifactReader) -> str:
    rendition = verdict.rendition
    assert rendition is not None, "what is shown has a rendition"
    if verdict.cut is not None:
        return verdict.cut.block
    if candidate.blocks is None:
        return reader.block(candidate.row, rendition)
    return candidate.blocks.of(rendition) or candidate.blocks.full
