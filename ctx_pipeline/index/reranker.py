"""Read a request and a text together and say how well they fit: slower and closer than comparing
two vectors.

Optional: a cross-encoder of sentence-transformers, of the `models` extra.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Final, Protocol

from ctx_pipeline.errors import Unavailable

MAX_CHARS: Final = 2_000
"""Of a request or a text; models of this kind read about 512 tokens."""


class Reranker(Protocol):
    """Judges texts by a request."""

    name: str
    """Part of the ranking version of every snapshot."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how well each text answers the request, 0 to 1. Same texts, same numbers."""
        ...


class _CrossEncoder:
    def __init__(self, model: str) -> None:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            library: Any = import_module("sentence_transformers")
            torch: Any = import_module("torch")
        except (ImportError, OSError, RuntimeError) as error:
            raise _unavailable(model, "pip install 'ctx-pipeline[models]'") from error
        try:
            self._model: Any = library.CrossEncoder(model)
        except Exception as error:  # Hub, network and file errors share no base class.
            raise _unavailable(
                model,
                "check the name, download the model while online, or name the folder that holds it",
            ) from error
        self._activation: Any = torch.nn.Sigmoid()
        self._lock = Lock()
        self.name = model.rstrip("/").rpartition("/")[2]

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        pairs = [(query[:MAX_CHARS], text[:MAX_CHARS]) for text in texts]
        if not pairs:
            return []
        with self._lock:
            # One pair at a time: padding to the longest changes the last bits of a score.
            values = self._model.predict(
                pairs,
                batch_size=1,
                activation_fn=self._activation,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return [round(float(value), 4) for value in values]


@cache
def load_reranker(model: str) -> Reranker:
    """Return the cross-encoder of a folder or hub name; it must have one output.

    Raises:
        Unavailable: the library or the model is not there.
    """
    return _CrossEncoder(model)


def _unavailable(model: str, fix: str) -> Unavailable:
    return Unavailable(
        f"the reranking model {model!r} cannot be loaded",
        where="[engine] reranker",
        fix=fix,
        code="model_unavailable",
    )
