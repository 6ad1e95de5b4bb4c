"""Circuit breakers: when they open, what a trial does, and that no sequence of events wedges one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tiltyard.sandbox.breaker import MOST, Abuse, Breaker, Pass, Rules, State, tightened
from tiltyard_proto.messages import ExecLimits

RULES = Rules(threshold=3.0, ratio=0.5, window_s=60.0, open_s=10.0, open_cap_s=35.0, trial_s=20.0)


def opened() -> Breaker:
    breaker = Breaker(RULES)
    for at in range(3):
        breaker.record(at, 1.0)
    return breaker


def test_it_opens_after_enough_in_the_window() -> None:
    """Three bad endings within the window open it; spread over more than the window they don't."""
    breaker = Breaker(RULES)
    for at in (0, 40, 61, 101):
        breaker.record(at, 1.0)
        assert breaker.enter(at) is Pass.YES
    breaker.record(102, 1.0)
    assert (breaker.enter(102), breaker.state(111), breaker.wait_s(102)) == (Pass.NO, State.OPEN, 10.0)


def test_good_endings_keep_it_closed() -> None:
    """Below the ratio it stays closed, however many bad endings there are."""
    breaker = Breaker(RULES)
    for at in range(30):
        breaker.record(at, 1.0 if at % 3 == 0 else 0.0)
    assert breaker.enter(30) is Pass.YES


def test_one_trial_at_a_time_decides() -> None:
    """Half open it lets one through; a good end closes it, a bad one opens it for twice as long, up to the cap."""
    breaker = opened()
    assert [breaker.enter(12), breaker.enter(12)] == [Pass.TRIAL, Pass.NO]
    breaker.record(13, 1.0, trial=True)
    assert [breaker.enter(32), breaker.enter(33)] == [Pass.NO, Pass.TRIAL]
    breaker.record(34, 0.5, trial=True)
    assert [breaker.enter(68), breaker.enter(69)] == [Pass.NO, Pass.TRIAL]
    breaker.record(70, 0.0, trial=True)
    assert [breaker.enter(70), breaker.enter(70)] == [Pass.YES, Pass.YES]
    for _ in range(3):
        breaker.record(71, 1.0)
    assert breaker.wait_s(71) == 10.0  # forgiven: the first time again


def test_a_trial_that_never_answers() -> None:
    """A trial whose worker died, or that was not made, does not keep the next from being tried."""
    breaker = opened()
    assert breaker.enter(12) is Pass.TRIAL
    assert [breaker.enter(31), breaker.enter(32)] == [Pass.NO, Pass.TRIAL]
    breaker.give_up()
    assert breaker.enter(33) is Pass.TRIAL


def test_threshold_0_never_opens() -> None:
    """It can be switched off."""
    breaker = Breaker(Rules(threshold=0.0))
    for _ in range(100):
        breaker.record(1.0, 3.0)
    assert breaker.enter(1.0) is Pass.YES


class Machine(RuleBasedStateMachine):
    """Any sequence of events: trials are exclusive, and waiting always leads to one."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker, self.now, self.trial = Breaker(RULES), 0.0, -1.0

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(weight=st.sampled_from([0.0, 0.25, 1.0, 3.0]))
    def work(self, weight: float) -> None:
        answer = self.breaker.enter(self.now)
        if answer is Pass.TRIAL:
            assert self.trial < 0 or self.now - self.trial >= RULES.trial_s
            self.trial = self.now
        elif answer is Pass.YES:
            self.breaker.record(self.now, weight)

    @rule(weight=st.sampled_from([0.0, 1.0]))
    def answer(self, weight: float) -> None:
        if self.trial >= 0:
            self.trial = -1.0
            self.breaker.record(self.now, weight, trial=True)
            assert (self.breaker.state(self.now) is State.CLOSED) == (weight == 0)

    @rule(weight=st.sampled_from([0.0, 1.0]))
    def late_result(self, weight: float) -> None:
        """Of something that was let through before."""
        self.breaker.record(self.now, weight)

    @invariant()
    def waiting_helps(self) -> None:
        wait = self.breaker.wait_s(self.now)
        assert 0 <= wait <= RULES.open_cap_s + RULES.trial_s
        assert self.breaker.may(self.now + wait + 1e-6) is not Pass.NO


TestMachine = Machine.TestCase


def test_a_name_among_several_is_enough() -> None:
    """A group that is abusive is refused, another group of its task is not; a trial waits for all names."""
    rules = {"task": Rules(threshold=6.0, open_s=10.0), "group": Rules(threshold=3.0, open_s=10.0)}
    abuse = Abuse(rules)
    for _ in range(3):
        abuse.record(["task:a", "group:1"], 0.0, 1.0, trial=False)
    assert abuse.enter(["task:a", "group:1"], 1.0) is Pass.NO
    assert abuse.enter(["task:a", "group:2"], 1.0) is Pass.YES
    for _ in range(3):
        abuse.record(["task:a", "group:2"], 2.0, 1.0, trial=False)
    assert abuse.enter(["task:a", "group:3"], 3.0) is Pass.NO
    assert abuse.enter(["task:b", "group:4"], 3.0) is Pass.YES
    assert abuse.not_closed(3.0) == dict.fromkeys(("task:a", "group:1", "group:2"), State.OPEN)
    assert abuse.enter(["task:a", "group:2"], 12.0) is Pass.TRIAL
    assert abuse.enter(["task:a", "group:3"], 12.0) is Pass.NO
    abuse.record(["task:a", "group:2"], 13.0, 0.0, trial=True)
    assert abuse.enter(["task:a", "group:3"], 13.0) is Pass.YES


def test_memory_is_bounded() -> None:
    """However many tasks are abusive, so many are remembered; good ones take nothing."""
    abuse = Abuse({"task": Rules(threshold=1.0)})
    for number in range(MOST + 50):
        abuse.record([f"task:{number}"], 0.0, 1.0, trial=False)
        abuse.record([f"task:good{number}"], 0.0, 0.0, trial=False)
    assert len(abuse.not_closed(0.0)) == MOST
    assert abuse.enter(["task:0"], 0.0) is Pass.YES


@given(
    st.builds(
        ExecLimits,
        wall_s=st.floats(0.01, 1e4),
        cpu_s=st.floats(0.01, 1e4),
        memory_bytes=st.integers(1, 1 << 40),
        processes=st.integers(1, 10000),
    )
)
def test_a_trials_limits_are_never_wider(limits: ExecLimits) -> None:
    """What stays within a trial's limits stays within the usual ones."""
    found = tightened(limits)
    for name in ("wall_s", "cpu_s", "memory_bytes", "processes", "disk_bytes", "output_bytes"):
        assert 0 < getattr(found, name) <= getattr(limits, name)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_results_while_it_is_open_change_nothing(weight: float) -> None:
    """What was still running when it opened neither closes it nor opens it for longer."""
    breaker = opened()
    for at in range(3, 9):
        breaker.record(at, weight)
    assert (breaker.state(11.9), breaker.state(12.0)) == (State.OPEN, State.HALF_OPEN)
