"""Kind last_number: what counts as the last number, and what doesn't."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grading import KINDS, grade, rollout_of

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.last_number.kind import last_number
from tiltyard_proto.messages import Execution, Graded, Task, Verification
from tiltyard_proto.outcomes import Outcome


def task(answer: str, options: dict[str, float] | None = None) -> Task:
    verification = Verification(kind="last_number", data={"answer": answer}, options=options or {})
    return Task(id="t", domain="math.test", prompt=(), verification=verification)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("1000", "1,000"),
        ("1000", "The sum of 400 and 600 is 1,000."),
        ("-5", "\u22125"),
        ("-5", "x = -5"),
        ("-2", "10-12 = -2"),
        ("3", "7 - 4 = 3"),
        ("3", "5-3"),
        ("29", "...the total is $29.00."),
        ("1500", "1.5e3"),
        ("1.5e3", "1500"),
        ("0.5", ".5"),
        ("3/4", "0.75"),
        ("0.5", "50%"),
        ("4", "**4**"),
        ("42", "<think>41?</think> \\boxed{42}"),
        ("3", "\\boxed{2}. Wait, I mis-added. Final: \\boxed{3}"),
        ("0", "0"),
    ],
)
def test_right_numbers_pass(answer: str, text: str) -> None:
    """The same number passes in every usual way of writing it."""
    verdict = grade(task(answer), text)
    assert (verdict.score, verdict.passed) == (1.0, True)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("5", ""),
        ("5", "five"),
        ("0", "null"),
        ("0", "NaN"),
        ("5", "-5"),
        ("5", "5 - 4"),
        ("4", "3/4"),
        ("50", "50%"),
        ("4", "$4\\sqrt(2)$"),
        ("2", "4^2"),
        ("4", "4^2"),
        ("9", "$9^{9^{9^{9}}}$"),
        ("5", "5!"),
        ("1", "1e999999999"),
        ("1000", "1.000"),
        ("56088", "\\boxed{123\\times456}"),
        ("3", "<think>so 3</think> The final answer is 4"),
        ("3", "<think>maybe 3, let me check"),
        ("9", "9" * 100_000),
        ("1", "1/0"),
        ("2", "1.2.2"),
        ("7", "no7"),
        ("3", "\u0663"),
    ],
)
def test_wrong_numbers_fail(answer: str, text: str) -> None:
    """Another number, a formula or no number fails with a reason, never with an exception."""
    verdict = grade(task(answer), text)
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert verdict.reasons


def test_tolerance_is_relative() -> None:
    """With a tolerance near numbers pass, others still fail."""
    near = task("200", {"tolerance": 0.01})
    assert grade(near, "201.9").passed
    assert not grade(near, "203").passed
    assert not grade(task("0.000001", {"tolerance": 0.01}), "0").passed


def test_a_reference_without_a_number_breaks_the_task() -> None:
    """A reference that can't be read is the task's fault."""
    with pytest.raises(BrokenTask, match="see figure"):
        grade(task("see figure"), "7")


def test_judge_gives_the_same_verdict() -> None:
    """A result that nobody asked for changes nothing."""
    rollout = rollout_of(task("4"), "4")
    graded = Graded(rollout=rollout, execution=Execution(outcome=Outcome.FINISHED))
    assert KINDS["last_number"].judge(task("4"), graded).passed


@given(st.text(alphabet=st.sampled_from("0123456789-+.,eE/%^!()[]{} \u2212x<>think"), max_size=200))
def test_any_text_gives_a_verdict(text: str) -> None:
    """Whatever the text, the result is a number or none."""
    last_number(text)
    assert grade(task("5"), text).score in (0.0, 1.0)


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "it is {}.", "= {:,} ", "({})", "{}.00"]))
def test_integers_round_trip(number: int, pattern: str) -> None:
    """An integer is read back however it's printed."""
    assert last_number(pattern.format(number)) == number
