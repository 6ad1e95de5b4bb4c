"""Sampler and trainer, the ends of the loop, killed after their k-th publish for every k until the work is done.

They acknowledge nothing: what the sampler has done are records and rollouts, what the trainer has done is a published
version before its checkpoint. As in `test_chaos_kill_points`, a proxy cuts the first process off right after the k-th
frame that changes something, and a second process takes over; the effects must be those of an undisturbed run.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build, training
from support.cutter import cutting
from support.services import context, stored

from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler import app as sampler
from tiltyard.sampler.backend import BusRegister
from tiltyard.sampler.settings import SamplerSettings
from tiltyard.trainer.app import Trainer
from tiltyard.trainer.backend import BusStreams, FakeLearner
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto.messages import Policy
from tiltyard_proto.topology import GENERATE, GROUP, POLICY, TASK

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
MOST = 40
"""Cuts tried at most; the work must be done long before."""
DOMAIN = "math.train"


class Case(ABC):
    """One service; every life has a run of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data

    @abstractmethod
    async def prepare(self, bus: Bus, run: str) -> None:
        """What the run needs before the service starts."""

    @abstractmethod
    async def serve(self, bus: Bus, run: str) -> None:
        """The service, for ever."""

    @abstractmethod
    async def effects(self, bus: Bus, run: str) -> list[Any]:
        """What the service has done for the run, without the run's name."""


class Sampling(Case):
    """The sampler: two groups of two."""

    async def prepare(self, bus: Bus, run: str) -> None:
        for text in ("one", "two"):
            await bus.publish(TASK, build.task(DOMAIN, text=text))
        await bus.publish(POLICY, Policy(run=run, version=0, path="/w/0"))

    async def serve(self, bus: Bus, run: str) -> None:
        train = {DOMAIN: TaskShare(tasks=2)}
        settings = RunSettings(name=run, steps=1, groups_per_step=2, group_size=2, staleness=0, train=train)
        await sampler.start(context("sampler", bus, settings, SamplerSettings(settle_s=0.1, tick_s=0.05), self.data))

    async def effects(self, bus: Bus, run: str) -> list[Any]:
        subjects = await stored(bus, GENERATE)  # before the records: a group has its record before its rollouts
        records = {record.id: record for record in await BusRegister(bus).records(run)}
        found: list[Any] = [(name.removeprefix(run), record.size, record.closed) for name, record in records.items()]
        for subject in subjects:
            if subject.rsplit(".", 1)[1].startswith(f"{run}-"):
                rollout = await bus.get(GENERATE, subject)
                assert rollout is not None
                assert rollout.task.id == records[rollout.group.id].task_id
                assert rollout.group.deadline == records[rollout.group.id].deadline
                found.append(rollout.id.removeprefix(run))
        return sorted(found, key=str)


class Training(Case):
    """The trainer: two steps of two groups; the weights tell whether a group was trained once."""

    async def prepare(self, bus: Bus, run: str) -> None:
        for index in range(4):
            await bus.publish(GROUP, training.simple_group(index, run=run))

    async def serve(self, bus: Bus, run: str) -> None:
        source = self.data / "model"
        source.mkdir(exist_ok=True)
        (source / "config.json").write_text(json.dumps({"vocab_size": training.VOCAB}))
        trainer = Trainer(
            run=RunSettings(name=run, steps=2, groups_per_step=2, group_size=2),
            settings=TrainerSettings(learner="fake", checkpoint_every=1),
            source=source,
            data=self.data / run,
            streams=BusStreams(bus),
            learner=lambda: FakeLearner(training.VOCAB),
            stop=anyio.Event(),
        )
        await trainer.serve()

    async def effects(self, bus: Bus, run: str) -> list[Any]:
        found: list[Any] = []
        for subject in await stored(bus, POLICY):
            if subject.rsplit(".", 1)[1].startswith(f"{run}-"):
                policy = await bus.get(POLICY, subject)
                assert policy is not None
                found.append((policy.version, policy.sha256, policy.final, policy.metrics.get("members")))
        return sorted(found, key=str)


@asynccontextmanager
async def started(case: Case, bus: Bus, run: str) -> AsyncIterator[None]:
    """A process of the service, until the block ends; then it is torn down without ceremony."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(case.serve, bus, run)
        yield
        tasks.cancel_scope.cancel()


async def done(case: Case, bus: Bus, run: str, count: int) -> list[Any]:
    """The effects, once there are `count`."""
    with anyio.fail_after(30):
        while len(found := await case.effects(bus, run)) < count:  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.02)
    return found


async def one_life(bus: Bus, case: Case, port: int, run: str, k: int, count: int) -> bool:
    """Cut a process off after its k-th publish; was it cut before it had done all?"""
    async with cutting(port, k) as cutter:
        victim = await Bus.connect(cutter.url, bus.blobs, "victim")
        try:
            async with started(case, victim, run), anyio.create_task_group() as race:

                async def watch() -> None:
                    await done(case, bus, run, count)
                    race.cancel_scope.cancel()

                race.start_soon(watch)
                with anyio.fail_after(30):
                    await cutter.cut.wait()
                race.cancel_scope.cancel()
        finally:
            with suppress(OSError, RuntimeError):  # its connection is dead: nothing to hand back
                await victim.close()
        return cutter.cut.is_set()


@pytest.mark.parametrize(("kind", "count"), [(Sampling, 6), (Training, 3)], ids=["sampler", "trainer"])
async def test_an_end_killed_after_every_publish(
    kind: type[Case], count: int, bus: Bus, nats_server: Any, tmp_path: Path
) -> None:
    """Whatever sampler or trainer had published when it was killed, the next one completes the run as if it never had
    been: the same groups and rollouts once each, the same weights of every version."""
    case = kind(tmp_path)
    await case.prepare(bus, "calm")
    async with started(case, bus, "calm"):
        wanted = await done(case, bus, "calm", count)
    cuts = 0
    for k in range(1, MOST):
        run = f"run{k}"
        await case.prepare(bus, run)
        cut = await one_life(bus, case, nats_server.port, run, k, count)
        async with started(case, bus, run):
            assert await done(case, bus, run, count) == wanted, f"killed after publish {k}"
        if not cut:
            break
        cuts += 1
    assert cuts >= count
