"""Packing: which tokens of which rollouts become which rows."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import training

from tiltyard.trainer.batch import BadRollout, Limits, Row, Trajectory, build, micro_batches, pack, trajectory
from tiltyard_proto.tokens import pack_ids

LIMITS = Limits(max_staleness=4, row_cap=1000, vocab_size=training.VOCAB, full_groups=0.0)


def path_to(row: Row, node: int) -> list[int]:
    """Ids from the first token down to `node`."""
    ids: list[int] = []
    while node >= 0:
        ids.insert(0, row.ids[node])
        node = row.parents[node]
    return ids


def make(ids: list[int], first: int, advantage: float = 1.0) -> Trajectory:
    targets = list(range(first, len(ids)))
    return Trajectory(ids, targets, [-1.0] * len(targets), [0] * len(targets), 1.0, advantage)


def test_a_prompt_shared_by_a_group_stands_once_and_positions_go_on_after_it() -> None:
    """Two members with one prompt make one row: prompt, then each member's tokens with positions after the prompt."""
    (row,) = pack([make([7, 8, 9, 1, 2], 3), make([7, 8, 9, 3, 4, 5], 3)], 100)
    assert row.ids == [7, 8, 9, 1, 3, 4]
    assert row.positions == [0, 1, 2, 3, 3, 4]
    assert row.parents == [-1, 0, 1, 2, 2, 4]
    assert row.targets == [1, 2, 3, 4, 5]
    assert [row.sources[point] for point in row.points] == [2, 3, 2, 4, 5]
    assert row.sources == [2, 3, 4, 5]


def test_members_with_equal_tokens_share_them_but_keep_their_own_targets() -> None:
    """Two identical rollouts with opposite advantages are fed once and counted twice."""
    (row,) = pack([make([7, 1, 2], 1, 1.0), make([7, 1, 2], 1, -1.0)], 100)
    assert row.ids == [7, 1]
    assert row.targets == [1, 2, 1, 2]
    assert row.points == [0, 1, 0, 1]
    assert row.advantages == [1.0, 1.0, -1.0, -1.0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 60))
def test_every_target_is_predicted_from_exactly_its_own_prefix(seed: int, cap: int) -> None:
    """For any set of rollouts and any cap, each target's ancestors are the tokens before it in its rollout."""
    draw = random.Random(seed)
    items = [make([draw.randrange(3) for _ in range(draw.randrange(2, 15))], draw.randrange(1, 2)) for _ in range(6)]
    rows = pack(items, cap)
    assert all(len(row) <= cap or len(row.targets) == len(row) for row in rows)
    got = [
        (path_to(row, row.sources[at]), token)
        for row in rows
        for at, token in zip(row.points, row.targets, strict=True)
    ]
    assert got == [(item.ids[:at], item.ids[at]) for item in items for at in item.targets]


def test_trained_ids_are_the_sampled_ids_of_every_turn_and_nothing_else() -> None:
    """Of a rollout of two turns the actions are targets, the prompt and the observation are not."""
    made = training.turns([([2, 3], [10, 11]), ([12, 13], [14, 15, 16])])
    rollout = training.member(0, "run-t-0", made, 1.0, 1.0).verdict.rollout
    item = trajectory(rollout, 1.0, training.VOCAB)
    assert item.ids == [2, 3, 10, 11, 12, 13, 14, 15, 16]
    assert [item.ids[at] for at in item.targets] == [10, 11, 14, 15, 16]
    (row,) = pack([item], 100)
    assert row.targets == [10, 11, 14, 15, 16]


