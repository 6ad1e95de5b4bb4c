"""Rewards and advantages of a closed group, against figures worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import build

from tiltyard.aggregator import handler
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Purpose, Verdict
from tiltyard_proto.outcomes import Outcome

NOW = 50.0


def record(size: int = 4, **fields: Any) -> GroupRecord:
    base = GroupRecord(
        id="run-t-0",
        run="run",
        domain="math.test",
        task_id="t",
        template="one",
        purpose=Purpose.TRAIN,
        version=2,
        size=size,
        deadline=100.0,
        opened=10.0,
    )
    return msgspec.structs.replace(base, **fields)


def verdict(member: int, score: float | None, outcome: Outcome = Outcome.FINISHED) -> Verdict:
    of = build.rollout(member=member, turns=(build.turn(),), outcome=outcome)
    return build.verdict(of, score, outcome=outcome)


def verdicts(*scores: float | None) -> list[Verdict]:
    return [verdict(i, s, Outcome.FINISHED if s is not None else Outcome.ENGINE_FAILED) for i, s in enumerate(scores)]


def test_advantages_by_hand() -> None:
    """Rewards 1, 0, 0, 1: mean 1/2, population deviation 1/2, so plus and minus one (less the floor of 1e-4)."""
    group = handler.close(record(), verdicts(1.0, 0.0, 0.0, 1.0), NOW)
    expected = 0.5 / (0.5 + 1e-4)
    assert [m.advantage for m in group.members] == pytest.approx([expected, -expected, -expected, expected])
    assert [m.reward for m in group.members] == [1.0, 0.0, 0.0, 1.0]
    assert all(m.trains for m in group.members)
    assert (group.trainable, group.reason, group.missing) == (True, "", 0)


def test_partial_scores_by_hand() -> None:
    """Rewards 0.2, 0.4, 0.9: mean 0.5, deviation sqrt(0.26 / 3); without division just the differences."""
    scores = (0.2, 0.4, 0.9)
    deviation = math.sqrt(0.26 / 3) + 1e-4
    divided = handler.close(record(3), verdicts(*scores), NOW)
    assert [m.advantage for m in divided.members] == pytest.approx(
        [-0.3 / deviation, -0.1 / deviation, 0.4 / deviation]
    )
    plain = handler.close(record(3), verdicts(*scores), NOW, kind="mean")
    assert [m.advantage for m in plain.members] == pytest.approx([-0.3, -0.1, 0.4])


def test_ungraded_is_never_zero() -> None:
    """A rollout without a score stays out of the baseline: 1 and 0 have mean 1/2 beside it, and it does not train."""
    group = handler.close(record(3), verdicts(1.0, None, 0.0), NOW, kind="mean")
    assert [m.advantage for m in group.members] == pytest.approx([0.5, 0.0, -0.5])
    assert [m.trains for m in group.members] == [True, False, True]
    assert group.members[1].verdict.score is None
    assert group.trainable


def test_a_score_whose_outcome_does_not_train_stays_out() -> None:
    """The table of outcomes decides: a score on an infrastructure fault enters neither baseline nor gradient."""
    mixed = [verdict(0, 1.0), verdict(1, 0.0), verdict(2, 1.0, Outcome.NODE_LOST)]
    group = handler.close(record(3), mixed, NOW, kind="mean")
    assert [(m.advantage, m.trains) for m in group.members] == [(0.5, True), (-0.5, True), (0.0, False)]


def test_tampering_trains_with_zero() -> None:
    """A tampered rollout's 0 counts as a reward."""
    group = handler.close(record(2), [verdict(0, 1.0), verdict(1, 0.0, Outcome.TAMPERING)], NOW, kind="mean")
    assert [(m.advantage, m.trains) for m in group.members] == [(0.5, True), (-0.5, True)]


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ((1.0, 1.0, 1.0), "zero_variance"),
        ((0.0, 0.0), "zero_variance"),
        ((0.5, 0.5 + 1e-7), "zero_variance"),
        ((1.0, None, None), "too_few"),
        ((None, None), "unanswered"),
        ((), "unanswered"),
    ],
)
def test_groups_without_a_signal(scores: tuple[float | None, ...], reason: str) -> None:
    """Equal rewards, or too few that count: the group closes, says why, and nothing of it trains."""
    group = handler.close(record(), verdicts(*scores), NOW)
    assert (group.trainable, group.reason) == (False, reason)
    assert not any(m.trains for m in group.members)
    assert group.missing == 4 - len(scores)


