"""From closed groups to packed rows: what the learner is given for one step.

A row is a prefix tree of the rollouts of one group: tokens that rollouts share from their start on (the prompt, and
whatever of their actions is the same) stand once, each token attends to its ancestors and itself, and its position
is its depth. So every rollout is computed exactly as if it stood alone, at a third of the tokens or less.
The last token of a rollout is only predicted, never fed.

Invariants: target ids are the sampled ids, bit for bit; only action tokens are targets; a rollout that is stale,
unusable or without advantage is not computed, its siblings are. No torch here. Left out: tensors (`collate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tiltyard_proto.flow import first_version
from tiltyard_proto.messages import Group, Member, Rollout
from tiltyard_proto.tokens import unpack_floats, unpack_ids


class BadRollout(ValueError):
    """A rollout whose token arrays do not fit together; it cannot be trained on."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The tokens of one rollout, in order. T tokens, N of them actions."""

    ids: list[int]
    """[T]"""
    targets: list[int]
    """[N] indices into `ids` of the action tokens; never 0."""
    logprobs: list[float]
    """[N] the sampler's log-probabilities at its temperature."""
    versions: list[int]
    """[N] policy version that sampled the token."""
    temperature: float
    advantage: float

    @property
    def fed(self) -> list[int]:
        """The tokens that go through the model: all before the last target."""
        return self.ids[: self.targets[-1]]


def trajectory(rollout: Rollout, advantage: float, vocab_size: int) -> Trajectory:
    """The rollout's tokens as sampled; BadRollout when they can't be trained on."""
    found = Trajectory([], [], [], [], rollout.sampling.temperature, advantage)
    for turn in rollout.turns:
        found.ids.extend(unpack_ids(turn.context_ids))
        action, logprobs = unpack_ids(turn.action_ids), unpack_floats(turn.logprobs)
        versions = [span.version for span in turn.versions for _ in range(span.start, span.end)]
        if not len(action) == len(logprobs) == len(versions):
            counts = f"{len(action)} ids, {len(logprobs)} log-probabilities, {len(versions)} versions"
            raise BadRollout(f"rollout {rollout.id}: {counts}")
        found.targets.extend(range(len(found.ids), len(found.ids) + len(action)))
        found.ids.extend(action)
        found.logprobs.extend(logprobs)
        found.versions.extend(versions)
    _check(found, rollout.id, vocab_size)
    return found


def _check(found: Trajectory, rollout: str, vocab_size: int) -> None:
    if not found.targets:
        raise BadRollout(f"rollout {rollout}: no sampled tokens")
    if found.targets[0] == 0:
        raise BadRollout(f"rollout {rollout}: no prompt before the first action")
    if found.temperature <= 0:
        raise BadRollout(f"rollout {rollout}: sampled at temperature {found.temperature}, so it has no log-probability")
    if min(found.ids) < 0 or max(found.ids) >= vocab_size:
        raise BadRollout(f"rollout {rollout}: a token id outside the vocabulary of {vocab_size}")
    if not all(-1e30 < value <= 0.001 for value in found.logprobs):
        raise BadRollout(f"rollout {rollout}: a log-probability above 0 or not finite")


@dataclass(slots=True)
class Row:
    """A prefix tree of rollouts: L tokens that are fed, P points where logits are needed, N targets.

    A parent comes before its children; targets that follow the same tokens share a point.
    """

    ids: list[int] = field(default_factory=list)
    """[L]"""
    parents: list[int] = field(default_factory=list)
    """[L] index of the token before; -1 for a first token."""
    positions: list[int] = field(default_factory=list)
    """[L] depth in the tree."""
    sources: list[int] = field(default_factory=list)
    """[P] index of the fed token whose output predicts."""
    temperatures: list[float] = field(default_factory=list)
    """[P] what the logits are divided by."""
    points: list[int] = field(default_factory=list)
    """[N] the point that predicts the target."""
    targets: list[int] = field(default_factory=list)
    """[N] the sampled id."""
    logprobs: list[float] = field(default_factory=list)
    """[N]"""
    versions: list[int] = field(default_factory=list)
    """[N]"""
    advantages: list[float] = field(default_factory=list)
    """[N]"""

    def __len__(self) -> int:
        return len(self.ids)


def pack(trajectories: Iterable[Trajectory], cap: int) -> list[Row]:
    """Rows of at most `cap` fed tokens (a single longer rollout gets a row of its own)."""
    trees: list[_Tree] = []
    for item in trajectories:
        if not trees or len(trees[-1].row) + trees[-1].new_tokens(item) > cap:
            trees.append(_Tree())
        trees[-1].add(item)
    return [tree.row for tree in trees]


