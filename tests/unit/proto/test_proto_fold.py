"""The account of the group stream: steps, refills, and how far sampling may run ahead."""

from __future__ import annotations

import math
import random
from collections import deque

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import build

from tiltyard_proto.flow import UNANSWERED, StepFold, unanswered
from tiltyard_proto.messages import Group, Purpose
from tiltyard_proto.outcomes import Outcome

TRAINS = build.group([0.0, 1.0])
DROPPED = build.group([1.0, 1.0], trainable=False)
SILENT = msgspec.structs.replace(DROPPED, reason=UNANSWERED)


def fold_of(groups: list[Group], groups_per_step: int = 2, refill_cap: float = 2.0) -> StepFold:
    fold = StepFold(groups_per_step=groups_per_step, refill_cap=refill_cap)
    for group in groups:
        fold = fold.add(group)
    return fold


def test_a_step_closes_with_its_trainable_groups() -> None:
    """Two of two trainable groups make a step, and the next one starts empty."""
    assert fold_of([TRAINS]).step == 0
    full = fold_of([TRAINS, TRAINS])
    assert (full.step, full.trainable, full.closed, full.dropped) == (1, 0, 0, 0)


def test_groups_without_signal_are_refilled_up_to_the_cap() -> None:
    """A dropped group does not count towards the step; at cap times the groups it closes short."""
    assert fold_of([DROPPED, TRAINS, DROPPED]).step == 0
    short = fold_of([DROPPED, TRAINS, DROPPED, DROPPED])
    assert (short.step, short.trainable, short.closed, short.dropped) == (1, 0, 0, 3)


answers = st.lists(st.sampled_from([TRAINS, DROPPED, SILENT]), max_size=40)


@given(groups=answers, groups_per_step=st.integers(1, 4), cap=st.sampled_from([1.0, 1.5, 2.0]))
def test_groups_that_nobody_answered_count_towards_nothing(
    groups: list[Group], groups_per_step: int, cap: float
) -> None:
    """With unanswered groups anywhere among them, the steps are those of the answered groups alone."""
    all_, answered = (
        fold_of(each, groups_per_step, cap) for each in (groups, [group for group in groups if group is not SILENT])
    )
    counted = [(fold.step, fold.trainable, fold.closed) for fold in (all_, answered)]
    assert counted[0] == counted[1]
    assert all_.unanswered == sum(group is SILENT for group in groups)
    assert all_.dropped == answered.dropped + all_.unanswered
    tail = [group is SILENT for group in reversed(groups)]
    assert all_.silence == (tail.index(False) if False in tail else len(tail))


def test_who_answered() -> None:
    """Faults of the infrastructure, late work and silence are no answers; an ending of the policy, a broken task, a
    poisonous message and a refusal are."""
    said = {outcome: unanswered([build.verdict(score=None, outcome=outcome)]) for outcome in Outcome}
    assert {outcome for outcome, nobody in said.items() if nobody} == {
        Outcome.SANDBOX_START_FAILED, Outcome.SANDBOX_LOST, Outcome.NODE_LOST, Outcome.GATEWAY_FAILED,
        Outcome.ENGINE_FAILED, Outcome.BLOB_MISSING, Outcome.VERIFIER_FAILED, Outcome.VERIFIER_TIMEOUT,
        Outcome.NO_RESULT, Outcome.JUDGE_UNAVAILABLE, Outcome.CANCELLED, Outcome.STALE, Outcome.LATE,
    }  # fmt: skip
    assert unanswered([])
    late, ended = build.verdict(score=None, outcome=Outcome.LATE), build.verdict(score=1.0)
    assert not unanswered([late, ended])


@pytest.mark.parametrize("purpose", [Purpose.EVAL, Purpose.ADMIT])
def test_other_groups_do_not_count(purpose: Purpose) -> None:
    """Evaluations and admissions leave the account as it is."""
    start = fold_of([TRAINS])
    assert start.add(build.group([0.0, 1.0], purpose=purpose)) == start


