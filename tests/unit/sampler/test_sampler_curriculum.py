"""Which task is tried next."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support import build

from tiltyard.sampler.curriculum import Curriculum, Posterior, uniform

TEMPLATES = ("hard", "mid", "easy")
TASKS = [build.task(text=f"{t}{i}", template=t) for t in TEMPLATES for i in range(4)]


def curriculum(seed: int = 0) -> Curriculum:
    """One that has seen 20 rollouts of each template: none, half, all passed."""
    made = Curriculum(seed, forget=0.8, explore=0.05)
    for template, passed in zip(TEMPLATES, (0, 10, 20), strict=True):
        made.posteriors[(TASKS[0].domain, template)] = Posterior(passed, 20 - passed)
    return made


def test_templates_of_middling_difficulty_are_preferred() -> None:
    """Of 300 choices most go to the template with pass rate 1/2, and none is given up."""
    made = curriculum()
    chosen = Counter(made.choose(TASKS, index).template for index in range(300))
    assert chosen["mid"] > 1.5 * max(chosen["hard"], chosen["easy"])
    assert min(chosen.values()) > 10


def test_choices_depend_on_seed_and_index_only() -> None:
    """The same seed and history choose the same, in whatever order the tasks lie; another seed chooses otherwise."""
    one, two, other = curriculum(), curriculum(), curriculum(1)
    first = [one.choose(TASKS, i).id for i in range(30)]
    assert first == [two.choose(TASKS[::-1], i).id for i in range(30)]
    assert first != [other.choose(TASKS, i).id for i in range(30)]


def test_the_least_used_task_of_a_template_is_next() -> None:
    """No task of a template is used twice before all were used once."""
    made = curriculum()
    mid = [task for task in TASKS if task.template == "mid"]
    for used in (1, 2, 3):
        for index in range(4):
            made.choose(mid, used * 10 + index)
        assert {made.uses[task.id] for task in mid} == {used}


def test_choosing_an_index_again_counts_once() -> None:
    """A choice that is repeated, because opening the group failed, is one use."""
    made = curriculum()
    for _ in range(3):
        made.choose(TASKS, 7)
    assert made.uses.total() == 1


def test_learning_moves_and_forgets() -> None:
    """A closed group moves its own template's posterior; ungraded members say nothing; older results fade."""
    made = Curriculum(0, forget=0.5, explore=0.05)
    group = build.group([1.0, 0.0, 1.0])
    key = (group.domain, group.template)
    made.learn(group)
    assert made.posteriors == {key: Posterior(2, 1)}
    made.learn(group)
    assert made.posteriors == {key: Posterior(3.0, 1.5)}


@given(passed=st.integers(0, 50), failed=st.integers(0, 50))
def test_spread_is_the_expected_variance_of_a_pass(passed: int, failed: int) -> None:
    """E[p(1-p)] under Beta(passed + 1, failed + 1) = mean (1 - mean) - variance, symmetric and at most 1/4."""
    a, b = passed + 1, failed + 1
    mean, variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    spread = Posterior(passed, failed).spread
    assert abs(spread - (mean * (1 - mean) - variance)) < 1e-12
    assert spread == Posterior(failed, passed).spread <= 0.25


def test_uniform_is_uniform_and_repeatable() -> None:
    """A thousand draws fill ten bins evenly, and the same arguments give the same number."""
    draws = [uniform(0, "x", i) for i in range(1000)]
    bins = Counter(int(10 * draw) for draw in draws)
    assert set(bins) == set(range(10))
    assert all(60 < count < 140 for count in bins.values())
    assert draws == [uniform(0, "x", i) for i in range(1000)]
    assert uniform(1, "x", 0) != draws[0]
