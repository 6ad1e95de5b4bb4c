"""Where the result of a message can lie: compared with what the flow really publishes."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from support import build

from tiltyard_proto import flow, topology
from tiltyard_proto.followups import possible
from tiltyard_proto.messages import Command, Graded, GroupRef, Job, Purpose, Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import EXECUTE, GENERATE, TASK, VERDICT, VERIFY

NOW = 10.0
COMMAND = Command(argv=("true",))


def subjects(stage: topology.Stage[object], message: object) -> set[str]:
    return {subject for _, subject in possible(stage, message)}


def rollouts(purpose: Purpose, attempt: int) -> Rollout:
    of = build.rollout(build.task(turns=3))
    group = GroupRef(id=of.group.id, size=2, deadline=2e9, purpose=purpose)
    return msgspec.structs.replace(of, attempt=attempt, group=group)


@pytest.mark.parametrize(("purpose", "attempt"), list(itertools.product(Purpose, (0, 1))))
@pytest.mark.parametrize("outcome", [None, *Outcome])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_every_hop_of_a_turn_is_possible(purpose: Purpose, attempt: int, turns: int, outcome: Outcome | None) -> None:
    """Whatever a gateway or a sandbox can make of a rollout lies at one of the possible places."""
    of = rollouts(purpose, attempt)
    seen = build.turn(command=COMMAND, execution=build.execution(), observation="x")
    of = msgspec.structs.replace(of, turns=(seen,) * turns)
    results = [flow.finish(of, outcome)] if outcome else []
    for turn in (build.turn(), build.turn(command=COMMAND), build.turn(observation="x")):
        results.append(flow.add_turn(of, turn))
    for result in results:
        hop = flow.next_hop(result, NOW)
        assert topology.BY_NAME[hop.stage].subject(hop.message) in subjects(GENERATE, of), hop
    if turns:
        pending = flow.replace_last(of, build.turn(command=COMMAND))
        done = flow.replace_last(of, seen)
        for result in [done] + ([flow.finish(done, outcome)] if outcome else []):
            hop = flow.next_hop(result, NOW)
            assert topology.BY_NAME[hop.stage].subject(hop.message) in subjects(EXECUTE, pending), hop


def test_grading_results_are_possible() -> None:
    """Of a rollout to be verified, its grading job and the job's result, every continuation is known."""
    of = flow.finish(flow.add_turn(rollouts(Purpose.EVAL, 1), build.turn()), Outcome.FINISHED)
    job = Job(rollout=of, command=COMMAND, profile="python")
    graded = Graded(rollout=of, execution=build.execution())
    verdict = VERDICT.subject(build.verdict(of))
    again = GENERATE.subject(flow.new_attempt(of))
    assert subjects(VERIFY, of) == {EXECUTE.subject(job), verdict, again}
    assert subjects(EXECUTE, job) == {VERIFY.subject(graded), verdict, again}
    assert subjects(VERIFY, graded) == {verdict, again}


def test_a_message_is_no_result_of_itself() -> None:
    """No message's own subject is among the places of its results, or it would look done as soon as it is sent."""
    of = flow.add_turn(rollouts(Purpose.TRAIN, 0), build.turn(command=COMMAND, observation="x"))
    ended = flow.finish(of, Outcome.FINISHED)
    job, graded = Job(rollout=ended, command=COMMAND, profile="p"), Graded(rollout=ended, execution=build.execution())
    for stage, message in ((GENERATE, of), (EXECUTE, of), (VERIFY, ended), (EXECUTE, job), (VERIFY, graded)):
        assert stage.subject(message) not in subjects(stage, message)


def test_other_stages_say_nothing() -> None:
    """Where the effect is no message there is nothing to look for."""
    assert possible(TASK, build.task()) == ()
    assert possible(VERDICT, build.verdict()) == ()
