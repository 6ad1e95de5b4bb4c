"""Unit tests of the domains of instructions."""

from __future__ import annotations

from itertools import islice

import pytest

from tiltyard.domains.drafts import Draft, Request, Split
from tiltyard.domains.generators.instruction_rules import RULES
from tiltyard.domains.generators.instructions import generate


def draw(split: Split = "train", seed: int = 1, **options: object) -> list[Draft]:
    request = Request(split=split, seed=seed, held_out=frozenset({"e"}), options={"rules": 1, "level": 1, **options})
    return list(islice(generate(request), 5))


@pytest.mark.parametrize("rule", RULES)
def test_references_keep_their_rule(rule: str) -> None:
    """Every rule can be drawn, and what is yielded was checked against it."""
    assert all(draft.data["rules"][0]["id"] == rule for draft in draw(rule=rule))


def test_splits_and_seeds_differ() -> None:
    """The same request draws the same tasks, another seed others, and the splits share no template."""
    assert draw() == draw()
    assert draw() != draw(seed=2)
    assert {draft.template for draft in draw("eval")} == {"e"}
    assert "e" not in {draft.template for draft in draw()}


def test_late_rules_stand_far_from_the_question() -> None:
    """The rules are in the first message only, the question in the last, and the answer in none."""
    for draft in draw(rules=2, notes=5):
        assert "keep all of these rules" in draft.messages[0].content
        assert "Now the question" in draft.messages[-1].content
        assert len(draft.messages) == 11
        assert not any(draft.data["content"][0] in message.content for message in draft.messages)
