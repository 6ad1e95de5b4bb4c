"""The table of outcomes."""

from __future__ import annotations

import pytest

from tiltyard_proto.outcomes import CONSEQUENCES, Consequence, Grade, Outcome, policy_for

POLICYS_OWN = [
    "finished",
    "turn_limit",
    "token_limit",
    "wall_limit",
    "bad_format",
    "nonzero_exit",
    "signalled",
    "out_of_memory",
    "process_limit",
    "disk_limit",
    "output_limit",
]
INFRASTRUCTURE = [
    "sandbox_start_failed",
    "sandbox_lost",
    "node_lost",
    "gateway_failed",
    "engine_failed",
    "blob_missing",
    "verifier_failed",
    "verifier_timeout",
    "no_result",
    "judge_unavailable",
]
VOID = ["cancelled", "stale", "late", "poison"]


def test_every_outcome_has_a_row() -> None:
    """The table is total and names nothing else."""
    assert set(CONSEQUENCES) == set(Outcome)
    alone = ("tampering", "task_broken", "refused")
    assert {*POLICYS_OWN, *INFRASTRUCTURE, *VOID, *alone} == {outcome.value for outcome in Outcome}


@pytest.mark.parametrize("name", POLICYS_OWN)
def test_what_the_policy_did_is_graded_and_trains(name: str) -> None:
    """No retry, graded, trains."""
    row = policy_for(Outcome(name))
    assert (row.retry, row.grade, row.trains, row.flag, row.retire) == (False, Grade.YES, True, False, False)


@pytest.mark.parametrize("name", INFRASTRUCTURE)
def test_infrastructure_faults_are_tried_again(name: str) -> None:
    """Retry, never graded, never trains."""
    row = policy_for(Outcome(name))
    assert (row.retry, row.grade, row.trains, row.flag, row.retire) == (True, Grade.NO, False, False, False)


@pytest.mark.parametrize("name", VOID)
def test_void_outcomes_have_no_effect(name: str) -> None:
    """Neither retried nor graded nor trained."""
    row = policy_for(Outcome(name))
    assert (row.retry, row.grade, row.trains) == (False, Grade.NO, False)


def test_tampering_is_zero_trains_and_is_flagged() -> None:
    """Tampering scores 0, trains, and is drawn for review."""
    assert policy_for(Outcome.TAMPERING) == Consequence(retry=False, grade=Grade.ZERO, trains=True, flag=True)


def test_a_broken_task_is_retired() -> None:
    """A broken task is neither graded nor trained and leaves the pool."""
    row = policy_for(Outcome.TASK_BROKEN)
    assert (row.retry, row.grade, row.trains, row.retire) == (False, Grade.NO, False, True)


def test_what_is_not_graded_never_trains() -> None:
    """A missing verdict is never a reward."""
    assert all(not row.trains for row in CONSEQUENCES.values() if row.grade is Grade.NO)


def test_a_domain_overrides_one_row() -> None:
    """An override counts for its own outcome and no other."""
    mine = Consequence(retry=False, grade=Grade.ZERO, trains=True)
    overrides = {"wall_limit": mine}
    assert policy_for(Outcome.WALL_LIMIT, overrides) == mine
    assert policy_for(Outcome.TURN_LIMIT, overrides) == CONSEQUENCES[Outcome.TURN_LIMIT]


def test_what_was_refused_is_looked_at_and_has_no_effect() -> None:
    """An execution that did not run is neither tried again nor graded nor trained on, and drawn for review."""
    row = policy_for(Outcome.REFUSED)
    assert (row.retry, row.grade, row.trains, row.flag, row.retire) == (False, Grade.NO, False, True, False)
