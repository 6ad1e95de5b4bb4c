"""Mathematical problems: their references pass, echoes don't, splits are apart."""

from __future__ import annotations

import re

import msgspec
import pytest

from tiltyard.domains.registry import load_all
from tiltyard.verifier.kinds.math import rules
from tiltyard.verifier.kinds.math.data import Options
from tiltyard_proto.messages import Task

NAMES = sorted(name for name in load_all() if name.startswith(("math.word.", "math.symbolic.")))


def said(task: Task, answer: str) -> str:
    options = msgspec.convert(task.verification.options, Options)
    request = {"answer": task.verification.data["answer"], "options": msgspec.to_builtins(options), "found": [answer]}
    return str(rules.check(request)["verdict"])


@pytest.mark.parametrize("name", NAMES)
def test_references_pass_and_the_questions_own_formulas_do_not(name: str) -> None:
    """Every reference is right; what stands between dollar signs in the question is no answer."""
    domain = load_all()[name]
    for task in domain.tasks("train", 12) + domain.tasks("eval", 4):
        if task.verification.options.get("type") == "choice":
            continue
        assert said(task, task.verification.data["answer"]) == "accept"
        question = task.prompt[-1].content.partition("\n\nThink")[0]
        for formula in re.findall(r"\$([^$]+)\$", question):
            assert said(task, formula) != "accept", (question, formula)


@pytest.mark.parametrize("name", NAMES)
def test_training_and_evaluation_use_different_templates(name: str) -> None:
    """The last template is evaluation's alone; the same seed gives the same tasks, another seed others."""
    domain = load_all()[name]
    train, held = domain.tasks("train", 20), domain.tasks("eval", 10)
    assert {task.template for task in train} == {"a", "b", "c"}
    assert {task.template for task in held} == {"d"}
    assert domain.tasks("train", 20) == train
    assert domain.tasks("train", 20, seed=1) != train
    assert len({task.verification.data["answer"] for task in train}) > 3
