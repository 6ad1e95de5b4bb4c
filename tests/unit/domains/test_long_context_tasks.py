"""Unit tests of the domains of long contexts."""

from __future__ import annotations

from itertools import islice

import pytest
from support.grading import grade

from tiltyard.domains.drafts import Draft, Request, Split
from tiltyard.domains.generators.long_context import generate
from tiltyard_proto.messages import ChatMessage, Environment, RolloutLimits, Task, Verification

FINDS = ("one", "several", "chain", "section", "fragments")


def draw(find: str, split: Split = "train", seed: int = 1, tokens: int = 1000) -> list[Draft]:
    request = Request(split=split, seed=seed, held_out=frozenset({"c"}), options={"find": find, "tokens": tokens})
    return list(islice(generate(request), 5))


@pytest.mark.parametrize("find", FINDS)
def test_the_reference_passes_and_the_document_does_not(find: str) -> None:
    """The reference scores 1, the whole prompt 0."""
    for draft in draw(find):
        prompt = draft.fields["question"]
        task = Task(
            id="t",
            domain="test.long_context",
            prompt=(ChatMessage(role="user", content=prompt),),
            verification=Verification(kind="long_context", data=draft.data, options=draft.options),
            environment=Environment(),
            limits=RolloutLimits(),
        )
        assert grade(task, draft.reference).passed
        assert grade(task, prompt).score == 0.0


@pytest.mark.parametrize("find", FINDS)
def test_splits_and_seeds_differ(find: str) -> None:
    """The same request draws the same documents, another seed others; the splits share no wording."""
    assert draw(find) == draw(find)
    assert draw(find) != draw(find, seed=2)
    assert {draft.template for draft in draw(find, "eval")} == {"c"}
    assert "c" not in {draft.template for draft in draw(find)}


def test_documents_are_as_long_as_asked() -> None:
    """Twice the tokens, about twice the text."""
    short, long = (len(draw("one", tokens=tokens)[0].fields["question"]) for tokens in (2000, 4000))
    assert 1.7 < long / short < 2.3
