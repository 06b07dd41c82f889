"""What of a recorded output is compared, and what is not."""

from __future__ import annotations

from docs.transcripts import Command, Step, comparable, settled


def test_times_sizes_and_the_digits_of_scores_are_not_compared():
    then = [
        "12 live items, 1 embedded in 10.5 s",
        "artifact " + "a" * 64,
        "read 2026-11-30 22:23:28Z",
        "what would let it in   +0.11 relevance",
        "feature cost  0.0029",
    ]
    now = [
        "12 live items, 1 embedded in 0.9 s",
        "artifact " + "b" * 64,
        "read 2026-12-01 04:59:18Z",
        "what would let it in   -0.09 relevance",
        "feature cost  0.0031",
    ]
    assert settled(now) == settled(then)


def test_the_order_of_neighbouring_scores_is_not_compared():
    then = ["item  score", "metric:a  0.5721", "metric:b  0.5720", "", "Next"]
    now = ["item  score", "metric:b  0.5722", "metric:a  0.5719", "", "Next"]
    assert settled(now) == settled(then)


def test_what_is_in_and_the_order_of_all_else_is_compared():
    assert settled(["metric:a  0.57"]) != settled(["metric:b  0.57"])
    assert settled(["metric:a  0.57"]) != settled(["metric:a  0.57", "metric:b  0.56"])
    assert settled(["task", "state"]) != settled(["state", "task"])
    assert settled(["in  0.57", "", "out  0.31"]) != settled(["out  0.57", "", "in  0.31"])
    assert settled(["12 live items"]) != settled(["13 live items"])


def test_another_command_is_another_step():
    one = Step("build", commands=[Command("ctx build", ["done in 1.0 s"])])
    assert comparable(one) != comparable(Step("build", commands=[Command("ctx status")]))
