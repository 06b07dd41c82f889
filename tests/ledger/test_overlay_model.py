from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ctx_pipeline.ledger import OVERLAY_CODES, Ledger, OverlayEntry
from testing.examples import examples
from tests.ledger.builders import overlay
from tests.ledger.conftest import DATABASES

ENTRIES = st.builds(
    overlay,
    item_id=st.sampled_from(["metric:gmv", "文档:退货"]),
    code=st.sampled_from(sorted(OVERLAY_CODES)),
    version=st.none() | st.just("v1"),
    principal=st.none() | st.just("ana"),
    reason=st.text(
        alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20
    ),
)


class OverlayMachine(RuleBasedStateMachine):
    """Two handles on one database against a list."""

    @classmethod
    def new_url(cls) -> str:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.url = self.new_url()
        self.handles = [Ledger.open(self.url) for _ in range(2)]
        self.model: list[OverlayEntry] = []

    @rule(handle=st.integers(0, 1), entries=st.lists(ENTRIES, max_size=3))
    def append(self, handle: int, entries: list[OverlayEntry]) -> None:
        last = self.handles[handle].append_overlay(entries)
        start = len(self.model) + 1
        self.model += [replace(entry, sequence=start + n) for n, entry in enumerate(entries)]
        assert last == len(self.model)

    @rule(handle=st.integers(0, 1))
    def reopen(self, handle: int) -> None:
        self.handles[handle].close()
        self.handles[handle] = Ledger.open(self.url)

    @rule(handle=st.integers(0, 1), back=st.integers(0, 5))
    def read(self, handle: int, back: int) -> None:
        since = max(0, len(self.model) - back)
        assert list(self.handles[handle].overlay_since(since)) == self.model[since:]

    @invariant()
    def both_know_the_last_number(self) -> None:
        assert [handle.overlay_sequence() for handle in self.handles] == [len(self.model)] * 2

    def teardown(self) -> None:
        for handle in self.handles:
            handle.close()


@pytest.mark.parametrize("database", DATABASES)
def test_the_overlay_is_a_list_for_every_handle(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    numbers = count()

    class Machine(OverlayMachine):
        @classmethod
        def new_url(cls) -> str:
            if database == "sqlite":
                return f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"
            return str(request.getfixturevalue("postgres_server").database())

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=examples(15), stateful_step_count=12)
    )
