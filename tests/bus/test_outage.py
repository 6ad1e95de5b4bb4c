"""A stage is away for longer than a group's deadline: no step is cut short, and the run goes on when it is back."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support import build
from support.services import context, eventually, running, stored

from tiltyard.aggregator import app as aggregator
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.kit.bus import Bus, Out, out
from tiltyard.kit.serve import serve
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler import app as sampler
from tiltyard.sampler.backend import BusRegister
from tiltyard.sampler.settings import SamplerSettings
from tiltyard_proto import flow, topology
from tiltyard_proto.flow import UNANSWERED, StepFold
from tiltyard_proto.messages import Group, Policy, Rollout, RunStatus
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE, GROUP, VERDICT

pytestmark = pytest.mark.anyio
DOMAIN = "math.test"
STEPS = 2
RUN = RunSettings(
    name="run", steps=STEPS, groups_per_step=2, group_size=2, staleness=0, refill_cap=1.0, group_deadline_s=0.6,
    train={DOMAIN: TaskShare(tasks=4)},
)  # fmt: skip
SAMPLER = SamplerSettings(settle_s=0.2, tick_s=0.05, probe_first_s=0.2, probe_cap_s=0.4)


class Trainer:
    """Cuts steps as the trainer does, and publishes a version for each."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.fold = StepFold(groups_per_step=RUN.groups_per_step, refill_cap=RUN.refill_cap)
        self.groups: list[Group] = []
        self.steps: list[list[str]] = [[]]
        """Reasons of each step's groups."""

    async def run(self) -> None:
        await self.publish(0)
        async for _, group in self.bus.follow(GROUP):
            before, self.fold = self.fold.step, self.fold.add(group)
            self.groups.append(group)
            self.steps[-1].append(group.reason)
            if self.fold.step > before:
                self.steps.append([])
                await self.publish(self.fold.step)

    async def publish(self, version: int) -> None:
        policy = Policy(run="run", version=version, path=f"/w/{version}", final=version >= STEPS)
        await self.bus.publish(topology.POLICY, policy)


async def answer(rollout: Rollout) -> Sequence[Out]:
    """A gateway and a verifier in one: a verdict at once; late where the deadline has passed."""
    hop = flow.next_hop(rollout, time.time())
    if hop.stage == "verdict":
        return [out(hop)]
    ended = flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED)
    return [(VERDICT, build.verdict(ended, float(rollout.member % 2)))]


@asynccontextmanager
async def gateway(bus: Bus) -> AsyncIterator[None]:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(bus, GENERATE, answer, slots=8, stop=stop))
        yield
        stop.set()


async def status(bus: Bus, wanted: str) -> RunStatus:
    """The run's status once it says `wanted`."""
    register = BusRegister(bus)
    with anyio.fail_after(20):
        while True:
            found = await register.status("run")
            if found is not None and wanted in f"{found.state} {found.detail}":
                return found
            await anyio.sleep(0.02)


async def test_an_outage_longer_than_the_deadline_cuts_no_step_short(bus: Bus, tmp_path: Path) -> None:
    """Groups that nobody answers are many times the refill cap, yet no step closes; they are asked one at a time; when
    the stage is back, both steps are made of answered groups and the run finishes."""
    for index in range(4):
        await bus.publish(topology.TASK, build.task(DOMAIN, text=str(index)))
    trainer = Trainer(bus)
    contexts = (
        context("sampler", bus, RUN, SAMPLER, tmp_path),
        context("aggregator", bus, RUN, AggregatorSettings(deadline_check_s=0.05), tmp_path),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trainer.run)
        async with running(sampler.start, contexts[0]), running(aggregator.start, contexts[1]):
            await eventually(bus, GROUP, 5)
            said = await status(bus, "nobody answers")
            assert (trainer.fold.step, {group.reason for group in trainer.groups}) == (0, {UNANSWERED})
            assert said.state == "training"
            opened = len(await BusRegister(bus).records("run"))
            assert opened <= len(await stored(bus, GROUP)) + 1, "more than one group asks whether somebody is there"
            async with gateway(bus):
                ended = await status(bus, "finished")
        tasks.cancel_scope.cancel()
    assert "nobody" not in ended.detail
    assert [step.count("") for step in trainer.steps] == [2, 2, 0]
    assert trainer.fold.unanswered >= 5
    assert set().union(*trainer.steps) == {"", UNANSWERED}
