"""Unit tests of the verifier kind `long_context`."""

from __future__ import annotations

from typing import Any

import pytest
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Task, Verification


def task(options: dict[str, Any] | None = None, **data: Any) -> Task:
    return Task(
        id="t",
        domain="test.long_context",
        prompt=(ChatMessage(role="user", content="-"),),
        verification=Verification(kind="long_context", data=data, options=options or {}),
        environment=Environment(),
        limits=RolloutLimits(),
    )


@pytest.mark.parametrize(
    ("answers", "decoys", "text", "score"),
    [
        (["KX4917"], ["BD1000"], "It is kx4917.", 1.0),
        (["KX4917"], ["BD1000"], "KX4917 or BD1000", 0.5),
        (["KX4917"], ["BD1000"], "KX49170", 0.0),
        (["KX4917"], [], "KX4917 FG2222 HK3333 LM4444", 0.0),
        (["7413"], [], "7413, 8111, 9222", 0.333333),
        (["7413"], [], "8111? 9222? The answer is 7413", 1.0),
        (["Aldmoor || Old Aldmoor"], ["Carrow"], "old aldmoor", 1.0),
        (["red", "blue"], ["green"], "blue", 0.5),
        (["red", "blue"], ["green"], "blue green red", 0.666667),
    ],
)
def test_recall_times_precision(answers: list[str], decoys: list[str], text: str, score: float) -> None:
    """What is missing and what is wrong both cost, and a list of everything scores nothing."""
    found = grade(task(answers=answers, decoys=decoys), text)
    assert (found.score, found.passed) == (score, score == 1.0)


def test_order_counts_where_it_is_asked_for() -> None:
    """A wrong order halves the credit of an ordered task only."""
    assert grade(task({"ordered": True}, answers=["a1", "b2"]), "b2 a1").score == 0.5
    assert grade(task(answers=["a1", "b2"]), "b2 a1").score == 1.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"value": 12, "section": "4.2"}', 1.0),
        ("Value: 12\nSection: 4.2", 1.0),
        ("value: 12\nsection: 4.2\nsection: 5.1", 0.5),
        ('{"value": "12", "section": "4.20"}', 0.5),
        ('{"value": ["12"], "section": null}', 0.0),
        ("12 4.2", 0.0),
        ("[" * 9000 + "{}", 0.0),
    ],
)
def test_fields(text: str, score: float) -> None:
    """Each field has an even part; one with two values, or none, has nothing."""
    assert grade(task(fields={"value": "12", "section": "4.2"}), text).score == score


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"answers": ["..."]},
        {"answers": ["a", "A"]},
        {"answers": ["a"], "decoys": ["A"]},
        {"answers": ["a"], "fields": {"b": "c"}},
    ],
)
def test_references_that_cannot_be_used_break_the_task(data: dict[str, Any]) -> None:
    """Nothing is judged by a reference without a word, or one that contradicts itself."""
    with pytest.raises(BrokenTask):
        grade(task(**data), "a")
