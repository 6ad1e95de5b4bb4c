"""Kind math: what is the same answer, what isn't, and what can't be judged."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.grading import KINDS, rollout_of

from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask, Unsure, canonical
from tiltyard.verifier.kinds.math import rules
from tiltyard.verifier.kinds.math.data import Options
from tiltyard_proto.messages import Task, Verdict, Verification

KIND = KINDS["math"]


def task(answer: str, **options: Any) -> Task:
    verification = Verification(kind="math", data={"answer": answer}, options=options)
    return Task(id="t", domain="math.test", prompt=(), verification=verification)


def judged(answer: str, text: str, **options: Any) -> Verdict:
    found = KIND.plan(task(answer, **options), rollout_of(task(answer, **options), text))
    assert isinstance(found, Verdict)
    return found


def said(answer: str, text: str, **options: Any) -> str:
    """What a check says, made in this process."""
    request = {"answer": answer, "options": msgspec.to_builtins(Options(**options)), "found": [text]}
    return str(rules.check(request)["verdict"])


SAME = [
    (r"\frac{\sqrt{3}}{2}", r"\sqrt{3/4}", {}),
    ("x^2+2x+1", "(x+1)^2", {}),
    ("y=2x+1", "2x-y+1=0", {}),
    ("xy=1", r"\frac{1}{2}=\frac{xy}{2}", {}),
    (r"\{1,2\}", r"x\in\{2,1\}", {}),
    ("(1,2)", "1<x<2", {}),
    ("(1,2)", "x=1, y=2", {}),
    ("x<5", "5>x", {}),
    (r"(-\infty,\infty)", r"\mathbb{R}", {}),
    ("3+4i", "4i+3", {}),
    (r"\sin x\cos x", r"\frac{\sin 2x}{2}", {}),
    (r"100\text{ cm}", r"1\text{ metre}", {}),
    (r"9.8\text{ m/s}^2", "9.8 m s^{-2}", {}),
    (r"2\text{ hours}", "120 minutes", {}),
    ("5", "5.04", {"tolerance": 0.01}),
    ("29", "29 dollars", {"unit": "dollar"}),
    (r"\pm 2", "-2, 2", {}),
    ("2.5", "2½", {}),
    ("5 apples", "5", {}),
    ("12:30", "12:30", {}),
]
DIFFERENT = [
    ("x", r"\sqrt{x^2}", {}),
    ("y=2x+1", "y=2x+2", {}),
    (r"\{1,2\}", "(1,2)", {}),
    ("(1,2)", "(1,2]", {}),
    ("x<5", r"x\le 5", {}),
    ("3+4i", "3-4i", {}),
    (r"\frac{x^2}{2}+C", r"\frac{x^2}{2}", {}),
    ("5", "5.06", {"tolerance": 0.01}),
    ("29", "29 cents", {"unit": "dollar"}),
    (r"20^\circ C", "20 K", {}),
    ("0", "0.0000000001", {}),
    (r"\frac{2}{3}", r"\frac{4}{6}", {"form": "lowest"}),
    (r"5\%", "0.05", {"form": "percent"}),
    (r"6\sqrt{2}", r"\sqrt{72}", {"form": "simplified"}),
    ("x^2-1", "(x-1)(x+1)", {"form": "expanded"}),
    ("(x-1)(x+1)", "x^2-1", {"form": "factored"}),
    ("2", "1+1", {}),
    ("0.5", r"\frac{1}{2}", {"type": "decimal"}),
    ("x", "x/0", {}),
]


@pytest.mark.parametrize(("answer", "text", "options"), SAME)
def test_the_same_answer_written_otherwise_is_right(answer: str, text: str, options: dict[str, Any]) -> None:
    """Notation, order, units and arrangement that don't change the answer don't change the verdict."""
    assert said(answer, text, **options) == "accept"


@pytest.mark.parametrize(("answer", "text", "options"), DIFFERENT)
def test_another_answer_is_wrong_however_near_it_looks(answer: str, text: str, options: dict[str, Any]) -> None:
    """A different value, kind, unit or demanded form is no credit."""
    assert said(answer, text, **options) == "reject"


@pytest.mark.parametrize(
    "answer", ["see figure", "?", r"\frac{1}{", "[", "None", r"\frac{1}{0}", "9^{9^{9^9}}", "unknown", " "]
)
def test_a_reference_that_cannot_be_read_is_never_paid(answer: str) -> None:
    """The task is broken, whatever the answer is, even when there is none."""
    for text in (r"\boxed{7}", "", rf"\boxed{{{answer}}}"):
        with pytest.raises(BrokenTask):
            judged(answer, text)


BOMBS = [
    "9^{9^{9^{9}}}",
    "(x+1)^{10^{10^{10}}}",
    "(" * 900,
    "-" * 1900 + "x",
    "x^" * 600 + "x",
    r"\sqrt{" * 300 + "x" + "}" * 300,
    "9" * 1999,
    "100000!" + "!" * 100,
    "x" + "*x" * 700,
    r"\sin" * 400 + "x",
]


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_turned_down_in_no_time(bomb: str) -> None:
    """What would take long or grow is refused before it is computed."""
    before = limits.spent()
    assert not judged("x+1", rf"\boxed{{{bomb}}}").passed
    assert not judged("5", rf"\boxed{{{bomb}}}").passed
    assert limits.spent() - before < 2.0


def test_checkers_that_disagree_give_no_verdict() -> None:
    """Where values say one thing and math-verify's own reading another, a person must look."""
    with pytest.raises(Unsure):
        judged("f+1", r"\boxed{f(1)+1}")


def test_only_a_box_counts_where_a_box_is_asked_for() -> None:
    """An answer in prose gets nothing with `boxed`, and credit without."""
    assert judged("7", "It is 7.").passed
    assert not judged("7", "It is 7.", boxed=True).passed
    assert judged("7", r"It is \boxed{7}.", boxed=True).passed


@given(st.fractions(max_denominator=500), st.integers(1, 9))
@settings(max_examples=30)
def test_a_fraction_has_one_value_however_it_is_extended(value: Fraction, factor: int) -> None:
    """p/q and kp/kq agree, and p/q and (p+1)/q don't."""
    right = f"{value.numerator}/{value.denominator}"
    assert judged(right, rf"\boxed{{\frac{{{value.numerator * factor}}}{{{value.denominator * factor}}}}}").passed
    assert not judged(right, rf"\boxed{{{value.numerator + 1}/{value.denominator}}}").passed


@given(st.text(max_size=60))
@settings(max_examples=40)
def test_any_text_gets_the_same_verdict_twice(text: str) -> None:
    """A check never raises on an answer, and says the same again."""
    assert said("x+1", text) == said("x+1", text)
    assert canonical(judged("5", text)) == canonical(judged("5", text))
