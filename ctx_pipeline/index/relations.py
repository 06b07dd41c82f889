"""What might help beside a row without being needed to understand it: the edges that nobody
declares.

A chunk's document, a tool's skills, a table's metrics, the columns that a metric names, the tests
of a piece of code.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ctx_pipeline.contracts.codes import ItemKind
from ctx_pipeline.index.rows import Row

_METRIC, _SCHEMA, _TOOL, _SKILL, _CODE = (
    kind.value
    for kind in (ItemKind.METRIC, ItemKind.SCHEMA, ItemKind.TOOL, ItemKind.SKILL, ItemKind.CODE)
)

_TEST_NAME = re.compile(
    r"(?:^|/)(?:test_[^/]*\.py|[^/]*_test\.(?:py|go|rs|rb|cc|cpp|c)|[^/]*[._](?:spec|test)\.[cm]?[jt]sx?|[^/]*_spec\.rb"
    r"|[^/]*Tests?\.(?:java|cs|php)|__tests__/[^/]*\.[cm]?[jt]sx?|test-[^/]*\.sh)$"
)


def related_rows(rows: Sequence[Row], needed: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the related rows of each row; `needed` are the rows each depends on.

    Only the newest version of an item has any, and is any. There are no more than edges: what is
    too many is cut where it is known who asks, so that rows that one reader may not see take no
    place of others.
    """
    graph = _Graph(rows, needed)
    result: list[list[int]] = [[] for _ in rows]
    for at in graph.last.values():
        found = dict.fromkeys(
            other for other in graph.of(at) if other != at and other not in needed[at]
        )
        result[at] = list(found)
    return result


class _Graph:
    def __init__(self, rows: Sequence[Row], needed: Sequence[Sequence[int]]) -> None:
        self.rows = rows
        self.needed = needed
        self.last: dict[tuple[str, str], int] = {row.key: at for at, row in enumerate(rows)}
        self.users: dict[int, list[int]] = defaultdict(list)
        """Rows that need a row, by the row they need."""
        for at in self.last.values():
            for target in needed[at]:
                self.users[target].append(at)

    def of(self, at: int) -> Iterator[int]:
        row = self.rows[at]
        if "#" in row.item_id:
            yield from self._chunks(row)
        if row.kind == _TOOL:
            yield from (user for user in self.users[at] if self.rows[user].kind == _SKILL)
        elif row.kind == _SCHEMA:
            yield from (user for user in self.users[at] if self.rows[user].kind == _METRIC)
        elif row.kind == _METRIC:
            yield from self._columns(at)
        elif row.kind == _CODE:
            yield from self._tests(at)

    def _chunks(self, row: Row) -> Iterator[int]:
        """Yield the head of a chunk's document, then its neighbours."""
        document, _, number = row.item_id.rpartition("#")
        if not number.isascii() or not number.isdigit():
            return
        place = int(number)
        for other in (1, place - 1, place + 1):
            if (found := self.last.get((row.tenant, f"{document}#{other}"))) is not None:
                yield found

    def _columns(self, metric: int) -> Iterator[int]:
        """Yield the columns of a metric's tables that its definition names."""
        mentions = frozenset(self.rows[metric].mentions)
        for table in self.needed[metric]:
            prefix = f"{self.rows[table].item_id}."
            for column in self.users[table]:
                item_id = self.rows[column].item_id
                if item_id.startswith(prefix) and item_id.removeprefix(prefix).lower() in mentions:
                    yield column

    def _tests(self, file: int) -> Iterator[int]:
        """Yield the test files that cover a file: those that need it, by their names."""
        for user in self.users[file]:
            row = self.rows[user]
            if (
                row.kind == _CODE
                and "::" not in row.item_id
                and row.path is not None
                and is_test(row.path)
            ):
                yield user


def is_test(path: str) -> bool:
    """Say whether a file is a test by its name."""
    return _TEST_NAME.search(path) is not None or (
        path.endswith(".rs") and "tests/" in f"/{path}".replace("//", "/")
    )
