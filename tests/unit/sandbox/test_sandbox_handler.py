"""Decisions of the sandbox service, without any sandbox."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import build

from tiltyard.sandbox import handler
from tiltyard_proto.messages import BlobRef, Command, Environment, Execution, Rollout, RolloutLimits, Turn, Verdict
from tiltyard_proto.outcomes import Grade, Outcome, policy_for

COMMAND = Command(argv=("python3", "main.py"))
OLD = BlobRef(uri="sha256:old", size=1, sha256="old")
NEW = BlobRef(uri="sha256:new", size=1, sha256="new")


def rollout(interface: str = "python", turns: int = 3, done: tuple[Turn, ...] = ()) -> Rollout:
    task = build.task(turns=turns, environment=Environment(interface=interface))
    return build.rollout(task, turns=(*done, build.turn(command=COMMAND)))


def earlier(workspace: BlobRef | None) -> Turn:
    execution = Execution(outcome=Outcome.NONZERO_EXIT, exit_code=1)
    return build.turn(command=COMMAND, execution=execution, observation="[exit status 1]", workspace=workspace)


def test_python_ends_with_a_clean_exit() -> None:
    """For the interface 'python' a program that exits with 0 ends the rollout, which goes to be verified."""
    hop = handler.settle(rollout(), Execution(outcome=Outcome.FINISHED, exit_code=0, stdout=b"42\n"), NEW, 10.0)
    assert hop.stage == "verify"
    assert isinstance(hop.message, Rollout)
    assert hop.message.outcome is Outcome.FINISHED
    last = hop.message.turns[-1]
    assert (last.observation, last.workspace) == ("42", NEW)
    assert not handler.goes_on(rollout(), hop)


def test_shell_goes_on_after_a_clean_exit() -> None:
    """For the interface 'shell' a command that exits with 0 is one step of many."""
    start = rollout("shell")
    hop = handler.settle(start, Execution(outcome=Outcome.FINISHED, exit_code=0), NEW, 10.0)
    assert hop.stage == "generate"
    assert handler.goes_on(start, hop)
    assert isinstance(hop.message, Rollout)
    assert hop.message.turns[-1].observation == "(no output)"


@pytest.mark.parametrize("outcome", [o for o in Outcome if policy_for(o).grade is Grade.YES])
def test_what_the_policy_did_goes_back_to_it(outcome: Outcome) -> None:
    """Every ending that is the policy's doing is shown to it while turns are left, and graded after the last."""
    execution = Execution(outcome=outcome, exit_code=1, detail="why")
    if outcome is not Outcome.FINISHED:
        hop = handler.settle(rollout(turns=3), execution, NEW, 10.0)
        assert hop.stage == "generate"
    assert handler.settle(rollout(turns=1), execution, NEW, 10.0).stage == "verify"


@pytest.mark.parametrize("outcome", [Outcome.SANDBOX_LOST, Outcome.SANDBOX_START_FAILED])
def test_what_the_infrastructure_did_starts_a_new_attempt(outcome: Outcome) -> None:
    """A failure of the infrastructure is never shown or graded: a new attempt, at last a verdict without score."""
    start = rollout()
    hop = handler.settle(start, Execution(outcome=outcome, detail="gone"), None, 10.0)
    assert hop.stage == "generate"
    assert isinstance(hop.message, Rollout)
    assert (hop.message.attempt, hop.message.turns) == (1, ())
    assert not handler.goes_on(start, hop)
    last = msgspec.structs.replace(start, attempt=2)
    hop = handler.fail(last, outcome, "gone", 10.0)
    assert hop.stage == "verdict"
    assert isinstance(hop.message, Verdict)
    assert (hop.message.score, hop.message.outcome, hop.message.reasons) == (None, outcome, ("gone",))


def test_workspace_of_the_last_good_turn_is_carried() -> None:
    """A turn that leaves no workspace carries on the newest one before it."""
    start = rollout(done=(earlier(OLD), earlier(None)))
    assert handler.start_from(start) == OLD
    hop = handler.settle(start, Execution(outcome=Outcome.OUT_OF_MEMORY, detail="too much memory"), None, 10.0)
    assert isinstance(hop.message, Rollout)
    last = hop.message.turns[-1]
    assert last.workspace == OLD
    assert "too much memory" in last.observation
    assert "restarted" in last.observation
    assert handler.start_from(rollout()) is None


def test_a_rollout_without_a_command_is_refused() -> None:
    """A message that asks for nothing to be run is a bad message, named as such."""
    for bad in (build.rollout(), build.rollout(turns=(build.turn(),))):
        with pytest.raises(handler.BadMessage, match="no command"):
            handler.check(bad)


def test_observation_shows_status_streams_and_gaps() -> None:
    """The policy sees the exit status, both streams and where output is missing."""
    execution = Execution(
        outcome=Outcome.NONZERO_EXIT, exit_code=2, stdout=b"aabb", stdout_dropped=7, stderr=b"Error: no\n", detail="x"
    )
    assert handler.observation(execution, 500) == (
        "[exit status 2]\naa\n... 7 bytes left out ...\nbb\nstderr:\nError: no"
    )
    timed_out = Execution(outcome=Outcome.WALL_LIMIT, signal=15, stdout=b"begun", detail="stopped after 2 s")
    assert handler.observation(timed_out, 500) == "[stopped after 2 s]\nbegun"


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 200), st.sampled_from(list(Outcome)))
def test_observation_is_never_empty_nor_too_long(out: bytes, err: bytes, limit: int, outcome: Outcome) -> None:
    """Whatever came out, the observation has at least one character and at most the limit."""
    shown = handler.observation(Execution(outcome=outcome, stdout=out, stderr=err, exit_code=0), limit)
    assert shown
    assert len(shown) <= max(limit, len("(no output)"))


def test_observation_keeps_head_and_tail() -> None:
    """A long output keeps its beginning and its end."""
    shown = handler.observation(Execution(outcome=Outcome.FINISHED, exit_code=0, stdout=b"a" * 999 + b"z"), 100)
    assert shown.startswith("aaa")
    assert shown.endswith("az")
    assert "left out" in shown
    assert len(shown) == 100


def test_limits_come_from_the_task() -> None:
    """The observation is cut to the limit of the task."""
    task = build.task(environment=Environment(interface="shell"), limits=RolloutLimits(turns=2, observation_chars=50))
    start = build.rollout(task, turns=(build.turn(command=COMMAND),))
    hop = handler.settle(start, Execution(outcome=Outcome.FINISHED, exit_code=0, stdout=b"x" * 500), NEW, 10.0)
    assert isinstance(hop.message, Rollout)
    assert len(hop.message.turns[-1].observation) <= 50
