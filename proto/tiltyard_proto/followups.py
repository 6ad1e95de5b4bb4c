"""What a stage may publish for a message: every subject whose existence says that the message has been dealt with.

Used on redelivery: when one of these is stored, the work was finished by somebody and is not done again.
Invariants: pure and complete; each subject, once stored, makes repeating the work useless: the rollout went on, its
attempt was given up, or its verdict has fallen. Left out: stages whose effect is no message (the aggregator's records
are written by compare-and-set).
"""

from __future__ import annotations

from typing import Any

from . import topology
from .keys import generate_key, verify_key
from .messages import Graded, Job, Rollout
from .topology import Stage

Place = tuple[Stage[Any], str]
"""A stage and a subject on it."""


def possible(stage: Stage[Any], message: object) -> tuple[Place, ...]:
    """Where the results of handling `message` at `stage` can lie; empty when that can't be said."""
    if stage is topology.GENERATE and isinstance(message, Rollout):
        turn = len(message.turns)
        return (
            _place(topology.EXECUTE, message, f"{_attempt(message)}-t{turn}"),
            _place(topology.GENERATE, message, f"{_attempt(message)}-t{turn + 1}"),
            _place(topology.VERIFY, message, verify_key(message)),
            *_ended(message),
        )
    if stage is topology.EXECUTE and isinstance(message, Rollout):
        return (
            _place(topology.GENERATE, message, generate_key(message)),
            _place(topology.VERIFY, message, verify_key(message)),
            *_ended(message),
        )
    if stage is topology.EXECUTE and isinstance(message, Job):
        rollout = message.rollout
        return _place(topology.VERIFY, rollout, f"{_attempt(rollout)}-graded"), *_ended(rollout)
    if stage is topology.VERIFY and isinstance(message, Rollout):
        return _place(topology.EXECUTE, message, f"{_attempt(message)}-grade"), *_ended(message)
    if stage is topology.VERIFY and isinstance(message, Graded):
        return _ended(message.rollout)
    return ()


def _attempt(rollout: Rollout) -> str:
    return f"{rollout.id}-a{rollout.attempt}"


def _ended(rollout: Rollout) -> tuple[Place, ...]:
    """The rollout's verdict, and its next attempt."""
    return (
        _place(topology.VERDICT, rollout, rollout.id),
        _place(topology.GENERATE, rollout, f"{rollout.id}-a{rollout.attempt + 1}-t0"),
    )


def _place(stage: Stage[Any], rollout: Rollout, key: str) -> Place:
    return stage, stage.place(rollout, key)
