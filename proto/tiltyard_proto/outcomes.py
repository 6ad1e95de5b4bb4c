"""How things end: a closed union, and the one table of what follows from each ending.

Invariants: an ending is data, never an exception class name; a missing verdict is never a reward of 0; every
consumer asks `policy_for` instead of deciding by itself; a domain may override a row within `check_override`.
Left out: where overrides are kept (a task carries its domain's).

Source of the split between the policy's faults and the infrastructure's: counters (oom_kill, pids.events, limits we
enforced ourselves), never an exit code alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class Outcome(str, Enum):
    """How a rollout, an execution or a grading job ended."""

    FINISHED = "finished"
    """The policy ended by itself, or the program exited with status 0."""
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    WALL_LIMIT = "wall_limit"
    BAD_FORMAT = "bad_format"
    """The action could not be read (no code block, unreadable call ...)."""
    NONZERO_EXIT = "nonzero_exit"
    SIGNALLED = "signalled"
    OUT_OF_MEMORY = "out_of_memory"
    PROCESS_LIMIT = "process_limit"
    DISK_LIMIT = "disk_limit"
    OUTPUT_LIMIT = "output_limit"

    SANDBOX_START_FAILED = "sandbox_start_failed"
    SANDBOX_LOST = "sandbox_lost"
    NODE_LOST = "node_lost"
    GATEWAY_FAILED = "gateway_failed"
    ENGINE_FAILED = "engine_failed"
    BLOB_MISSING = "blob_missing"

    VERIFIER_FAILED = "verifier_failed"
    VERIFIER_TIMEOUT = "verifier_timeout"
    NO_RESULT = "no_result"
    JUDGE_UNAVAILABLE = "judge_unavailable"

    TAMPERING = "tampering"
    TASK_BROKEN = "task_broken"

    REFUSED = "refused"
    """Not run: executions of the same task had run into limits too often."""
    CANCELLED = "cancelled"
    STALE = "stale"
    LATE = "late"
    POISON = "poison"
    """The message itself was dead-lettered: undecodable, invalid, or it kept killing its workers."""


class Attribution(str, Enum):
    """Whose doing an ending was, as far as counters can tell."""

    POLICY = "policy"
    INFRASTRUCTURE = "infrastructure"
    AMBIGUOUS = "ambiguous"
    """Both could have caused it: graded as its outcome says, but never trained on."""


class Grade(str, Enum):
    """What a verifier may do with a rollout that ended this way."""

    YES = "yes"
    ZERO = "zero"
    NO = "no"


class Consequence(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: what follows from an outcome."""

    retry: bool
    """Start a new attempt of the same rollout (bounded by the attempts of its limits)."""
    grade: Grade
    trains: bool
    """May the reward enter a baseline and a gradient?"""
    flag: bool = False
    """Draw it for manual review."""
    retire: bool = False
    """Take the task out of the pool."""


_POLICY = Consequence(retry=False, grade=Grade.YES, trains=True)
_INFRA = Consequence(retry=True, grade=Grade.NO, trains=False)
_VOID = Consequence(retry=False, grade=Grade.NO, trains=False)

CONSEQUENCES: Mapping[Outcome, Consequence] = {
    **dict.fromkeys(
        (
            Outcome.FINISHED,
            Outcome.TURN_LIMIT,
            Outcome.TOKEN_LIMIT,
            Outcome.WALL_LIMIT,
            Outcome.BAD_FORMAT,
            Outcome.NONZERO_EXIT,
            Outcome.SIGNALLED,
            Outcome.OUT_OF_MEMORY,
            Outcome.PROCESS_LIMIT,
            Outcome.DISK_LIMIT,
            Outcome.OUTPUT_LIMIT,
        ),
        _POLICY,
    ),
    **dict.fromkeys(
        (
            Outcome.SANDBOX_START_FAILED,
            Outcome.SANDBOX_LOST,
            Outcome.NODE_LOST,
            Outcome.GATEWAY_FAILED,
            Outcome.ENGINE_FAILED,
            Outcome.BLOB_MISSING,
            Outcome.VERIFIER_FAILED,
            Outcome.VERIFIER_TIMEOUT,
            Outcome.NO_RESULT,
            Outcome.JUDGE_UNAVAILABLE,
        ),
        _INFRA,
    ),
    Outcome.TAMPERING: Consequence(retry=False, grade=Grade.ZERO, trains=True, flag=True),
    Outcome.TASK_BROKEN: Consequence(retry=False, grade=Grade.NO, trains=False, flag=True, retire=True),
    Outcome.REFUSED: Consequence(retry=False, grade=Grade.NO, trains=False, flag=True),
    **dict.fromkeys((Outcome.CANCELLED, Outcome.STALE, Outcome.LATE, Outcome.POISON), _VOID),
}


SILENT = frozenset(
    outcome
    for outcome, row in CONSEQUENCES.items()
    if not row.trains and not row.retire and outcome not in (Outcome.POISON, Outcome.REFUSED)
)
"""Endings in which nobody answered: faults of the infrastructure, and work that came too late or was called off.

A broken task, a poisonous message and a refusal are answers: asking again gives the same.
"""


def policy_for(outcome: Outcome, overrides: Mapping[str, Consequence] | None = None) -> Consequence:
    """The row of `outcome`; `overrides` is keyed by the outcome's value (a domain's own failure policy)."""
    if overrides and outcome.value in overrides:
        return overrides[outcome.value]
    return CONSEQUENCES[outcome]


def attribution(outcome: Outcome) -> Attribution:
    """Whose doing an ending of this name is where nothing more is known."""
    row = CONSEQUENCES[outcome]
    return Attribution.POLICY if row.trains else Attribution.INFRASTRUCTURE


def check_override(outcome: str, row: Consequence) -> None:
    """ValueError unless a domain may have `row` for `outcome`.

    Whether to try again, to flag and to retire is the domain's choice, and so is everything about how the policy
    itself ended. What never says anything about the policy (a fault of the infrastructure, a cancelled or late
    rollout) can be neither scored nor trained on, so that a missing verdict never becomes a reward of 0.
    """
    try:
        usual = CONSEQUENCES[Outcome(outcome)]
    except ValueError as error:
        known = ", ".join(each.value for each in Outcome)
        raise ValueError(f"outcome {outcome!r} is not known; there are {known}") from error
    if not usual.trains and (row.trains or row.grade is not Grade.NO):
        raise ValueError(f"outcome {outcome!r} says nothing about the policy: it can be neither graded nor trained on")
    if row.grade is Grade.NO and row.trains:
        raise ValueError(f"outcome {outcome!r}: what is not graded has no reward to train on")


def override(outcome: str, changes: Mapping[str, object]) -> Consequence:
    """The usual row of `outcome` with `changes` to some of its fields; ValueError where a domain may not have it."""
    usual = CONSEQUENCES.get(Outcome(outcome)) if outcome in set(Outcome) else _VOID
    assert usual is not None
    row = msgspec.convert({**msgspec.to_builtins(usual), **changes}, Consequence, strict=True)
    check_override(outcome, row)
    return row