def test_a_group_of_unverified_members_does_not_train() -> None:
    """When the verifier failed on more than a quarter of the members, the others are no fair baseline."""
    found = [verdict(n, float(n % 2)) for n in range(5)]
    failed = [verdict(n, None, Outcome.VERIFIER_TIMEOUT) for n in range(5, 8)]
    assert handler.close(record(8), found + failed, NOW).reason == "unverified"
    assert handler.close(record(8), found + failed, NOW, max_unverified=0.5).reason == ""
    assert handler.close(record(8), found + failed[:2], NOW).reason == ""
    lost = [verdict(n, None, Outcome.NODE_LOST) for n in range(5, 8)]
    assert handler.close(record(8), found + lost, NOW).reason == ""


def test_more_members_may_be_asked_for() -> None:
    """`min_members` and `min_spread` are settings."""
    scores = verdicts(1.0, 0.0)
    assert handler.close(record(), scores, NOW, min_members=3).reason == "too_few"
    assert handler.close(record(), verdicts(0.5, 0.6), NOW, min_spread=0.2).reason == "zero_variance"


def test_evaluations_have_no_advantages() -> None:
    """An evaluation group keeps its scores and never trains."""
    group = handler.close(record(3, purpose=Purpose.EVAL), verdicts(1.0, None, 0.0), NOW)
    assert (group.trainable, group.reason) == (False, "evaluation")
    assert [(m.advantage, m.trains) for m in group.members] == [(0.0, False)] * 3
    assert [m.verdict.score for m in group.members] == [1.0, None, 0.0]


def test_the_group_carries_its_record() -> None:
    """Identity, version and times are the record's; the missing members are counted."""
    group = handler.close(record(5), verdicts(1.0, 0.0), NOW)
    assert (group.id, group.run, group.domain, group.version) == ("run-t-0", "run", "math.test", 2)
    assert (group.opened, group.closed, group.missing) == (10.0, NOW, 3)


def test_a_member_is_set_once() -> None:
    """Adding a member again changes nothing, and the order of arrival does not show."""
    one = handler.add_members(handler.add_members(record(), [2]), [0])
    assert one.members == (0, 2)
    assert handler.add_members(one, [2, 0]) is one


@pytest.mark.parametrize(
    ("members", "now", "closed", "expected"),
    [
        ((0, 1, 2, 3), 50.0, False, True),
        ((0, 1, 2), 50.0, False, False),
        ((), 99.9, False, False),
        ((), 100.0, False, True),
        ((0, 1, 2, 3), 150.0, True, False),
    ],
)
def test_when_a_group_is_complete(members: tuple[int, ...], now: float, closed: bool, expected: bool) -> None:
    """With its last member or at its deadline, and only once."""
    assert handler.is_complete(record(members=members, closed=closed), now) == expected


def test_verdicts_are_looked_up_where_they_are_published() -> None:
    """The subjects of a record's members are those that the verdict stage publishes on."""
    published = [topology.VERDICT.subject(verdict(i, 1.0)) for i in range(4)]
    assert handler.verdict_subjects(record()) == published


@given(
    rewards=st.lists(st.floats(0, 1), min_size=2, max_size=16),
    kind=st.sampled_from(["mean_std", "mean"]),
)
def test_advantages_sum_to_zero_and_keep_the_order(rewards: list[float], kind: Any) -> None:
    """Whatever the rewards, their advantages sum to 0, are finite, and rank as the rewards do."""
    found = handler.advantages(rewards, kind)
    assert abs(sum(found)) < 1e-6
    assert all(math.isfinite(value) and abs(value) <= len(rewards) for value in found)
    ranked = [value for _, value in sorted(zip(rewards, found, strict=True))]
    assert ranked == sorted(ranked)


@given(scores=st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0]), max_size=6))
def test_only_what_counts_is_in_the_baseline(scores: list[float | None]) -> None:
    """Graded members have the advantages that they have alone; ungraded ones have none and never train."""
    group = handler.close(record(6), verdicts(*scores), NOW, kind="mean")
    alone = handler.close(record(6), verdicts(*[s for s in scores if s is not None]), NOW, kind="mean")
    graded = [m for m in group.members if m.verdict.score is not None]
    assert [(m.advantage, m.trains) for m in graded] == [(m.advantage, m.trains) for m in alone.members]
    assert all((m.advantage, m.trains) == (0.0, False) for m in group.members if m.verdict.score is None)
