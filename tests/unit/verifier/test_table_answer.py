"""Kind table_answer: values with tolerance, rows as multisets or in order, ties, broken references."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask, Unsure
from tiltyard_proto.messages import Task, Verification


def task(kind: str, value: Any, options: dict[str, Any] | None = None, **data: Any) -> Task:
    verification = Verification(kind="table_answer", data={"type": kind, "value": value, **data}, options=options or {})
    return Task(id="t", domain="data.test", prompt=(), verification=verification)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("number", 0.3, "0.30000000000000004"),
        ("number", "3", "3.0"),
        ("integer", 3, "Answer: 3"),
        ("number", 1234.5, "**Answer:** $1,234.50"),
        ("number", 5, "I see 4 rows.\nAnswer: 4\nNo, one more.\nFinal answer: 5."),
        ("text", "Norway", "answer: norway"),
        ("null", None, "none"),
        ("date", "2024-03-01", "1 March 2024"),
        ("boolean", True, "Yes"),
        ("list", ["a", "b"], 'Answer: ["b", "a"]'),
        ("number", 2, '{"answer": 2}'),
        ("rows", [["a", 1], ["b", 2.5]], '```json\n[["B", 2.5], ["a", "1"]]\n```'),
        ("rows", [["a", 1]], '[{"name": "a", "n": 1}]'),
    ],
)
def test_right_answers_pass(kind: str, value: Any, text: str) -> None:
    """In their usual forms, behind a mark, alone or as JSON."""
    assert grade(task(kind, value), text).passed


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("number", 3, "4"),
        ("number", 3, "3 or 4"),
        ("number", 0.3, "0.31"),
        ("integer", 3, "3.4"),
        ("number", 3, ""),
        ("text", "Niger", "Nigeria"),
        ("text", "a", "a" * 300),
        ("boolean", True, "no"),
        ("list", ["a", "a"], '["a"]'),
        ("list", ["a"], '["a"] ["a"]'),
        ("null", None, "5"),
        ("rows", [["a", 1]], '[["a", 2]]'),
        ("rows", [["a", 1]], '[[1, "a"]]'),
        ("rows", [["a", None]], '[["a", 0]]'),
        ("rows", [["a", 1]], "[1]"),
        ("list", ["a"], '{"a": ["a"]}'),
        ("number", 1, "true"),
        ("list", [1], "[true]"),
        ("list", ["a"], "[" * 5000),
        ("number", 5, '{"k": 1, "k": 5}'),
    ],
)
def test_wrong_answers_score_nothing(kind: str, value: Any, text: str) -> None:
    """Near misses, other types, too much text, several values."""
    verdict = grade(task(kind, value), text)
    assert verdict.score == 0.0
    assert verdict.reasons


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.sampled_from("abc")), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_rows_are_a_multiset(rows: list[tuple[int, str]], rng: random.Random) -> None:
    """Shuffled rows pass; with one changed, left out or doubled they don't."""
    shuffled = [list(row) for row in rows]
    rng.shuffle(shuffled)
    wanted = task("rows", [list(row) for row in rows])
    assert grade(wanted, json.dumps(shuffled)).passed
    changed = [[shuffled[0][0] + 100, shuffled[0][1]], *shuffled[1:]]
    for wrong in (shuffled[1:], [*shuffled, shuffled[0]], changed):
        assert not grade(wanted, f"Answer: {json.dumps(wrong)}").passed


def test_order_and_repeats_count_as_declared() -> None:
    """`ordered` demands the order, `distinct` forgives repeats."""
    assert not grade(task("list", ["a", "b"], {"ordered": True}), '["b", "a"]').passed
    assert grade(task("list", ["a", "b"], {"ordered": True}), '["a", "b"]').passed
    assert grade(task("list", ["a", "b"], {"distinct": True}), '["b", "a", "a"]').passed


@pytest.mark.parametrize(
    ("chosen", "right"),
    [
        (["a", "b", "c"], True),
        (["a", "b", "d"], True),
        (["a", "b", "e"], False),
        (["b", "a", "c"], False),
        (["a", "b", "c", "d"], False),
        (["a", "c", "d"], False),
    ],
)
def test_any_of_the_tied_rows_will_do(chosen: list[str], right: bool) -> None:
    """The last place goes to either of two; the places before are fixed."""
    wanted = task("list", ["a", "b"], {"ordered": True}, tied=["c", "d"], choose=1)
    assert grade(wanted, json.dumps(chosen)).passed is right


@pytest.mark.parametrize(("given", "right"), [("3.14", True), ("3.14159", True), ("3.1", False), ("3.15", False)])
def test_places_say_how_far_a_number_may_be_rounded(given: str, right: bool) -> None:
    """Half of the last place that was asked for."""
    assert grade(task("number", 3.14159, {"places": 2}), given).passed is right


def test_large_integers_are_exact() -> None:
    """No tolerance for whole numbers, however large."""
    assert not grade(task("number", 10**15), str(10**15 + 1)).passed


def test_the_mark_can_be_demanded() -> None:
    """With answer = 'line' a bare value is no answer."""
    assert not grade(task("number", 3, {"answer": "line"}), "3").passed


@pytest.mark.parametrize(
    ("kind", "value"),
    [("number", "much"), ("date", "soon"), ("rows", [[1], [1, 2]]), ("list", 5), ("boolean", "perhaps")],
)
def test_broken_references_are_the_tasks_fault(kind: str, value: Any) -> None:
    """A value that isn't of its type."""
    with pytest.raises(BrokenTask):
        grade(task(kind, value), "5")


def test_numbers_sorted_as_text_give_no_verdict() -> None:
    """The reference's order is that of texts, so nobody can be judged by it."""
    with pytest.raises(Unsure):
        grade(task("rows", [["1"], ["10"], ["9"]], {"ordered": True}, sorted_by=0), "[[1], [9], [10]]")
    assert grade(task("rows", [["1"], ["9"], ["10"]], {"ordered": True}, sorted_by=0), "[[1], [9], [10]]").passed