class _Tree:
    """A row under construction."""

    def __init__(self) -> None:
        self.row = Row()
        self._children: dict[tuple[int, int], int] = {}
        self._points: dict[tuple[int, float], int] = {}
        self._fed: list[int] = []
        """Tokens of the rollout that was added last, and where each lies: the next one shares most of them."""
        self._path: list[int] = [-1]

    def new_tokens(self, item: Trajectory) -> int:
        """Tokens that adding `item` would add."""
        fed = item.fed
        shared = common(fed, self._fed)
        node = self._path[shared]
        for depth, token in enumerate(fed[shared:], shared):
            following = self._children.get((node, token))
            if following is None:
                return len(fed) - depth
            node = following
        return 0

    def add(self, item: Trajectory) -> None:
        """Put a rollout into the row."""
        row, fed = self.row, item.fed
        shared = common(fed, self._fed)
        path = self._path[: shared + 1]
        for depth, token in enumerate(fed[shared:], shared):
            node = self._children.setdefault((path[-1], token), len(row))
            if node == len(row):
                row.ids.append(token)
                row.parents.append(path[-1])
                row.positions.append(depth)
            path.append(node)
        self._fed, self._path = fed, path
        row.points.extend(self._point(path[index], item.temperature) for index in item.targets)
        row.targets.extend(item.ids[index] for index in item.targets)
        row.logprobs.extend(item.logprobs)
        row.versions.extend(item.versions)
        row.advantages.extend([item.advantage] * len(item.targets))

    def _point(self, source: int, temperature: float) -> int:
        point = self._points.setdefault((source, temperature), len(self._points))
        if point == len(self.row.sources):
            self.row.sources.append(source)
            self.row.temperatures.append(temperature)
        return point


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two rollouts have in common from their start on; slices are compared, not tokens."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def micro_batches(rows: Sequence[Row], cap: int) -> list[list[Row]]:
    """Rows of like length together, at most `cap` padded tokens each (a single longer row stands alone)."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=len, reverse=True):
        if batches and (len(batches[-1]) + 1) * len(batches[-1][0]) <= cap:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one step trains on."""

    version: int
    """Of the weights that are about to be updated."""
    rows: tuple[Row, ...]
    normalizer: float
    """What the sum of token losses is divided by."""
    metrics: dict[str, float]
    """What is known before training: reward_mean, pass_rate, groups, members, dropped_stale, tokens ..."""
    problems: tuple[str, ...] = ()
    """Why rollouts were unusable, for the log."""


@dataclass(kw_only=True)
class _Tally:
    """Counts while the groups of a step are gone through."""

    members: int = 0
    stale: int = 0
    flat: int = 0
    tokens: int = 0
    staleness: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds a batch."""

    max_staleness: int
    """Versions; older rollouts are left out."""
    row_cap: int
    """Fed tokens of a row."""
    vocab_size: int
    full_groups: float
    """With fewer groups left than this, the step is scaled down in proportion."""


def build(groups: Sequence[Group], version: int, limits: Limits) -> Batch:
    """The batch of one step from all training groups that closed for it.

    `version` is that of the weights about to be updated. The normalizer is the number of action tokens of the members
    kept, raised when fewer than `full_groups` groups are left, so that one survivor does not get a full-size step.
    """
    tally, rows, live = _Tally(), [], 0
    for group in groups:
        if group.trainable:
            kept = _kept(group, version, limits, tally)
            live += bool(kept)
            rows.extend(pack(kept, limits.row_cap))
    scale = max(1.0, limits.full_groups / live) if live else 1.0
    metrics = {
        **_rewards(groups),
        "groups": float(live),
        "members": float(tally.members),
        "tokens": float(tally.tokens),
        "dropped_stale": float(tally.stale),
        "dropped_unusable": float(len(tally.problems)),
        "zero_advantage": float(tally.flat),
        "staleness_mean": sum(tally.staleness) / max(1, len(tally.staleness)),
        "staleness_max": float(max(tally.staleness, default=0)),
        "staleness_limit": float(limits.max_staleness),
        "fed_tokens": float(sum(map(len, rows))),
    }
    return Batch(
        version=version,
        rows=tuple(rows),
        normalizer=max(1.0, tally.tokens * scale),
        metrics=metrics,
        problems=tuple(tally.problems),
    )


def _kept(group: Group, version: int, limits: Limits, tally: _Tally) -> list[Trajectory]:
    kept: list[Trajectory] = []
    for member in group.members:
        if not member.trains:
            continue
        try:
            item = trajectory(member.verdict.rollout, member.advantage, limits.vocab_size)
        except ValueError as error:
            tally.problems.append(str(error))
            continue
        age = version - (first_version(member.verdict.rollout) or 0)
        if age > limits.max_staleness:
            tally.stale += 1
            continue
        tally.members += 1
        tally.tokens += len(item.targets)
        tally.staleness.append(age)
        if item.advantage == 0:
            tally.flat += 1
        else:
            kept.append(item)
    return kept


def _rewards(groups: Sequence[Group]) -> dict[str, float]:
    scored: list[Member] = [m for group in groups for m in group.members if m.verdict.score is not None]
    count = max(1, len(scored))
    return {
        "reward_mean": sum(m.reward for m in scored) / count,
        "pass_rate": sum(m.verdict.passed for m in scored) / count,
        "scored": float(len(scored)),
        "closed_groups": float(len(groups)),
    }