def test_room_is_what_the_steps_ahead_take() -> None:
    """Steps up to version + 1 + staleness, less what is there and in flight; never below 0; never past the last."""
    fold = StepFold(groups_per_step=4, refill_cap=2.0)
    assert fold.room(version=0, staleness=0, in_flight=0, steps=10) == 4
    assert fold.room(version=0, staleness=2, in_flight=0, steps=10) == 12
    assert fold.room(version=0, staleness=2, in_flight=5, steps=10) == 7
    assert fold.room(version=0, staleness=2, in_flight=50, steps=10) == 0
    assert fold.room(version=0, staleness=2, in_flight=0, steps=1) == 4
    assert fold.room(version=0, staleness=2, in_flight=0, steps=0) == 0
    ahead = msgspec.structs.replace(fold, step=2, trainable=1, closed=1)
    assert ahead.room(version=0, staleness=1, in_flight=0, steps=10) == 0
    assert ahead.room(version=1, staleness=1, in_flight=0, steps=10) == 3


def test_room_before_the_refill_cap() -> None:
    """A step about to close short has room for the groups up to its cap only."""
    fold = StepFold(groups_per_step=4, refill_cap=2.0, trainable=0, closed=7)
    assert fold.room(version=0, staleness=0, in_flight=0, steps=10) == 1
    assert fold.room(version=0, staleness=0, in_flight=1, steps=10) == 0


class Simulation:
    """A sampler and a trainer over random groups; versions follow the steps after a random delay."""

    def __init__(
        self, seed: int, *, groups_per_step: int, cap: float, staleness: int, steps: int, share: float
    ) -> None:
        self.random = random.Random(seed)
        self.fold = StepFold(groups_per_step=groups_per_step, refill_cap=cap)
        self.staleness, self.steps, self.share = staleness, steps, share
        self.version = 0
        self.in_flight: deque[int] = deque()
        """Version at the opening of each open group, oldest first."""
        self.ages: list[int] = []
        self.most = 0

    def run(self, *, in_order: bool) -> None:
        while self.version < self.steps:
            room = self.fold.room(
                version=self.version, staleness=self.staleness, in_flight=len(self.in_flight), steps=self.steps
            )
            self.in_flight.extend([self.version] * room)
            self.most = max(self.most, len(self.in_flight))
            can_train = self.version < self.fold.step
            assert self.in_flight or can_train, f"stuck at {self.fold}"
            if can_train and (not self.in_flight or self.random.random() < 0.3):
                self.version += 1
            else:
                self._close(in_order)

    def _close(self, in_order: bool) -> None:
        index = 0 if in_order else self.random.randrange(len(self.in_flight))
        opened = self.in_flight[index]
        del self.in_flight[index]
        self.ages.append(self.fold.step - opened)
        before = self.fold
        self.fold = before.add(TRAINS if self.random.random() < self.share else DROPPED)
        assert self.fold.step - before.step in (0, 1)
        assert before.trainable < self.fold.groups_per_step
        assert before.closed < math.ceil(self.fold.refill_cap * self.fold.groups_per_step)


shapes = st.fixed_dictionaries(
    {
        "groups_per_step": st.integers(1, 5),
        "cap": st.sampled_from([1.0, 1.3, 2.0, 3.0]),
        "staleness": st.integers(0, 3),
        "steps": st.integers(1, 8),
        "share": st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    }
)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), shape=shapes)
def test_no_group_is_older_than_the_bound(seed: int, shape: dict[str, float]) -> None:
    """Groups that close in the order of their opening are trained at most `staleness` versions after it, the run
    comes to its last step, and nothing is left over."""
    run = Simulation(seed, **shape)  # type: ignore[arg-type]
    run.run(in_order=True)
    assert max(run.ages) <= run.staleness
    assert run.most <= (run.staleness + 1) * run.fold.groups_per_step
    assert run.fold.step == run.steps
    assert not run.in_flight


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), shape=shapes)
def test_in_flight_is_bounded_in_any_order(seed: int, shape: dict[str, float]) -> None:
    """Whatever the order in which groups close, no more are open than the steps within the bound take, and the run
    comes to its last step with nothing left over."""
    run = Simulation(seed, **shape)  # type: ignore[arg-type]
    run.run(in_order=False)
    assert run.most <= (run.staleness + 1) * run.fold.groups_per_step
    assert run.fold.step == run.steps
    assert not run.in_flight
