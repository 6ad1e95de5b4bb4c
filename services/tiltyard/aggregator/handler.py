"""Pure decisions of the aggregator: when a group is complete, and what its members' rewards and advantages are.

Invariants: a member is set once; a rollout without a score has no reward and stays out of the baseline, it is never
a 0; the same verdicts give the same group. Left out: storage and publishing (`app`), drift watching.

Group-relative advantages: Shao et al. 2024, DeepSeekMath (GRPO), with the population standard deviation; the variant
without division is Liu et al. 2025, Dr. GRPO.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from tiltyard_proto import keys, topology
from tiltyard_proto.flow import UNANSWERED, unanswered
from tiltyard_proto.messages import Group, GroupRecord, Member, Purpose, Verdict
from tiltyard_proto.outcomes import Attribution, Outcome, policy_for

STD_FLOOR = 1e-4
UNVERIFIED = frozenset(
    (Outcome.VERIFIER_FAILED, Outcome.VERIFIER_TIMEOUT, Outcome.NO_RESULT, Outcome.JUDGE_UNAVAILABLE)
)
"""The policy has answered and nobody could tell how well; which members that hits may depend on their answers."""


def add_members(record: GroupRecord, members: Iterable[int]) -> GroupRecord:
    """The record with further members; unchanged when all were there already."""
    joined = sorted({*record.members, *members})
    return record if len(joined) == len(record.members) else msgspec.structs.replace(record, members=tuple(joined))


def is_complete(record: GroupRecord, now: float) -> bool:
    """All members have a verdict, or the deadline has passed."""
    return not record.closed and (len(record.members) >= record.size or now >= record.deadline)


def verdict_subjects(record: GroupRecord) -> list[str]:
    """Where the verdict of each member lies."""
    prefix = f"{topology.PREFIX}.verdict.{keys.domain_token(record.domain)}"
    return [f"{prefix}.{keys.rollout_id(record.id, member)}" for member in range(record.size)]


def counts(verdict: Verdict) -> bool:
    """May this verdict's score enter a baseline and a gradient? Not where an ending may be the infrastructure's."""
    if verdict.score is None or not policy_for(verdict.outcome, verdict.rollout.task.overrides).trains:
        return False
    endings = [turn.execution for turn in verdict.rollout.turns] + [verdict.grading]
    return not any(ending and ending.attribution is Attribution.AMBIGUOUS for ending in endings)


def advantages(rewards: Sequence[float], kind: Literal["mean_std", "mean"]) -> list[float]:
    """Rewards minus their mean, divided by their standard deviation when asked for."""
    mean = statistics.fmean(rewards)
    scale = statistics.pstdev(rewards) + STD_FLOOR if kind == "mean_std" else 1.0
    return [(reward - mean) / scale for reward in rewards]


def close(
    record: GroupRecord,
    verdicts: Sequence[Verdict],
    now: float,
    *,
    kind: Literal["mean_std", "mean"] = "mean_std",
    min_members: int = 2,
    min_spread: float = 1e-6,
    max_unverified: float = 0.25,
) -> Group:
    """The closed group of the verdicts that are there."""
    rewards = [verdict.score for verdict in verdicts if counts(verdict) and verdict.score is not None]
    reason = _why_not(record, verdicts, rewards, min_members, min_spread)
    if not reason and sum(verdict.outcome in UNVERIFIED for verdict in verdicts) > max_unverified * record.size:
        reason = "unverified"  # a baseline of those that are left would be one of a chosen part
    train = record.purpose is Purpose.TRAIN and len(rewards) >= min_members
    signal = iter(advantages(rewards, kind) if train else [0.0] * len(rewards))
    members = tuple(
        Member(
            verdict=verdict,
            reward=verdict.score if verdict.score is not None else 0.0,
            advantage=next(signal) if counts(verdict) else 0.0,
            trains=not reason and counts(verdict),
        )
        for verdict in verdicts
    )
    return Group(
        id=record.id,
        run=record.run,
        domain=record.domain,
        task_id=record.task_id,
        template=record.template,
        purpose=record.purpose,
        version=record.version,
        members=members,
        missing=record.size - len(verdicts),
        trainable=not reason,
        reason=reason,
        opened=record.opened,
        closed=now,
    )


def _why_not(
    record: GroupRecord, verdicts: Sequence[Verdict], rewards: Sequence[float], min_members: int, min_spread: float
) -> str:
    if record.purpose is not Purpose.TRAIN:
        return "evaluation"
    if len(rewards) < min_members:
        return UNANSWERED if unanswered(verdicts) else "too_few"
    if max(rewards) - min(rewards) < min_spread:
        return "zero_variance"
    return ""
