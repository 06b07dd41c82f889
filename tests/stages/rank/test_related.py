"""What hits say of each other: columns that join, and chunks of one document."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.stages.candidates import Candidate
from ctx_pipeline.stages.rank.related import link_columns, spread_chunks


def candidate(
    item_id: str, relevance: float, row: int = 0, needs: tuple[int, ...] = (), source: str = "s"
) -> tuple[Candidate, float]:
    kind, _, name = item_id.partition(":")
    title = name.partition("/")[2]
    made = Candidate(
        item_id=item_id,
        version="1",
        kind=kind,
        title=title,
        source=source,
        section="schema",
        row=row,
        needs=needs,
    )
    return made, relevance


def schema(
    name: str, relevance: float, row: int, needs: tuple[int, ...] = (), source: str = "s"
) -> tuple[Candidate, float]:
    return candidate(f"schema:{source}/{name}", relevance, row, needs, source)


def named(relevance: dict[Candidate, float]) -> dict[str, float]:
    return {one.item_id: value for one, value in relevance.items()}


def linked(items: dict[Candidate, float]) -> dict[str, float]:
    return named({**items, **link_columns(items)})


def spread(items: dict[Candidate, float]) -> dict[str, float]:
    return named({**items, **spread_chunks(items)})


def database(source: str = "s", other: str = "s") -> dict[Candidate, float]:
    return dict(
        [
            schema("client", 0.8, 1, source=source),
            schema("client.gender", 0.9, 2, (1,), source),
            schema("client.District_ID", 0.2, 3, (1,), source),
            schema("client.born", 0.2, 4, (1,), source),
            schema("district", 0.7, 5, source=other),
            schema("district.district_id", 0.2, 6, (5,), other),
            schema("district.region", 0.6, 7, (5,), other),
            schema("地区", 0.1, 8, source=source),
            schema("地区.编号", 0.1, 9, (8,), source),
        ]
    )


def test_a_column_that_two_relevant_tables_share_comes_before_their_other_columns():
    found = linked(database())
    assert found["schema:s/client.District_ID"] > found["schema:s/client.born"]
    assert found["schema:s/district.district_id"] > found["schema:s/client.born"]
    assert found["schema:s/client.born"] > 0.2
    assert found["schema:s/client"] == 0.8


def test_columns_of_two_databases_do_not_join():
    found = linked(database("s", "t"))
    assert found["schema:s/client.District_ID"] == found["schema:s/client.born"]


def test_a_column_without_its_table_among_the_hits_stays_as_it_is():
    alone = dict(
        [
            schema("a.id", 0.4, 1, (99,)),
            schema("b.id", 0.4, 2, ()),
            candidate("document:d/x", 0.9, 3),
        ]
    )
    assert list(linked(alone).values()) == [0.4, 0.4, 0.9]


@given(values=st.lists(st.floats(0, 1), min_size=9, max_size=9))
def test_linking_never_lowers_a_relevance_and_never_leaves_nothing_to_one(values: list[float]):
    items = dict(zip(database(), values, strict=True))
    for one, value in link_columns(items).items():
        assert items[one] - 1e-9 <= value <= 1


def test_the_second_chunk_of_a_document_comes_after_an_almost_equal_chunk_of_another():
    items = dict(
        [
            candidate("document:d/a.md#1", 0.9),
            candidate("document:d/a.md#2", 0.85),
            candidate("document:d/b.md#1", 0.8),
        ]
    )
    found = spread(items)
    assert sorted(found, key=lambda name: -found[name]) == [
        "document:d/a.md#1",
        "document:d/b.md#1",
        "document:d/a.md#2",
    ]
    assert (found["document:d/a.md#1"], found["document:d/b.md#1"]) == (0.9, 0.8)


def test_a_long_document_keeps_half_of_each_chunk_and_what_is_no_chunk_keeps_all():
    items = [candidate(f"document:d/a.md#{n}", 1.0) for n in range(1, 30)]
    items.append(candidate("tool:t/pay", 0.3))
    found = spread(dict(items))
    assert min(found[f"document:d/a.md#{n}"] for n in range(1, 30)) == 0.5
    assert found["tool:t/pay"] == 0.3
