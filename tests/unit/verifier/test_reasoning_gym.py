"""Kind reasoning_gym: what is decided without a scorer, and what the scorer's output is worth."""

from __future__ import annotations

from typing import Any

import pytest
from support.grading import KINDS, rollout_of, run_job

from tiltyard.domains.generators.reasoning import data_of, drawn
from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.reasoning_gym.shapes import EVALUATED, misshapen
from tiltyard_proto.messages import Environment, Execution, Graded, Job, Task, Verdict, Verification
from tiltyard_proto.outcomes import Outcome

KIND = KINDS["reasoning_gym"]


def task(dataset: str, seed: int = 3, **changes: Any) -> Task:
    data = {**data_of(dataset, 0, seed, *drawn(dataset, 0, seed)), **changes}
    verification = Verification(kind="reasoning_gym", data=data)
    environment = Environment(profile="reasoning")
    return Task(id="t", domain="reasoning.test", prompt=(), verification=verification, environment=environment)


def judged(one: Task, answer: str) -> Verdict:
    """The verdict; a scorer runs in a local subprocess."""
    planned = KIND.plan(one, rollout_of(one, f"<answer>{answer}</answer>"))
    return KIND.judge(one, run_job(planned, wall_s=60)) if isinstance(planned, Job) else planned


def test_its_own_answer_is_right_and_others_go_to_the_scorer() -> None:
    """A data set with one right answer needs no scorer; another one asks it, and only full marks count."""
    right = task("chain_sum").verification.data["answer"]
    assert judged(task("chain_sum"), right).passed
    assert not judged(task("chain_sum"), f"{int(right) + 1}").passed
    exact = task("gcd")
    assert not isinstance(KIND.plan(exact, rollout_of(exact, "<answer>12345</answer>")), Job)


def test_another_right_answer_is_found_by_the_scorer() -> None:
    """Where several answers are right, the scorer on the item drawn again says so."""
    one = task("simple_integration")
    answer = str(one.verification.data["answer"])
    assert judged(one, f"0 + {answer}").passed
    assert not judged(one, f"{answer} + x**2").passed


def test_another_question_in_the_sandbox_is_the_tasks_fault() -> None:
    """A version of reasoning-gym that draws another item gives no verdict."""
    one = task("simple_integration", digest="0" * 16)
    with pytest.raises(BrokenTask, match="another question"):
        judged(one, "x + C + 1")


def test_a_score_without_the_key_is_none() -> None:
    """Lines that a submission could print count for nothing."""
    one = task("simple_integration")
    planned = KIND.plan(one, rollout_of(one, "<answer>x + C</answer>"))
    assert isinstance(planned, Job)
    forged = Graded(
        rollout=planned.rollout, execution=Execution(outcome=Outcome.FINISHED, stdout=b"1.0\nkey 1.0\n"), files={}
    )
    assert KIND.judge(one, forged).score == 0.0


HOSTILE = (
    "__import__('os').system('touch MARK')",
    "exit()",
    "9**9**9**9",
    "().__class__",
    "x" * 10_001,
    "(lambda: 1)()",
    "open('x')",
)


@pytest.mark.parametrize("dataset", sorted(EVALUATED))
def test_what_a_scorer_would_execute_never_reaches_it(dataset: str) -> None:
    """Scorers that evaluate get no names, calls, attributes or towers of powers."""
    for text in HOSTILE:
        assert misshapen(dataset, "", text), text


def test_arithmetic_with_given_numbers_is_checked_exactly() -> None:
    """All numbers once and the exact target: no truncation, no other numbers, no target alone."""
    one = task("puzzle24", numbers=[1, 2, 3, 4], target=24, answer="1*2*3*4")
    for text, right in (
        ("4*3*2*1", True),
        ("(1+3)*(2+4)", True),
        ("6*4*1*1", False),
        ("24", False),
        ("1*2*3*4.0", False),
        ("1*2*3/4*16", False),
    ):
        assert judged(one, text).passed is right, text
