"""Where a rollout goes next: every case of the table, and properties over random rollouts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import build

from tiltyard_proto import flow
from tiltyard_proto.messages import Command, Rollout, RolloutLimits, Turn, Verdict
from tiltyard_proto.outcomes import CONSEQUENCES, Consequence, Grade, Outcome, policy_for

COMMAND = Command(argv=("true",))
EARLY, LATE, DEADLINE = 10.0, 100.0, 100.0
TURN_KINDS = {
    "last word": build.turn(),
    "asks": build.turn(command=COMMAND),
    "ran silently": build.turn(command=COMMAND, execution=build.execution()),
    "ran": build.turn(command=COMMAND, execution=build.execution(), observation="ok"),
    "told": build.turn(observation="not readable, try again"),
}


def rollout(turns: Sequence[Turn] = (), **fields: Any) -> Rollout:
    limits = RolloutLimits(turns=3, tokens=1000, attempts=2)
    task = build.task(limits=limits)
    return build.rollout(task, turns=tuple(turns), **({"deadline": DEADLINE} | fields))


def hop(of: Rollout, now: float = EARLY) -> tuple[str, Outcome | None]:
    """The stage, and the outcome that the message carries."""
    found = flow.next_hop(of, now)
    message = found.message
    return found.stage, message.outcome


@pytest.mark.parametrize(("attempt", "turns"), list(itertools.product((0, 1, 5), (0, 1, 3))))
@pytest.mark.parametrize("outcome", Outcome)
def test_after_the_end_the_table_decides(outcome: Outcome, attempt: int, turns: int) -> None:
    """An ended rollout is tried again while attempts are left and the row says so, else graded, else given up."""
    ended = rollout([TURN_KINDS["last word"]] * turns, outcome=outcome, attempt=attempt, detail="why")
    for now in (EARLY, LATE):
        found = flow.next_hop(ended, now)
        row = CONSEQUENCES[outcome]
        if row.retry and attempt == 0:
            again = msgspec.structs.replace(ended, attempt=1, turns=(), outcome=None, detail="")
            assert found == flow.Hop(stage="generate", message=again)
        elif row.grade is Grade.YES:
            assert found == flow.Hop(stage="verify", message=ended)
        else:
            assert found.stage == "verdict"
            assert isinstance(found.message, Verdict)
            assert found.message.outcome is outcome
            assert found.message.rollout == ended
            assert found.message.score == (0.0 if outcome is Outcome.TAMPERING else None)
            assert found.message.reasons == ("why",)


@pytest.mark.parametrize("now", [EARLY, LATE])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", sorted(TURN_KINDS))
def test_after_a_turn(kind: str, count: int, now: float) -> None:
    """Command, execution and observation of the last turn decide; limits end what would go on."""
    of = rollout([*[TURN_KINDS["ran"]] * (count - 1), TURN_KINDS[kind]])
    if kind == "asks":
        expected: tuple[str, Outcome | None] = ("execute", None)
    elif kind == "last word":
        expected = ("verify", Outcome.FINISHED)
    elif now >= DEADLINE:
        expected = ("verify", Outcome.WALL_LIMIT)
    elif count >= 3:
        expected = ("verify", Outcome.TURN_LIMIT)
    else:
        expected = ("generate", None)
    assert hop(of, now) == expected


def test_before_the_first_turn() -> None:
    """A new rollout is generated; one that never began before its deadline is late, not the policy's doing."""
    assert hop(rollout()) == ("generate", None)
    assert hop(rollout(), LATE) == ("verdict", Outcome.LATE)
    assert hop(rollout(deadline=0.0), 1e12) == ("generate", None)


def test_the_token_limit_ends_it() -> None:
    """Prompt, actions and observations count together; at the limit there is no further turn."""
    of = rollout([TURN_KINDS["ran"]])
    assert flow.tokens_used(of) == 4 + 3
    for limit, expected in ((8, ("generate", None)), (7, ("verify", Outcome.TOKEN_LIMIT))):
        limited = msgspec.structs.replace(of.task, limits=RolloutLimits(turns=3, tokens=limit))
        assert hop(msgspec.structs.replace(of, task=limited)) == expected


def test_a_failed_execution_is_seen_by_the_policy() -> None:
    """What a command did is no end of the rollout while turns are left."""
    ran = build.turn(command=COMMAND, execution=build.execution(Outcome.OUT_OF_MEMORY, exit_code=None))
    assert hop(rollout([ran])) == ("generate", None)


