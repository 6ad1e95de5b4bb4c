"""Generators of code domains: solutions agree with reference implementations, faults are faults, splits are apart."""

from __future__ import annotations

import copy
import random
from itertools import islice
from typing import Any

import pytest

from tiltyard.domains import load
from tiltyard.domains.drafts import Request
from tiltyard.domains.generators import algorithms, debugging, repositories, shell_programs, sql_queries
from tiltyard.domains.generators.problems import Problem, filled
from tiltyard.domains.generators.repository_blueprints import BLUEPRINTS
from tiltyard.domains.generators.twists import twisted
from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.sql import rules

PROBLEMS = [problem for level in algorithms.LEVELS.values() for problem in level]
LEVELS = ("easy", "medium", "hard")


def drafts(generator: Any, count: int, **options: Any) -> list[Any]:
    request = Request(split="train", seed=3, held_out=frozenset(), options=options)
    return list(islice(generator(request), count))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_solution_agrees_with_the_reference_implementation(problem: Problem) -> None:
    """Two independent programs give the same results on every drawn call, and not all the same result."""
    for seed in range(5):
        rng = random.Random(seed)
        one = twisted(problem, rng)
        k, calls = algorithms.drawn(one, rng)
        scope: dict[str, Any] = {}
        exec(filled(one.python, k), scope)
        found = [scope["solve"](*copy.deepcopy(call)) for call in calls]
        assert found == [one.f(k, *call) for call in calls]
        assert len({repr(value) for value in found}) >= 3


@pytest.mark.parametrize("language", ["python", "javascript", "c"])
@pytest.mark.parametrize("level", LEVELS)
def test_prompts_and_references_have_the_same_name(language: str, level: str) -> None:
    """The function of the prompt is the one that the reference defines and that is called."""
    for draft in drafts(algorithms.generate, 12, language=language, level=level):
        name = draft.data["function"]
        assert name in draft.fields["head"]
        assert f"{name}(" in draft.reference
        assert "<" not in draft.fields["what"].replace("<=", "")


@pytest.mark.parametrize("level", LEVELS)
def test_faulty_functions_are_wrong_and_nearly_right(level: str) -> None:
    """The shown code fails on the shown call, passes on another, and the reference passes on all."""
    for draft in drafts(debugging.generate, 9, level=level):
        calls = draft.data["calls"]
        for code, wrong_ones in ((draft.fields["code"], True), (code_of(draft.reference), False)):
            scope: dict[str, Any] = {}
            exec(code, scope)
            results = []
            for call in calls:
                try:
                    results.append(repr(eval(call["call"], scope)) == call["expect"])
                except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
                    results.append(False)
            assert all(results) is not wrong_ones
        assert draft.fields["call"] in {call["call"] for call in calls}


@pytest.mark.parametrize("level", LEVELS)
def test_shell_programs_say_what_they_print(level: str) -> None:
    """The example in the prompt is none of the hidden runs' inputs, and outputs differ."""
    for draft in drafts(shell_programs.generate, 10, level=level):
        runs = draft.data["runs"]
        assert len({run["stdout"] for run in runs}) == len(runs)
        assert "<" not in draft.fields["what"]


@pytest.mark.parametrize("topic", sorted(sql_queries.TOPICS))
def test_queries_are_right_on_their_own_data(topic: str) -> None:
    """Every template runs, gives rows on some data set, and doesn't hang on the order of insertion."""
    seen = set()
    for draft in drafts(sql_queries.generate, 3 * len(sql_queries.TOPICS[topic]), topics=[topic]):
        seen.add(draft.template)
        asked = {**draft.data, "submission": code_of(draft.reference), "order": "auto", "columns": "position"}
        assert rules.check({**asked, "tolerance": 1e-6, "dialect": "duckdb"}) == {}, draft.template
    assert len(seen) == len(sql_queries.TOPICS[topic])


@pytest.mark.parametrize("blueprint", BLUEPRINTS, ids=lambda blueprint: blueprint.name)
def test_every_fault_is_in_its_file_and_named_tests_exist(blueprint: Any) -> None:
    """A fault replaces something that is there once, and breaks tests that there are."""
    for fault in blueprint.faults:
        assert blueprint.files[fault.path].count(fault.good) >= 1
        assert fault.good != fault.bad
        assert fault.breaks
        assert all(f"def {name}()" in blueprint.tests for name in fault.breaks)


def test_repositories_of_one_level_differ() -> None:
    """Tasks differ in blueprint, fault and numbers; 'hard' has two faults."""
    found = drafts(repositories.generate, 24, level="hard")
    assert len({repr(draft.files) for draft in found}) == 24
    assert {draft.labels["faults"] for draft in found} == {"2"}


@pytest.mark.parametrize(
    "name",
    [
        "code.c.functions.easy",
        "code.sql.join",
        "code.shell.programs.hard",
        "code.repository.bugfix.medium",
        "terminal.logs.medium",
    ],
)
def test_evaluation_is_apart_from_training(name: str) -> None:
    """What evaluation draws, by template or by source, training never draws; a seed gives the same tasks again."""
    domain = load(name)
    train, held = domain.tasks("train", 12), domain.tasks("eval", 6)
    definition = domain.definition
    assert not {task.template for task in train} & set(definition.held_out)
    assert not {task.labels.get("source") for task in train} & set(definition.held_out_sources)
    assert all(
        task.template in definition.held_out or task.labels.get("source") in definition.held_out_sources
        for task in held
    )
    assert train == domain.tasks("train", 12)
    assert train != domain.tasks("train", 12, seed=1)
