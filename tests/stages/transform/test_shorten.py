"""Long texts cut to a size: what tells most stays, and what was left out is said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.language.tokens import count_tokens
from ctx_pipeline.stages.transform.shorten import LongText

PASSED = [f"tests/test_m.py::test_{n} PASSED" for n in range(3_000)]
INFO = [f"10:{n % 60:02d} INFO [worker-{n % 7}] request {n} took {n % 90} ms" for n in range(3_000)]
ORDERS = [f"10:{n % 60:02d} 信息 处理订单 {n} 完成，用时 {n % 90} 毫秒" for n in range(3_000)]
TRACE = """Traceback (most recent call last):
  File "pool.py", line 3, in take
    return self.free[0]
  File "list.py", line 9, in __getitem__
    raise IndexError
IndexError: list index out of range""".splitlines()


def cut(lines: list[str] | str, most: int = 600) -> str:
    text = LongText(lines if isinstance(lines, str) else "\n".join(lines)).cut(most, count_tokens)
    assert text is not None
    assert count_tokens(text) <= most
    return text


@pytest.mark.parametrize(
    ("mass", "odd"),
    [
        (PASSED, "FAILED tests/test_m.py::test_pool - AssertionError: 3 != 4"),
        (INFO, "10:31 ERROR connection pool exhausted"),
        (INFO, "10:31 INFO disk usage at 99 %, writes stop soon"),
        (INFO, "segmentation fault (core dumped)"),
        (ORDERS, "10:31 错误 订单 99812 支付回调超时"),
        (ORDERS, "10:31 库存服务已切换到备用机房"),
        (ORDERS, "10:31 严重：数据库连接池耗尽"),
        ([f"{n},{n * 7 % 1000},ok" for n in range(3_000)], "1500,,NULL"),
    ],
)
@pytest.mark.parametrize("place", [40, 1_500, 2_990])
def test_the_one_line_that_differs_is_kept_wherever_it_stands(
    mass: list[str], odd: str, place: int
):
    text = cut([*mass[:place], odd, *mass[place:]])
    assert odd in text
    assert text.startswith(mass[0])
    assert text.endswith(mass[-1])
    assert "left out …" in text


def test_a_stack_trace_is_kept_whole_with_what_stands_around_it():
    text = cut([*INFO[:1_000], *TRACE, *INFO[1_000:]])
    assert "\n".join((INFO[999], *TRACE, INFO[1_000])) in text


def test_every_kind_of_failure_is_told_before_one_kind_is_told_twice():
    many = [f"ERROR retry {n} refused by host" for n in range(2_000)]
    text = cut([*many[:900], "FATAL: no space left on device", *many[900:], "done"])
    assert "FATAL: no space left on device" in text
    assert many[0] in text
    assert "done" in text


def test_lines_that_only_name_failures_do_not_push_out_those_that_are_some():
    fine = [f"tests/test_errors.py::test_error_{n} PASSED" for n in range(900)]
    zero = [f"step {n}: 0 errors, 0 failures, 没有异常" for n in range(900)]
    text = cut([*fine, "E   assert 3 == 4", *zero], 400)
    assert "E   assert 3 == 4" in text


def test_what_was_left_out_is_said_with_what_it_was_like():
    text = cut([*PASSED, "exit code 1"], 200)
    assert "lines like “tests/test_m.py::test_" in text
    assert "3,000" not in text
    assert text.endswith("exit code 1")


def test_one_long_line_of_json_keeps_what_differs_and_its_end():
    rows = [{"id": n, "status": "ok", "城市": "北京"} for n in range(4_000)]
    rows[2_000] = {"id": 2_000, "status": "failed", "reason": "quota exceeded"}
    text = cut(json.dumps({"rows": rows, "count": 4_000}, ensure_ascii=False))
    assert '"reason": "quota exceeded"' in text
    assert text.endswith('"count": 4000}')
    assert "characters left out" in text


@pytest.mark.parametrize("word", ["a", "连接池正常处理请求", "=", "x1y2"])
def test_one_word_without_end_keeps_its_start_and_end(word: str):
    whole = word * (200_000 // len(word))
    text = cut(whole, 500)
    assert text.startswith(word[:1])
    assert text.endswith(word[-1:])
    assert "characters left out" in text
    assert count_tokens(text) > 250


def test_no_more_than_is_asked_for_is_looked_at():
    whole = "\n".join([*INFO, "ERROR in the middle", *INFO, "exit code 3"])
    text = LongText(whole, looked_at=60_000).cut(600, count_tokens)
    assert text is not None
    assert text.endswith("exit code 3")
    assert "ERROR in the middle" not in text
    assert "left out …" in text


@given(st.lists(st.text("ab错误 \t0", max_size=30), min_size=1, max_size=60), st.integers(20, 300))
def test_a_cut_has_only_lines_of_the_text_and_what_it_says_of_gaps(lines: list[str], most: int):
    whole = "\n".join(lines)
    text = LongText(whole).cut(most, count_tokens)
    if text is not None:
        assert count_tokens(text) <= most
        kept = [line for line in text.split("\n") if "left out …" not in line]
        rest = iter(whole.split("\n"))
        assert all(any(line == other for other in rest) for line in kept)