def test_overrides_reach_every_decision() -> None:
    """A domain's own rows decide about the end, about limits and about the score without grading."""
    zero = Consequence(retry=False, grade=Grade.ZERO, trains=True)
    again = Consequence(retry=True, grade=Grade.YES, trains=True)
    limit = flow.next_hop(rollout([TURN_KINDS["ran"]] * 3), EARLY, {"turn_limit": zero})
    assert isinstance(limit.message, Verdict)
    assert (limit.stage, limit.message.score) == ("verdict", 0.0)
    ended = rollout([TURN_KINDS["last word"]], outcome=Outcome.BAD_FORMAT)
    assert flow.next_hop(ended, EARLY, {"bad_format": again}).message == flow.new_attempt(ended)
    assert flow.next_hop(ended, EARLY, {"finished": again}).stage == "verify"


def test_first_version_is_that_of_the_first_token() -> None:
    """The first turn with tokens tells; none before any."""
    empty = build.turn([], versions=())
    assert flow.first_version(rollout()) is None
    assert flow.first_version(rollout([empty])) is None
    assert flow.first_version(rollout([empty, build.turn(version=3), build.turn(version=4)])) == 3


def test_replace_last_keeps_the_others() -> None:
    """Only the last turn changes."""
    one, two, three = (build.turn([i]) for i in (1, 2, 3))
    assert flow.replace_last(rollout([one, two]), three).turns == (one, three)
    assert flow.add_turn(rollout([one]), two).turns == (one, two)


# ---------------------------------------------------------------- properties

turns = st.lists(st.sampled_from(list(TURN_KINDS.values())), max_size=4)
outcomes = st.none() | st.sampled_from(list(Outcome))
limits = st.builds(
    RolloutLimits, turns=st.integers(0, 4), tokens=st.integers(0, 40), attempts=st.integers(0, 3)
)  # fmt: skip
rows = st.builds(
    Consequence,
    retry=st.booleans(),
    grade=st.sampled_from(list(Grade)),
    trains=st.booleans(),
)
overrides = st.dictionaries(st.sampled_from([outcome.value for outcome in Outcome]), rows, max_size=5)
TASK = build.task()


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    return build.rollout(
        msgspec.structs.replace(TASK, limits=draw(limits)),
        turns=tuple(draw(turns)),
        outcome=draw(outcomes),
        attempt=draw(st.integers(0, 3)),
        deadline=draw(st.sampled_from([0.0, DEADLINE])),
    )


@given(of=rollouts(), now=st.sampled_from([EARLY, LATE]), overrides=overrides)
def test_total_and_within_limits(of: Rollout, now: float, overrides: dict[str, Consequence]) -> None:
    """Every rollout has a next stage; it is generated only below its limits, executed only when it asks for it,
    graded only when ended, and its identity never changes."""
    found = flow.next_hop(of, now, overrides)
    message = found.message
    inner = message.rollout if isinstance(message, Verdict) else message
    assert (inner.id, inner.task, inner.group, inner.member) == (of.id, of.task, of.group, of.member)
    assert (found.stage == "verdict") == isinstance(message, Verdict)
    if found.stage == "generate":
        assert inner.outcome is None
        assert inner.attempt == of.attempt or inner.attempt == of.attempt + 1 < of.task.limits.attempts
        if inner.turns:
            assert len(inner.turns) < of.task.limits.turns
            assert flow.tokens_used(inner) < of.task.limits.tokens
            assert not (of.deadline and now >= of.deadline)
    elif found.stage == "execute":
        assert inner == of
        assert inner.turns[-1].command is not None
        assert inner.turns[-1].execution is None
    else:
        assert inner.outcome is not None
        graded = policy_for(inner.outcome, overrides).grade is Grade.YES
        assert graded == (found.stage == "verify")


@given(data=st.data(), of=rollouts())
def test_every_rollout_ends(data: st.DataObject, of: Rollout) -> None:
    """Whatever engines and sandboxes return, a rollout comes to verify or verdict, after a bounded number of hops."""
    per_attempt = 2 * max(1, of.task.limits.turns, len(of.turns)) + 2
    bound = per_attempt * max(1, of.task.limits.attempts - of.attempt + 1)
    for _ in range(bound):
        found = flow.next_hop(of, EARLY)
        if found.stage in ("verify", "verdict"):
            return
        assert isinstance(found.message, Rollout)
        of = found.message
        fault = data.draw(
            st.none() | st.sampled_from([Outcome.ENGINE_FAILED, Outcome.SANDBOX_LOST, Outcome.BAD_FORMAT])
        )
        if fault is not None:
            of = flow.finish(of, fault)
        elif found.stage == "execute":
            ran = msgspec.structs.replace(of.turns[-1], execution=build.execution(), observation="ok")
            of = flow.replace_last(of, ran)
        else:
            of = flow.add_turn(of, data.draw(st.sampled_from(list(TURN_KINDS.values()))))
    pytest.fail("still not ended")
