"""The trainer's pure decisions: when a step is full, which learning rate it gets, when the run is over.

Invariants: the account of the group stream is `flow.StepFold`, the same one the sampler paces by; a `Progress` is
always at a step boundary, so it needs no half-collected step; everything is a function of its arguments.
Left out: which rollouts of a step are trained on is `batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tiltyard_proto.flow import StepFold
from tiltyard_proto.messages import Group, Policy, Purpose

from .settings import TrainerSettings


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands after a step; kept in the checkpoint."""

    run: str
    fold: StepFold
    started: float
    """When the run's training began, seconds since the epoch; kept across restarts."""
    position: int = 0
    """Group-stream sequence up to which the weights have trained."""
    final: bool = False
    policy: Policy | None = None
    """The last version published; None before version 0 is."""

    @property
    def version(self) -> int:
        return self.fold.step


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """The open step: its account and its groups."""

    fold: StepFold
    position: int
    groups: tuple[Group, ...] = ()
    """Training groups of the run that closed since the last step boundary, trainable or not."""


class Full(msgspec.Struct, frozen=True, kw_only=True):
    """A step that can be trained."""

    fold: StepFold
    position: int
    groups: tuple[Group, ...]


def begin(progress: Progress) -> Intake:
    """The intake at a step boundary."""
    return Intake(fold=progress.fold, position=progress.position)


def take(intake: Intake, sequence: int, group: Group, run: str) -> tuple[Intake, Full | None]:
    """The intake after one more group of the stream, and the step it filled, if it did.

    Groups of other runs, evaluations and groups seen before (at or below the position) change nothing but the position.
    """
    position = max(intake.position, sequence)
    if sequence <= intake.position or group.run != run or group.purpose is not Purpose.TRAIN:
        return msgspec.structs.replace(intake, position=position), None
    fold = intake.fold.add(group)
    groups = (*intake.groups, group)
    if fold.step == intake.fold.step:
        return Intake(fold=fold, position=position, groups=groups), None
    return Intake(fold=fold, position=position), Full(fold=fold, position=position, groups=groups)


def learning_rate(settings: TrainerSettings, step: int, steps: int) -> float:
    """The learning rate of update `step` (from 1) of `steps`: linear warm-up, constant, linear decay."""
    rate = settings.lr
    if step < settings.warmup_steps:
        rate *= step / settings.warmup_steps
    decay = settings.decay_share * steps
    left = steps - step + 1
    if decay and left < decay:
        rate *= max(1, left) / (decay + 1)
    return rate


def is_final(version: int, steps: int, *, elapsed_s: float, max_wall_s: float) -> bool:
    """Whether `version` is the run's last: all steps done, or the time budget over (0: no budget)."""
    return version >= steps or (version > 0 and 0 < max_wall_s <= elapsed_s)


def advance(progress: Progress, full: Full, policy: Policy) -> Progress:
    """The progress after a step, given the policy that stands on the bus for it (its `final` counts)."""
    return msgspec.structs.replace(progress, fold=full.fold, position=full.position, final=policy.final, policy=policy)


def check_resumable(progress: Progress, fresh: Progress) -> None:
    """ValueError when a checkpoint does not continue the run as it is configured now."""
    if progress.run != fresh.run:
        raise ValueError(f"checkpoint of run {progress.run!r} in the directory of run {fresh.run!r}")
    for key in ("groups_per_step", "refill_cap"):
        was, now = getattr(progress.fold, key), getattr(fresh.fold, key)
        if was != now:
            raise ValueError(
                f"[run] {key}: the checkpoint was made with {was}, now it is {now}; "
                "restore it or choose another run name"
            )


def prunable(made: Mapping[Path, float], *, now: float, keep: int, keep_s: float) -> Sequence[Path]:
    """Weight directories that may go: not among the newest `keep` by name, and at least `keep_s` seconds old.

    `made` maps directories, whose names sort by version, to when they were made.
    """
    older = sorted(made)[:-keep] if keep else sorted(made)
    return [path for path in older if now - made[path] >= keep_s]
