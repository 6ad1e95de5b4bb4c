"""The trainer's pure decisions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import training

from tiltyard.trainer import handler
from tiltyard.trainer.handler import Progress
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto.flow import StepFold
from tiltyard_proto.messages import Group, Policy, Purpose


def progress(**fields: object) -> Progress:
    base = Progress(run="run", fold=StepFold(groups_per_step=2, refill_cap=2.0), started=100.0)
    return msgspec.structs.replace(base, **fields)


def feed(intake: handler.Intake, groups: list[Group], first: int = 1) -> list[handler.Full]:
    fulls = []
    for sequence, group in enumerate(groups, first):
        intake, full = handler.take(intake, sequence, group, "run")
        fulls += [full] if full else []
    return fulls


def test_a_step_is_full_with_its_trainable_groups() -> None:
    """Two trainable groups fill a step of two; what closed between them without variance belongs to it."""
    flat = training.group([], index=9, trainable=False)
    groups = [training.simple_group(0), flat, training.simple_group(1), training.simple_group(2)]
    (full,) = feed(handler.begin(progress()), groups)
    assert [group.id for group in full.groups] == ["run-t-0", "run-t-9", "run-t-1"]
    assert full.position == 3
    assert full.fold.step == 1


def test_a_step_closes_short_at_the_refill_cap() -> None:
    """Four groups without variance close a step of two with nothing to train."""
    (full,) = feed(handler.begin(progress()), [training.group([], index=i, trainable=False) for i in range(4)])
    assert not any(group.trainable for group in full.groups)
    assert full.fold.step == 1


def test_other_runs_evaluations_and_repeats_do_not_count() -> None:
    """Only training groups of this run after the position count."""
    evaluation = msgspec.structs.replace(training.simple_group(1), purpose=Purpose.EVAL)
    other = training.simple_group(2, run="other")
    assert feed(handler.begin(progress()), [training.simple_group(0), evaluation, other]) == []
    intake = handler.begin(progress(position=5))
    assert feed(intake, [training.simple_group(i) for i in range(5)]) == []


def test_the_learning_rate_warms_up_stays_and_falls() -> None:
    """Three steps up, constant, down over the last third, never zero, never above the peak."""
    settings = TrainerSettings(lr=1.0, warmup_steps=3)
    rates = [handler.learning_rate(settings, step, 12) for step in range(1, 13)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates[3:9] == [1.0] * 6
    assert rates[9:] == pytest.approx([0.6, 0.4, 0.2])


def test_without_warm_up_and_decay_the_learning_rate_is_constant() -> None:
    """Both can be switched off."""
    settings = TrainerSettings(lr=2.0, warmup_steps=0, decay_share=0.0)
    assert {handler.learning_rate(settings, step, 5) for step in range(1, 9)} == {2.0}


@pytest.mark.parametrize(
    ("version", "elapsed", "budget", "final"),
    [(3, 0, 0, False), (4, 0, 0, True), (1, 61, 60, True), (1, 59, 60, False), (0, 61, 60, False), (3, 9e9, 0, False)],
)
def test_a_run_ends_by_steps_or_by_time(version: int, elapsed: float, budget: float, final: bool) -> None:
    """The last step is final; so is any step after the time budget, but not the initial model."""
    assert handler.is_final(version, 4, elapsed_s=elapsed, max_wall_s=budget) is final


def test_the_policy_on_the_bus_decides_whether_the_run_is_over() -> None:
    """After a repeated step the first publication's `final` counts."""
    full = handler.Full(fold=StepFold(groups_per_step=2, refill_cap=2.0, step=1), position=7, groups=())
    after = handler.advance(progress(), full, Policy(run="run", version=1, path="p", final=True))
    assert (after.final, after.version, after.position) == (True, 1, 7)


def test_a_checkpoint_of_another_configuration_is_refused() -> None:
    """Steps cut differently would no longer agree with the sampler; the message says how to mend it."""
    saved = progress(fold=StepFold(groups_per_step=4, refill_cap=2.0))
    with pytest.raises(ValueError, match="groups_per_step: the checkpoint was made with 4, now it is 2"):
        handler.check_resumable(saved, progress())
    handler.check_resumable(progress(position=9), progress())


def test_weights_that_may_still_be_loading_are_kept() -> None:
    """Old directories go, the newest ones and young ones stay."""
    made = {Path(f"v{i:06d}"): float(i) for i in range(6)}
    gone = handler.prunable(made, now=12.0, keep=2, keep_s=10.0)
    assert [path.name for path in gone] == ["v000000", "v000001", "v000002"]
    assert handler.prunable(made, now=1e9, keep=6, keep_s=0.0) == []


@pytest.mark.parametrize("field", ["lr", "tis_cap", "micro_batch_tokens", "keep_policies", "decay_share", "dual_clip"])
def test_settings_refuse_nonsense_and_name_it(field: str) -> None:
    """A value outside its range is a ValueError that names the key."""
    with pytest.raises(ValueError, match=field):
        TrainerSettings(**{field: -1})  # type: ignore[arg-type]
