"""The trainer's run: steps, publications, restarts, stops."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support import training
from support.waiting import until

from tiltyard.kit.settings import RunSettings
from tiltyard.trainer.app import Trainer
from tiltyard.trainer.backend import FakeLearner, Learner, MemoryStreams, StepAbandoned
from tiltyard.trainer.batch import Batch
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto.messages import Group, Policy

pytestmark = pytest.mark.anyio
Make = Callable[[], Learner]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(b"initial")
    return directory


def run_settings(**fields: Any) -> RunSettings:
    return RunSettings(**{"name": "run", "steps": 4, "groups_per_step": 2, "max_wall_s": 0.0, **fields})


class Rig:
    """A trainer on a data directory, over streams that outlive it."""

    def __init__(self, source: Path, data: Path, make: Make = lambda: FakeLearner(training.VOCAB)) -> None:
        self.source, self.data, self.make = source, data, make
        self.streams = MemoryStreams()
        self.now = 1000.0
        self.settings = TrainerSettings(
            checkpoint_every=2, keep_policies=2, keep_policies_s=0.0, threads=1, dtype="float32"
        )

    @asynccontextmanager
    async def running(self, **fields: Any) -> AsyncIterator[Trainer]:
        """A trainer at work; told to stop at the end of the block."""
        stop = anyio.Event()
        trainer = Trainer(
            run=run_settings(**fields),
            settings=self.settings,
            source=self.source,
            data=self.data,
            streams=self.streams,
            learner=self.make,
            stop=stop,
            clock=lambda: self.now,
        )
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(trainer.serve)
                yield trainer
                stop.set()

    def add(self, *groups: Group) -> None:
        for group in groups:
            self.streams.add(group)

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.data / "checkpoints").glob("*"))


@pytest.fixture
def rig(source: Path, tmp_path: Path) -> Rig:
    return Rig(source, tmp_path / "data")


async def run_for_ever(rig: Rig, **fields: Any) -> None:
    """Run a trainer that is expected to fail."""
    async with rig.running(**fields):
        await anyio.sleep_forever()


def pair(step: int) -> list[Group]:
    """Two groups that fill one step."""
    return [training.simple_group(2 * step + i, version=step) for i in (0, 1)]


async def test_the_initial_model_is_version_0(rig: Rig) -> None:
    """Before any group, version 0 points at the model's own directory with the hash of its weights."""
    async with rig.running():
        policy = await rig.streams.version(0)
    assert policy.path == str(rig.source)
    assert policy.sha256 == hashlib.sha256(b"initial").hexdigest()
    assert not policy.final


async def test_each_full_step_becomes_a_version_and_the_last_is_final(rig: Rig) -> None:
    """Four steps of two groups give four versions with their positions, and only the last is final."""
    async with rig.running():
        for step in range(4):
            rig.add(*pair(step))
            policy = await rig.streams.version(step + 1)
            assert policy.position == 2 * (step + 1)
            assert policy.metrics["groups"] == 2
            assert policy.metrics["staleness_max"] == 0
            weights = Path(policy.path) / "model.safetensors"
            assert hashlib.sha256(weights.read_bytes()).hexdigest() == policy.sha256
        rig.add(*pair(4))
    assert [policy.final for _, policy in sorted(rig.streams.policies.items())] == [False] * 4 + [True]
    assert rig.checkpoints() == ["step000002", "step000004"]


async def test_only_the_newest_weight_directories_are_kept(rig: Rig) -> None:
    """Old versions go, the initial model stays."""
    async with rig.running() as trainer:
        for step in range(4):
            rig.add(*pair(step))
        await until(lambda: trainer.progress.final)
        await until(lambda: len(list((rig.data / "policies").iterdir())) == 2)
    assert sorted(path.name for path in (rig.data / "policies").iterdir()) == ["v000003", "v000004"]
    assert rig.source.is_dir()


async def test_a_step_without_a_trainable_group_publishes_a_version_without_an_update(rig: Rig) -> None:
    """Four groups without variance make a version that says it trained nothing."""
    async with rig.running():
        rig.add(*(training.group([], index=i, trainable=False) for i in range(4)))
        policy = await rig.streams.version(1)
    assert policy.metrics["groups"] == policy.metrics["tokens"] == policy.metrics["grad_norm"] == 0
    assert policy.metrics["closed_groups"] == 4


async def test_the_time_budget_ends_the_run_at_a_step_boundary(rig: Rig) -> None:
    """The first version after the budget is final."""
    async with rig.running(max_wall_s=60.0):
        rig.add(*pair(0))
        assert not (await rig.streams.version(1)).final
        rig.now += 61
        rig.add(*pair(1))
        assert (await rig.streams.version(2)).final


async def test_a_run_of_no_steps_publishes_the_initial_model_as_final(rig: Rig) -> None:
    """Evaluation-only runs need no learner."""

    def refuse() -> Learner:
        raise AssertionError("no learner needed")

    rig.make = refuse
    async with rig.running(steps=0):
        assert (await rig.streams.version(0)).final