def test_stale_members_are_left_out_and_their_siblings_kept() -> None:
    """A member that began more versions ago than the limit is counted and dropped, at the limit it stays."""
    stale = training.member(0, "run-t-0", training.turns([([2], [5, 6])], version=4), 1.0, 0.5)
    fresh = training.member(1, "run-t-0", training.turns([([2], [7])], version=5), 0.0, -0.5)
    batch = build([training.group([stale, fresh])], 9, LIMITS)
    assert [row.targets for row in batch.rows] == [[7]]
    assert batch.metrics["dropped_stale"] == 1
    assert batch.metrics["members"] == 1
    assert batch.metrics["staleness_max"] == 4
    assert batch.normalizer == 1


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("logprobs", b"", "0 log-probabilities"),
        ("action_ids", pack_ids([5, 99]), "outside the vocabulary"),
        ("action_ids", pack_ids([5, -1]), "outside the vocabulary"),
        ("versions", (), "0 versions"),
        ("context_ids", b"", "no prompt"),
        ("logprobs", b"\x00\x00\xc0\x7f" * 2, "not finite"),
        ("action_ids", b"\x01\x02\x03", ""),
    ],
)
def test_a_rollout_whose_arrays_do_not_fit_is_left_out_and_said(field: str, value: object, says: str) -> None:
    """Corrupt token arrays cost their own rollout only."""
    (turn,) = training.turns([([2], [5, 6])])
    broken = training.member(0, "run-t-0", (msgspec.structs.replace(turn, **{field: value}),), 1.0, 0.5)
    sound = training.member(1, "run-t-0", training.turns([([2], [7])]), 0.0, -0.5)
    batch = build([training.group([broken, sound])], 0, LIMITS)
    assert [row.targets for row in batch.rows] == [[7]]
    assert batch.metrics["dropped_unusable"] == 1
    assert says in batch.problems[0]


def test_greedy_rollouts_have_no_log_probability() -> None:
    """A rollout sampled at temperature 0 can't be trained on."""
    rollout = training.member(0, "run-t-0", training.turns([([2], [5])]), 1.0, 1.0).verdict.rollout
    cold = msgspec.structs.replace(rollout, sampling=msgspec.structs.replace(rollout.sampling, temperature=0.0))
    with pytest.raises(BadRollout, match="temperature"):
        trajectory(cold, 1.0, training.VOCAB)


def test_members_without_advantage_count_but_are_not_computed() -> None:
    """Zero-advantage members are in the normalizer and not in the rows; members that don't train are in neither."""
    tokens = training.turns([([2], [5, 6])])
    members = [training.member(i, "run-t-0", tokens, 0.5, a) for i, a in enumerate((0.0, 0.5, -0.5))]
    members.append(training.member(3, "run-t-0", tokens, 0.5, 9.0, trains=False))
    batch = build([training.group(members)], 0, LIMITS)
    assert batch.normalizer == 6
    assert sorted(set(batch.rows[0].advantages)) == [-0.5, 0.5]
    assert batch.metrics["zero_advantage"] == 1


def test_a_lone_group_does_not_get_a_full_size_step() -> None:
    """With one group left where four make a full step, the normalizer is four times its tokens."""
    limits = dataclasses.replace(LIMITS, full_groups=4.0)
    lone = build([training.simple_group(0)], 0, limits)
    assert lone.normalizer == 4 * lone.metrics["tokens"]
    four = build([training.simple_group(i) for i in range(4)], 0, limits)
    assert four.normalizer == four.metrics["tokens"]


def test_rewards_are_told_over_all_closed_groups() -> None:
    """reward_mean and pass_rate count groups without variance too, and no member without a score."""
    flat = training.group([training.member(0, "a", training.turns([([2], [5])]), 1.0, 0.0)], trainable=False)
    ungraded = training.member(1, "a", training.turns([([2], [5])]), 0.0, 0.0, trains=False)
    ungraded = msgspec.structs.replace(ungraded, verdict=msgspec.structs.replace(ungraded.verdict, score=None))
    flat = msgspec.structs.replace(flat, members=(*flat.members, ungraded))
    batch = build([flat, training.simple_group(1)], 0, LIMITS)
    assert batch.metrics["reward_mean"] == pytest.approx(2 / 3)
    assert batch.metrics["pass_rate"] == pytest.approx(2 / 3)
    assert batch.metrics["closed_groups"] == 2
    assert batch.metrics["groups"] == 1


def test_no_groups_make_an_empty_batch() -> None:
    """A step without a trainable group has no rows and a usable normalizer."""
    batch = build([], 0, LIMITS)
    assert batch.rows == ()
    assert batch.normalizer == 1
    assert all(isinstance(value, float) for value in batch.metrics.values())


def test_micro_batches_hold_all_rows_within_the_cap() -> None:
    """Rows of like length go together, padded tokens stay within the cap, a longer row stands alone."""
    rows = [Row(ids=[0] * n) for n in (30, 5, 28, 90, 6)]
    batches = micro_batches(rows, 60)
    assert [[len(row) for row in batch] for batch in batches] == [[90], [30, 28], [6, 5]]
