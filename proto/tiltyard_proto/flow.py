"""Where a rollout goes next, and when a training step is full: the pure decisions that several services share.

`next_hop` is the whole choreography: every stage adds its part to the rollout and asks it for the message to publish.
`StepFold` is the one account of the group stream: the sampler paces by it and the trainer cuts its steps by it, so
both agree without talking. Invariants: total functions of their arguments, no clock, no randomness, no I/O.
Left out: what an outcome implies is `outcomes`; how messages travel is `topology`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from .messages import Group, Purpose, Rollout, Turn, Verdict
from .outcomes import SILENT, Consequence, Grade, Outcome, policy_for
from .tokens import count

Stage = Literal["generate", "execute", "verify", "verdict"]
Overrides = Mapping[str, Consequence] | None
UNANSWERED = "unanswered"
"""Why a group does not train when nobody answered for it."""


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """The stage that takes the rollout next, and the message for it."""

    stage: Stage
    message: Rollout | Verdict


def tokens_used(rollout: Rollout) -> int:
    """Tokens of prompt, actions and observations so far."""
    return sum(count(turn.context_ids) + count(turn.action_ids) for turn in rollout.turns)


def first_version(rollout: Rollout) -> int | None:
    """The policy version that generation started with; None before the first token."""
    for turn in rollout.turns:
        if turn.versions:
            return turn.versions[0].version
    return None


def finish(rollout: Rollout, outcome: Outcome, detail: str = "") -> Rollout:
    """The rollout, ended."""
    return msgspec.structs.replace(rollout, outcome=outcome, detail=detail or rollout.detail)


def add_turn(rollout: Rollout, turn: Turn) -> Rollout:
    """The rollout with one more turn."""
    return msgspec.structs.replace(rollout, turns=(*rollout.turns, turn))


def replace_last(rollout: Rollout, turn: Turn) -> Rollout:
    """The rollout with its last turn replaced (the sandbox adds what the action caused)."""
    return msgspec.structs.replace(rollout, turns=(*rollout.turns[:-1], turn))


def _limit_reached(rollout: Rollout, now: float) -> Outcome | None:
    limits = rollout.task.limits
    if rollout.deadline and now >= rollout.deadline:
        return Outcome.WALL_LIMIT
    if len(rollout.turns) >= limits.turns:
        return Outcome.TURN_LIMIT
    if tokens_used(rollout) >= limits.tokens:
        return Outcome.TOKEN_LIMIT
    return None


def next_hop(rollout: Rollout, now: float, overrides: Overrides = None) -> Hop:
    """The stage that must see `rollout` next.

    `now` decides about the deadline only; `overrides` are those of the rollout's task unless others are given.
    A rollout that ended goes to be verified, retried or given up as the table
    of outcomes says; one that runs is executed when its last action asks for it, else it takes its next turn, until a
    limit ends it; one whose deadline passed before its first turn is late, since the policy never began. A
    rollout whose last turn has no command and no observation has said its last word.
    """
    if overrides is None:
        overrides = rollout.task.overrides
    if rollout.outcome is not None:
        return _after_end(rollout, overrides)
    if not rollout.turns:
        if rollout.deadline and now >= rollout.deadline:
            return _after_end(finish(rollout, Outcome.LATE, "deadline passed before the first turn"), overrides)
        return Hop(stage="generate", message=rollout)
    last = rollout.turns[-1]
    if last.command is not None and last.execution is None:
        return Hop(stage="execute", message=rollout)
    if last.execution is None and not last.observation:
        return _after_end(finish(rollout, Outcome.FINISHED), overrides)
    limit = _limit_reached(rollout, now)
    if limit is not None:
        return _after_end(finish(rollout, limit), overrides)
    return Hop(stage="generate", message=rollout)


def _after_end(rollout: Rollout, overrides: Overrides) -> Hop:
    assert rollout.outcome is not None
    row = policy_for(rollout.outcome, overrides)
    if row.retry and rollout.attempt + 1 < rollout.task.limits.attempts:
        return Hop(stage="generate", message=new_attempt(rollout))
    if row.grade is Grade.YES:
        return Hop(stage="verify", message=rollout)
    return Hop(stage="verdict", message=ungraded(rollout, rollout.outcome, rollout.detail, overrides))


def new_attempt(rollout: Rollout) -> Rollout:
    """The rollout from its start again: same id, next attempt, nothing kept of the failed one."""
    return msgspec.structs.replace(rollout, attempt=rollout.attempt + 1, turns=(), outcome=None, detail="")


def ungraded(rollout: Rollout, outcome: Outcome, detail: str = "", overrides: Overrides = None) -> Verdict:
    """A verdict without grading, so that the group still closes: no score, or 0 where the table grades as zero."""
    rows = rollout.task.overrides if overrides is None else overrides
    zero = policy_for(outcome, rows).grade is Grade.ZERO
    return Verdict(
        rollout=finish(rollout, outcome, detail),
        outcome=outcome,
        score=0.0 if zero else None,
        reasons=(detail,) if detail else (),
        verifier="none",
    )


def unanswered(verdicts: Iterable[Verdict]) -> bool:
    """Did nobody answer for a group that has these verdicts? None of them is there, or none says anything."""
    return all(verdict.outcome in SILENT for verdict in verdicts)


class StepFold(msgspec.Struct, frozen=True, kw_only=True):
    """Where the group stream stands in terms of training steps.

    A step closes with `groups_per_step` trainable groups, or with fewer once `refill_cap * groups_per_step`
    training groups have closed for it (groups without variance are refilled up to that cap). A group that nobody
    answered for, since a stage was away for longer than its deadline, is refilled and counts towards nothing.
    """

    groups_per_step: int
    refill_cap: float
    step: int = 0
    """Steps that are full, so the version that follows from them."""
    trainable: int = 0
    """Trainable groups of the open step."""
    closed: int = 0
    """Training groups of the open step, trainable or not."""
    dropped: int = 0
    """Training groups without a usable signal, over all steps."""
    unanswered: int = 0
    """Those of them that nobody answered for."""
    silence: int = 0
    """Unanswered training groups since the last one that was answered."""

    def add(self, group: Group) -> StepFold:
        """The account after one more closed group."""
        if group.purpose is not Purpose.TRAIN:
            return self
        if group.reason == UNANSWERED:
            return msgspec.structs.replace(
                self, dropped=self.dropped + 1, unanswered=self.unanswered + 1, silence=self.silence + 1
            )
        trainable = self.trainable + group.trainable
        closed = self.closed + 1
        dropped = self.dropped + (not group.trainable)
        if trainable >= self.groups_per_step or closed >= self.refill_cap * self.groups_per_step:
            return msgspec.structs.replace(self, step=self.step + 1, trainable=0, closed=0, dropped=dropped, silence=0)
        return msgspec.structs.replace(self, trainable=trainable, closed=closed, dropped=dropped, silence=0)

    def room(self, *, version: int, staleness: int, in_flight: int, steps: int) -> int:
        """Groups that may be opened now, so that none starts more than `staleness` versions before its step.

        `version` is the newest published policy; `in_flight` the training groups that are open; `steps` the last
        step that anything is needed for. Counted are the groups that the steps ahead are sure to take, however many
        of them have a signal. The bound holds for groups that close in the order they were opened; one that younger
        groups overtake may fall into a later step, where the trainer's own limit on the age of tokens decides.
        """
        ahead = min(version + 1 + staleness, steps) - self.step
        cap = math.ceil(self.refill_cap * self.groups_per_step)
        open_step = min(self.groups_per_step - self.trainable, cap - self.closed)
        later_steps = (ahead - 1) * min(self.groups_per_step, cap)
        return max(0, open_step + later_steps - in_flight) if ahead > 0 else 0