async def test_a_stopped_trainer_goes_on_where_it_was_and_trains_each_group_once(rig: Rig) -> None:
    """Stopped after step 1 with a group of step 2 seen, it resumes with that group and publishes nothing twice."""
    learners: list[FakeLearner] = []

    def make() -> Learner:
        learners.append(FakeLearner(training.VOCAB))
        return learners[-1]

    rig.make = make
    async with rig.running() as trainer:
        rig.add(*pair(0), pair(1)[0])
        await until(lambda: trainer.progress.version == 1)
    first = dict(rig.streams.policies)
    rig.now += 50
    async with rig.running() as trainer:
        rig.add(pair(1)[1])
        await rig.streams.version(2)
        await until(lambda: trainer.progress.version == 2)
        assert trainer.progress.started == 1000.0
    assert all(rig.streams.policies[version] is policy for version, policy in first.items())
    assert [batch.version for learner in learners for batch in learner.seen] == [0, 1]
    assert len(learners[1].seen[0].rows) == 2


async def test_a_crash_after_publishing_repeats_the_step_and_keeps_the_first_publication(rig: Rig) -> None:
    """Versions 1 published but not checkpointed: the restart repeats it, the first message and files stand."""

    class Killed(FakeLearner):
        def save(self, directory: Path) -> None:
            raise KeyboardInterrupt

    rig.make = lambda: Killed(training.VOCAB)
    rig.settings = msgspec.structs.replace(rig.settings, checkpoint_every=1)
    rig.add(*pair(0))
    with pytest.raises(BaseExceptionGroup) as caught:
        await run_for_ever(rig)
    assert caught.group_contains(KeyboardInterrupt)
    first = rig.streams.policies[1]
    rig.make = lambda: FakeLearner(training.VOCAB)
    async with rig.running() as trainer:
        await until(lambda: trainer.progress.version == 1)
        assert trainer.progress.policy is first
        rig.add(*pair(1))
        await rig.streams.version(2)
    assert hashlib.sha256((Path(first.path) / "model.safetensors").read_bytes()).hexdigest() == first.sha256


async def test_the_first_publication_decides_whether_the_run_is_final(rig: Rig) -> None:
    """A repeated step that would end the run by its time budget goes on when the first publication said so."""
    rig.streams.policies[1] = Policy(run="run", version=1, path="elsewhere", final=False)
    async with rig.running(max_wall_s=60.0):
        await rig.streams.version(0)
        rig.now += 100
        rig.add(*pair(0), *pair(1))
        assert (await rig.streams.version(2)).final


async def test_a_damaged_checkpoint_falls_back_to_the_one_before(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """With the newest checkpoint cut short the one before is used, and the log says so."""
    async with rig.running() as trainer:
        for step in range(3):
            rig.add(*pair(step))
        await until(lambda: trainer.progress.version == 3)
    assert rig.checkpoints() == ["step000002", "step000003"]
    path = rig.data / "checkpoints" / "step000003" / "fake.json"
    path.write_bytes(path.read_bytes()[:-3])
    async with rig.running() as trainer:
        await until(lambda: trainer.progress.version == 3)
        rig.add(*pair(3))
        assert (await rig.streams.version(4)).final
    assert "checkpoint_damaged" in capsys.readouterr().out
    assert "damaged-step000003" in rig.checkpoints()


async def test_changed_step_sizes_are_refused_on_resume(rig: Rig) -> None:
    """A checkpoint cut with other groups per step is the user's mistake, and says how to mend it."""
    async with rig.running() as trainer:
        rig.add(*pair(0))
        await until(lambda: trainer.progress.version == 1)
    with pytest.raises(BaseExceptionGroup) as caught:
        await run_for_ever(rig, groups_per_step=3)
    assert caught.group_contains(ValueError, match="choose another run name")


class Slow(FakeLearner):
    """Trains until it is told to give up."""

    def __init__(self, entered: list[bool]) -> None:
        super().__init__(training.VOCAB)
        self.entered = entered

    def step(self, batch: Batch, lr: float, abandon: Callable[[], bool]) -> dict[str, float]:
        self.entered.append(True)
        while not abandon():
            pass
        raise StepAbandoned


async def test_a_stop_in_the_middle_of_a_step_gives_it_up_and_loses_nothing(rig: Rig) -> None:
    """The stopped step is neither published nor saved, and the restart trains it."""
    entered: list[bool] = []
    rig.make = lambda: Slow(entered)
    async with rig.running():
        rig.add(*pair(0))
        await until(lambda: bool(entered))
    assert set(rig.streams.policies) == {0}
    assert rig.checkpoints() == []
    rig.make = lambda: FakeLearner(training.VOCAB)
    async with rig.running():
        await rig.streams.version(1)


async def test_a_restarted_run_gives_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    """On one thread in float32, killed and restarted from an older checkpoint, the final weights are the same."""
    from tiltyard.trainer.learner import TorchLearner

    source = training.tiny_model(tmp_path / "source")

    def rig_in(name: str) -> Rig:
        made = Rig(source, tmp_path / name)
        made.make = lambda: TorchLearner(source, made.settings)
        return made

    straight, broken = rig_in("straight"), rig_in("broken")
    async with straight.running():
        straight.add(*(group for step in range(4) for group in pair(step)))
        wanted = await straight.streams.version(4)
    async with broken.running() as trainer:
        broken.add(*(group for step in range(3) for group in pair(step)))
        await until(lambda: trainer.progress.version == 3)
        trainer._moved = True  # as in a kill, nothing is saved
    assert broken.checkpoints() == ["step000002"]
    async with broken.running():
        broken.add(*pair(3))
        got = await broken.streams.version(4)
    assert got.final
    assert got.sha256 == wanted.sha256
    assert got.sha256 != broken.streams.policies[3].sha256
