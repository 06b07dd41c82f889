"""Columns that follow from an item are computed once, and never taken for another item's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ctx_pipeline.index import memo as memo_module
from ctx_pipeline.index.memo import RowMemo


class Lengths:
    """Computes the length of each name, and remembers what it was asked."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.asked: list[str] = []

    def __call__(self, positions: np.ndarray) -> pa.Table:
        names = [self.names[at] for at in positions]
        self.asked += names
        return pa.table({"length": pa.array([len(name) for name in names], pa.int32())})


def take(folder: Path, names: list[str], version: str = "1") -> tuple[list[int], list[str]]:
    compute = Lengths(names)
    return RowMemo(folder, "lengths", version).take(names, compute)[
        "length"
    ].to_pylist(), compute.asked


def test_only_what_is_new_is_computed_and_the_order_is_the_callers(tmp_path: Path):
    assert take(tmp_path, ["aaa", "b"]) == ([3, 1], ["aaa", "b"])
    assert take(tmp_path, ["cc", "b", "aaa"]) == ([2, 1, 3], ["cc"])
    assert take(tmp_path, ["aaa", "b", "cc"]) == ([3, 1, 2], [])


def test_a_few_at_a_time_are_computed_as_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memo_module, "COMPUTE_ROWS", 2)
    names = ["aaa", "b", "cc", "dddd", "b", "eeeee"]
    assert take(tmp_path, names) == ([3, 1, 2, 4, 1, 5], ["aaa", "b", "cc", "dddd", "eeeee"])
    assert take(tmp_path, names) == ([3, 1, 2, 4, 1, 5], [])


def test_the_same_item_twice_is_computed_once(tmp_path: Path):
    assert take(tmp_path, ["aa", "aa", "b", "aa"]) == ([2, 2, 1, 2], ["aa", "b"])


def test_no_items_give_no_rows_and_later_ones_are_computed(tmp_path: Path):
    assert take(tmp_path, []) == ([], [])
    assert take(tmp_path, ["退款"]) == ([2], ["退款"])
    assert take(tmp_path, []) == ([], [])


def test_another_version_of_the_code_computes_everything_and_leaves_nothing_of_the_old(
    tmp_path: Path,
):
    take(tmp_path, ["a"])
    assert take(tmp_path, ["a"], "2") == ([1], ["a"])
    assert len(list((tmp_path / "rows").iterdir())) == 1


def test_what_is_no_longer_asked_for_is_in_no_file(tmp_path: Path):
    take(tmp_path, ["kept", "CANARY"])
    take(tmp_path, ["kept"])
    assert not any(b"CANARY" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert take(tmp_path, ["kept"]) == ([4], [])


def test_what_stays_is_kept_when_it_is_all_that_one_file_holds(tmp_path: Path):
    take(tmp_path, ["kept", "too"])
    take(tmp_path, ["kept", "too", "gone"])
    take(tmp_path, ["kept", "too"])
    assert take(tmp_path, ["kept", "too"]) == ([4, 3], [])


@pytest.mark.parametrize("damage", [b"", b"no arrow"])
def test_a_damaged_file_is_computed_again(tmp_path: Path, damage: bytes):
    take(tmp_path, ["a"])
    take(tmp_path, ["a", "bb"])
    first = min((tmp_path / "rows").rglob("*.arrow"))
    first.write_bytes(damage)
    values, asked = take(tmp_path, ["a", "bb"])
    assert values == [1, 2]
    assert len(asked) == 1


def test_a_changed_byte_is_noticed(tmp_path: Path):
    take(tmp_path, ["a", "bb"])
    file = next((tmp_path / "rows").rglob("*.arrow"))
    file.write_bytes(file.read_bytes().replace(b"\x02\x00\x00\x00", b"\x07\x00\x00\x00"))
    assert take(tmp_path, ["a", "bb"]) == ([1, 2], ["a", "bb"])


def test_many_small_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memo_module, "MAX_FILES", 3)
    names: list[str] = []
    for number in range(8):
        names.append(f"n{number}")
        assert take(tmp_path, names) == ([2] * len(names), [f"n{number}"])
    assert len(list((tmp_path / "rows").rglob("*.arrow"))) <= 3
