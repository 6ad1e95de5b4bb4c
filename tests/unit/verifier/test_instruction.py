"""Unit tests of the verifier kind `instruction`."""

from __future__ import annotations

from typing import Any

import pytest
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.instruction.checks import Count
from tiltyard.verifier.kinds.instruction.kind import RULES
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Task, Verification


def task(*rules: dict[str, Any], prompt: str = "1 2 3 4 5", content: tuple[str, ...] = (), share: float = 0.0) -> Task:
    return Task(
        id="t",
        domain="test.instruction",
        prompt=(ChatMessage(role="user", content=prompt),),
        verification=Verification(
            kind="instruction",
            data={"rules": list(rules), "content": list(content)},
            options={"content_share": share},
        ),
        environment=Environment(),
        limits=RolloutLimits(),
    )


KEPT: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "words", "exactly": 3}, "don't over-think this", "one two"),
    ({"id": "distinct_words", "exactly": 2}, "So so good", "so good now"),
    ({"id": "sentences", "exactly": 2}, "Dr. Hill paid 3.50. He left.", "Dr. Hill left."),
    ({"id": "paragraphs", "exactly": 2}, "a\n \nb\nc", "a\nb"),
    ({"id": "lines", "exactly": 2}, "a\n\nb", "a"),
    ({"id": "characters", "exactly": 2}, " ab ", "abc"),
    ({"id": "bullets", "exactly": 2}, "- a\n* b\n---", "- a"),
    ({"id": "numbered", "exactly": 2}, "1. a\n2) b", "1.5 a\n2.5 b"),
    ({"id": "headings", "exactly": 1}, "# a\nb", "#a"),
    ({"id": "bold", "exactly": 1}, "**a b** *c*", "*a*"),
    ({"id": "placeholders", "exactly": 1}, "to [name]", "to []"),
    ({"id": "capital_words", "exactly": 1}, "I am SURE", "I am sure"),
    ({"id": "commas", "at_most": 0}, "a; b", "a, b"),
    ({"id": "exclamations", "exactly": 1}, "a!", "a"),
    ({"id": "questions", "exactly": 1}, "a?", "a"),
    ({"id": "semicolons", "exactly": 1}, "a; b", "a"),
    ({"id": "brackets", "exactly": 1}, "a (b)", "a ()"),
    ({"id": "numbers", "exactly": 2}, "3.5 and 4", "3.5"),
    ({"id": "letter", "letter": "#", "at_least": 4}, "#### a", "### a"),
    ({"id": "keyword", "word": "art", "exactly": 1}, "I start with smart art.", "smart"),
    ({"id": "starts_with", "phrase": "So"}, "So it is", "It is so"),
    ({"id": "ends_with", "phrase": "so."}, "It is so. \n", "It is so. Yes."),
    ({"id": "lowercase"}, "straße 3", "Straße"),
    ({"id": "uppercase"}, "YES 3", "YEs"),
    ({"id": "quoted"}, '"yes"', '"yes'),
    ({"id": "title"}, "<<A title>>\nb", "<< >>"),
    ({"id": "postscript"}, "a\nP.S. b", "P.S. b\na"),
    ({"id": "json", "keys": ["a"]}, '```json\n{"a": 1}\n```', '{"a": 1, "b": 2}'),
    (
        {"id": "language", "language": "French"},
        "La maison est dans la rue et le chat est sur le toit.",
        "The cat is on it.",
    ),
    ({"id": "copy_words", "source": "a b c d e", "first": 2, "last": 4}, "b c d", "a b c"),
    ({"id": "sections", "mark": "***", "count": 2}, "a\n***\nb", "a\n***\n"),
    ({"id": "sentence_length", "at_most": 2}, "Go on. Stop.", "Go on now."),
    ({"id": "word_length", "at_most": 3}, "the cat", "cats"),
    ({"id": "lines_start", "phrase": "> "}, "> a\n\n> b", "> a\nb"),
    ({"id": "sorted_lines", "at_least": 2}, "A\nb", "b\na"),
    ({"id": "acrostic", "word": "ab"}, "An\nber", "An\nin"),
    ({"id": "nth_word", "n": 2, "word": "rain"}, "The rain.", "Rain the"),
    ({"id": "same_ends"}, "Rain is rain.", "Rain"),
    ({"id": "no_repeats"}, "all once", "Once once"),
    ({"id": "last_line", "words": 2}, "a\nb c", "a b"),
]


@pytest.mark.parametrize(("rule", "good", "bad"), KEPT, ids=[rule["id"] for rule, _, _ in KEPT])
def test_rule(rule: dict[str, Any], good: str, bad: str) -> None:
    """Every rule is kept by one text and broken by another."""
    kept, broken = grade(task(rule), good), grade(task(rule), bad)
    assert (kept.score, kept.passed) == (1.0, True)
    assert (broken.score, broken.passed) == (0.0, False)


def test_every_rule_is_tried() -> None:
    """No rule is without a test, and each says its numbers to the policy."""
    assert {rule["id"] for rule, _, _ in KEPT} == set(RULES)
    assert len(RULES) == 40


def test_content_and_rules_share_the_credit() -> None:
    """The content pays its share, kept rules the rest, and rules without the content nothing."""
    both = task({"id": "commas", "at_most": 0}, {"id": "words", "exactly": 2}, content=("204",), share=0.5)
    assert grade(both, "It's 204").score == 1.0
    assert grade(both, "It is 204").score == 0.75
    assert grade(both, "Well, it is 204").score == 0.5
    assert grade(both, "It's 2045").score == 0.0
    three = task(*({"id": "commas", "at_most": 0},) * 3, share=0.2)
    assert grade(three, "exactly one, whatever the rounding".replace(",", "")).score == 1.0


@pytest.mark.parametrize(
    ("rules", "prompt"),
    [
        ([{"id": "rhymes"}], ""),
        ([{"id": ["words"]}], ""),
        ([{"id": "words"}], ""),
        ([{"id": "words", "minimum": 3}], "3"),
        ([{"id": "words", "at_least": 336}], "at least 400 words"),
        ([{"id": "words", "at_least": 4}, {"id": "words", "at_most": 3}], "4 3"),
        ([{"id": "copy_words", "source": "a b", "first": 2, "last": 3}], "2 3"),
    ],
)
def test_tasks_that_cannot_be_judged_are_broken(rules: list[dict[str, Any]], prompt: str) -> None:
    """Unknown rules and keys, contradictions and numbers that were never said give no verdict."""
    with pytest.raises(BrokenTask):
        grade(task(*rules, prompt=prompt), "anything")


def test_bounds_of_different_words_do_not_contradict() -> None:
    """Two keywords may be bounded differently."""
    two = task({"id": "keyword", "word": "a", "at_most": 0}, {"id": "keyword", "word": "b", "exactly": 1})
    assert grade(two, "b").passed


def test_hostile_answers_are_read() -> None:
    """Nesting that exhausts a parser and long runs of marks are wrong answers."""
    assert grade(task({"id": "json"}), "[" * 15_000).score == 0.0
    for rule, _, _ in KEPT:
        for text in (
            "(" * 60_000,
            "[" * 60_000,
            "<" * 60_000,
            "**" * 30_000,
            "\n" * 60_000,
            "1." * 30_000,
            "." * 60_000 + "a",
            "<<" + "a" * 60_000,
        ):
            assert grade(task(rule), text).outcome is not None
    assert issubclass(RULES["words"], Count)
