"""The lexical index: BM25 over the terms of `analysis`, filtered by tenant and scope inside the query."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ctx_pipeline.index.embedder import own_title
from ctx_pipeline.language.terms import query_terms, terms
from ctx_pipeline.machine_faults import can_write

if TYPE_CHECKING:
    import pyarrow as pa

    from ctx_pipeline.contracts import ContextItem

TERMS_VERSION: Final = "2"
"""Changes with the terms that a text gives, here or in `analysis`."""

TITLE_BOOST = 1.25
"""A term in the title weighs more than one in the body. With 2 the right function is among the first 2,000 tokens of
schemas in .947 of cases, with 1 in .957: names promise more than they hold."""

FEW_LABELS = 32
MAX_SCOPE_TERMS = 4_096
"""With more permitted labels than this the label filter is left to the caller's mask."""


class LexicalRow(NamedTuple):
    """What is indexed of one row."""

    row: int
    tenant: int
    scope: int
    current: bool
    """False for versions that only an `as_of` request can want."""
    title: str
    """Terms with blanks between them."""
    body: str


class LexicalHits(NamedTuple):
    """Rows and their BM25 scores, best first, ties by row."""

    rows: list[int]
    scores: list[float]


def _label_term(scope: int, *, current: bool) -> int:
    """Return the one term that says who may see a row, and whether only an `as_of` request can want it."""
    return scope * 2 + (not current)


def _schema() -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("row", stored=False, indexed=False, fast=True)
    builder.add_integer_field("tenant", stored=False, indexed=True, fast=False)
    builder.add_integer_field("scope", stored=False, indexed=True, fast=False)
    builder.add_text_field("title", stored=False, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("body", stored=False, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def terms_table(items: Sequence[ContextItem]) -> pa.Table:
    """Return what items are found by. Columns: title, body; terms with blanks between them.

    A title that is the content's own beginning is body alone: the first words would count twice.
    """
    import pyarrow as pa

    titles = (
        " ".join((own_title(item), *item.synonyms, item.item_id.partition("/")[2]))
        for item in items
    )
    return pa.table(
        {
            "title": pa.array([join_terms(title) for title in titles], pa.large_string()),
            "body": pa.array([join_terms(item.content or "") for item in items], pa.large_string()),
        }
    )


def join_terms(text: str) -> str:
    """Return the search terms of a text with blanks between them: what `LexicalRow` holds."""
    return " ".join(terms(text))


def build_lexical(directory: Path, rows: Iterable[LexicalRow]) -> int:
    """Write a new index into `directory`, replacing what is there; return the number of rows."""
    import tantivy

    temporary = directory.with_name(directory.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    index = tantivy.Index(_schema(), path=str(temporary))
    # One thread keeps documents in their order, so equal scores are cut the same way in every build.
    writer = index.writer(heap_size=256_000_000, num_threads=1)
    count = 0
    for entry in rows:
        document = tantivy.Document()
        document.add_integer("row", entry.row)
        document.add_integer("tenant", entry.tenant)
        document.add_integer("scope", _label_term(entry.scope, current=entry.current))
        document.add_text("title", entry.title)
        document.add_text("body", entry.body)
        writer.add_document(document)
        count += 1
    writer.commit()
    writer.wait_merging_threads()
    _open_alike(temporary)
    shutil.rmtree(directory, ignore_errors=True)
    temporary.rename(directory)
    return count


def _open_alike(directory: Path) -> None:
    """Let who may read the folder read its files: Tantivy makes some of them for their owner alone."""
    mode = directory.stat().st_mode & 0o666
    for part in directory.iterdir():
        part.chmod(mode)


class Lexical:
    """Searches one published lexical index. Safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        import tantivy

        self._tantivy: Any = tantivy
        self._index = tantivy.Index.open(str(self._openable(directory)))
        self._schema = self._index.schema
        self._searcher = self._index.searcher()

    def _openable(self, directory: Path) -> Path:
        """Return a folder to open the index in: Tantivy locks a file in it, which a read-only disk does not let it."""
        if can_write(directory):
            return directory
        links = Path(tempfile.mkdtemp(prefix="ctx-lexical-"))
        weakref.finalize(self, shutil.rmtree, links, ignore_errors=True)
        for part in directory.iterdir():
            if not part.name.endswith(".lock"):
                (links / part.name).symlink_to(part.absolute())
        return links

    def search(
        self, text: str, *, tenant: int, scopes: Sequence[int], current: bool, limit: int
    ) -> LexicalHits:
        """Return the best rows of a tenant under permitted scope labels. A query without words finds nothing.

        `current` leaves out versions that only an `as_of` request can want.
        """
        words = query_terms(text)
        if not words or not scopes:
            return LexicalHits([], [])
        query_class, occur = self._tantivy.Query, self._tantivy.Occur
        should = [
            (occur.Should, query_class.term_query(self._schema, "body", word, "freq"))
            for word in words
        ]
        for word in words:
            title = query_class.term_query(self._schema, "title", word, "freq")
            should.append((occur.Should, query_class.boost_query(title, TITLE_BOOST)))
        must = [
            (occur.Must, query_class.boolean_query(should)),
            (occur.Must, self._permitted(tenant, scopes, current)),
        ]
        hits = self._searcher.search(query_class.boolean_query(must), limit, count=False).hits
        rows: list[Any] = list(
            self._searcher.fast_field_values("row", [address for _, address in hits])
        )
        ranked = sorted(
            zip(rows, (score for score, _ in hits), strict=True), key=lambda hit: (-hit[1], hit[0])
        )
        return LexicalHits([int(row) for row, _ in ranked], [float(score) for _, score in ranked])

    def _permitted(self, tenant: int, scopes: Sequence[int], current: bool) -> Any:
        """Return the filter of permitted labels; a label belongs to one tenant.

        A few labels are read beside the words' own lists, which skips what no word is in; many are collected first.
        """
        query_class, occur = self._tantivy.Query, self._tantivy.Occur
        if len(scopes) > MAX_SCOPE_TERMS:
            return self._filter(query_class.term_query(self._schema, "tenant", tenant))
        terms = [_label_term(scope, current=True) for scope in scopes]
        if not current:
            terms += [_label_term(scope, current=False) for scope in scopes]
        if len(terms) > FEW_LABELS:
            return self._filter(query_class.term_set_query(self._schema, "scope", terms))
        any_of = [
            (occur.Should, query_class.term_query(self._schema, "scope", term)) for term in terms
        ]
        return self._filter(query_class.boolean_query(any_of))

    def _filter(self, query: Any) -> Any:
        return self._tantivy.Query.const_score_query(query, 0.0)
