"""What every learner promises, held against the real one and its fake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from support import training

from tiltyard.trainer.backend import STEP_METRICS, CheckpointDamaged, FakeLearner, Learner, StepAbandoned
from tiltyard.trainer.batch import Batch, Limits, build
from tiltyard.trainer.learner import TorchLearner
from tiltyard.trainer.settings import TrainerSettings

LIMITS = Limits(max_staleness=4, row_cap=1000, vocab_size=training.VOCAB, full_groups=0.0)
Make = Callable[[], Learner]


@pytest.fixture(params=["torch", "torch-bfloat16", "fake"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A function that makes a fresh learner of the same initial weights each time."""
    if request.param == "fake":
        return lambda: FakeLearner(training.VOCAB)
    dtype: Literal["bfloat16", "float32"] = "bfloat16" if "bfloat16" in request.param else "float32"
    source = training.tiny_model(tmp_path / "source")
    return lambda: TorchLearner(source, TrainerSettings(threads=1, dtype=dtype))


def batch(index: int) -> Batch:
    return build([training.simple_group(index), training.simple_group(index + 1)], index, LIMITS)


def never() -> bool:
    return False


def weights(learner: Learner, directory: Path) -> bytes:
    directory.mkdir()
    found = learner.export(directory)
    body = (directory / "model.safetensors").read_bytes()
    assert found.size == len(body)
    assert found.sha256 == hashlib.sha256(body).hexdigest()
    assert (directory / "config.json").is_file()
    return body


def test_a_step_moves_the_weights_and_gives_every_metric(make: Make, tmp_path: Path) -> None:
    """After a step the exported weights differ, and all metrics are floats."""
    learner = make()
    before = weights(learner, tmp_path / "before")
    metrics = learner.step(batch(0), 1e-2, never)
    assert set(metrics) == set(STEP_METRICS)
    assert all(isinstance(value, float) for value in metrics.values())
    assert weights(learner, tmp_path / "after") != before


def test_an_empty_step_leaves_the_weights(make: Make, tmp_path: Path) -> None:
    """A batch without rows changes nothing."""
    learner = make()
    before = weights(learner, tmp_path / "before")
    learner.step(build([], 0, LIMITS), 1e-2, never)
    assert weights(learner, tmp_path / "after") == before


def test_an_abandoned_step_leaves_the_learner_as_it_was(make: Make, tmp_path: Path) -> None:
    """Giving up a step and doing it later gives the same weights as doing it at once."""
    learner, other = make(), make()
    with pytest.raises(StepAbandoned):
        learner.step(batch(0), 1e-2, lambda: True)
    for one in (learner, other):
        one.step(batch(1), 1e-2, never)
    assert weights(learner, tmp_path / "a") == weights(other, tmp_path / "b")


def test_a_restored_learner_goes_on_exactly(make: Make, tmp_path: Path) -> None:
    """Saved after two steps and restored into a new learner, the third step gives the same bits."""
    learner = make()
    for index in range(2):
        learner.step(batch(index), 1e-2, never)
    saved = tmp_path / "saved"
    saved.mkdir()
    learner.save(saved)
    restored = make()
    restored.load(saved)
    assert weights(restored, tmp_path / "restored") == weights(learner, tmp_path / "saved-weights")
    for one in (learner, restored):
        one.step(batch(2), 1e-2, never)
    assert weights(restored, tmp_path / "a") == weights(learner, tmp_path / "b")


def test_an_unreadable_checkpoint_is_damaged(make: Make, tmp_path: Path) -> None:
    """Missing and garbled files raise CheckpointDamaged."""
    learner = make()
    with pytest.raises(CheckpointDamaged):
        learner.load(tmp_path / "absent")
    saved = tmp_path / "saved"
    saved.mkdir()
    learner.save(saved)
    for path in saved.iterdir():
        path.write_bytes(b"\x00garbled")
    with pytest.raises(CheckpointDamaged):
        learner.load(saved)
