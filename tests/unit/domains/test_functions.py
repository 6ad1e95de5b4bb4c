"""The function templates: solutions agree with references, and calls tell wrong answers apart."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tiltyard.domains import load
from tiltyard.domains.generators.functions import TEMPLATES, draw
from tiltyard.domains.generators.templates import Template, draw_args, draw_consts

BY_NAME = {template.name: template for template in TEMPLATES}


def solution(reference: str) -> dict[str, Any]:
    """The module that a (trusted) reference defines."""
    scope: dict[str, Any] = {}
    exec("\n".join(reference.split("\n")[1:-1]), scope)
    return scope


def test_templates_are_many_and_held_out_ones_exist() -> None:
    """Names are unique, there are at least 55, and the 11 held-out ones are among them."""
    assert len(BY_NAME) == len(TEMPLATES) >= 55
    held = load("code.python.functions").definition.held_out
    assert len(set(held)) == 11
    assert set(held) <= set(BY_NAME)
    assert set(load("code.python.repair").definition.held_out) == set(held)


@pytest.mark.parametrize("name", BY_NAME)
def test_solution_and_reference_implementation_agree(name: str) -> None:
    """The solution text and the independent implementation give the same values of the same types."""
    template, rng = BY_NAME[name], random.Random(7)
    for _ in range(5):
        draft = draw(template, rng)
        scope = solution(draft.reference)
        for call in draft.data["calls"]:
            assert repr(eval(call["call"], scope)) == call["expect"], call
    for _ in range(40):
        k = draw_consts(template, rng)
        args = draw_args(template, k, rng, edge=rng.random() < 0.5)
        code = template.code.format(**dict(zip("ab", ("a_", "b_"), strict=True)), **k)
        assert repr(eval(code, dict(zip(("a_", "b_"), args, strict=False)))) == repr(template.f(k, *args)), (k, args)


def _constant(value: Any) -> Any:
    return lambda *args: value


def _trivial(template: Template, expects: list[str]) -> list[Any]:
    return [
        *map(_constant, map(eval, expects)),
        lambda *a: None,
        lambda *a: a[0],
        lambda *a: a[-1],
        lambda *a: [],
        lambda *a: "",
        lambda *a: 0,
    ]


@pytest.mark.parametrize("name", BY_NAME)
def test_trivial_answers_fail_a_call(name: str) -> None:
    """No constant and no argument handed back satisfies all calls of a task."""
    rng = random.Random(11)
    for _ in range(10):
        draft = draw(BY_NAME[name], rng)
        expects = [call["expect"] for call in draft.data["calls"]]
        assert len({call["call"] for call in draft.data["calls"]}) == 4
        for rival in _trivial(BY_NAME[name], expects):
            got = [repr(eval(call["call"], {draft.data["function"]: rival})) for call in draft.data["calls"]]
            assert got != expects


@pytest.mark.parametrize("name", [name for name in BY_NAME if BY_NAME[name].consts])
def test_other_constants_fail_a_call(name: str) -> None:
    """The template's own solution with other constants is told apart, nearly always."""
    template, rng, caught, tried = BY_NAME[name], random.Random(13), 0, 0
    while tried < 20:
        draft = draw(template, rng)
        scope = solution(draft.reference)
        other = solution(draw(template, rng).reference)
        rival = next(value for key, value in other.items() if key != "__builtins__")
        function = draft.data["function"]
        body = draft.reference.split("return ")[1]
        if body == next(iter(other)):
            continue
        tried += 1
        calls = [call["call"] for call in draft.data["calls"]]
        same = all(repr(eval(call, {function: rival})) == repr(eval(call, scope)) for call in calls)
        caught += not same
    assert caught >= 14  # the other draw has the same constants in some of the tries


def test_solutions_are_short() -> None:
    """Solutions are one line of at most 60 characters, so that they fit the tokens allowed."""
    rng = random.Random(0)
    for template in TEMPLATES:
        lines = draw(template, rng).reference.split("\n")
        assert len(lines) == 4
        assert all(len(line) <= 60 for line in lines)
