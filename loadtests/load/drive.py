"""One scenario from its first process to its figures. Invariant: it ends within its time, whatever happens."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
from load.bare import Bare, measure
from load.elsewhere import borrowed
from load.hops import Journeys, read
from load.meter import WORK, Meter, Sample, window
from load.scenario import RUN, Scenario
from rig.queues import repeated
from rig.world import World

from tiltyard.kit.bus import Bus
from tiltyard_proto import topology
from tiltyard_proto.messages import RunStatus

QUIET_S = 1.0
NOT_OURS = "engine"
"""It stands for something else, so its CPU is not counted among ours; an injector stands for the sampler."""
After = Callable[[Bus, World, Meter], Awaitable[dict[str, float]]]
"""Something that is done when a scenario has come to rest and everything still runs; what it found, by name."""


@dataclass(kw_only=True)
class Result:
    """What one scenario showed."""

    scenario: Scenario
    samples: list[Sample]
    journeys: Journeys
    redelivered: int
    wall_s: float
    bare: Bare | None = None
    rest_at: float = 0.0
    """When nothing was left to do, seconds since the meter's begin."""
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def rollouts(self) -> int:
        return sum(record.size for record in self.journeys.records.values())

    def rate(self) -> float:
        """Rollouts per second over the middle of the run."""
        first, last = window(self.samples)
        return (last.verdicts - first.verdicts) / max(1e-9, last.at - first.at)

    def cpu_ms(self) -> dict[str, float]:
        """CPU milliseconds of a rollout over the middle of the run, by process."""
        first, last = window(self.samples)
        count = max(1, last.verdicts - first.verdicts)
        return {name: (last.cpu_s[name] - first.cpu_s.get(name, 0.0)) / count * 1e3 for name in last.cpu_s}

    def machine(self) -> tuple[float, float]:
        """Shares of the machine's CPU over the middle of the run: what nobody used, and what others than we used."""
        first, last = window(self.samples)
        used, whole = (end - begin for begin, end in zip(first.machine_s, last.machine_s, strict=True))
        mine = sum(last.cpu_s.values()) - sum(first.cpu_s.values())
        return 1 - used / whole, max(0.0, used - mine) / whole

    def rate_alone(self) -> float:
        """`rate`, had nobody else used the machine: what a model of the machine is compared with."""
        return self.rate() / max(0.05, 1 - self.machine()[1])

    def memory(self) -> dict[str, int]:
        """The most bytes that each process had."""
        names = {name for sample in self.samples for name in sample.memory}
        return {name: max(sample.memory.get(name, 0) for sample in self.samples) for name in sorted(names)}


async def run(
    scenario: Scenario, root: Path, tiny: Path, server_url: str = "", *, bare: int = 0, after: After | None = None
) -> Result:
    """Take a scenario through the system; with `bare` rollouts of a bare client on the same server afterwards."""
    world = scenario.world(root, tiny, server_url)
    since, begun = time.time(), time.monotonic()
    notes: dict[str, float] = {}
    async with world.connected() as bus, borrowed(bus, scenario.names()) if server_url else nullcontext():
        meter = Meter(world, bus, scenario.check_s)
        async with world.served(bus), _watched(meter):
            with anyio.fail_after(scenario.limit_s):
                await _until_done(bus, scenario, meter)
                meter.samples.append(await meter.look())
                rest_at = meter.samples[-1].at
                if (begun_at := world.begun.get("injector")) is not None:
                    notes["begun"] = begun_at - meter.begun
                if after is not None:
                    notes |= await after(bus, world, meter)
        journeys = await read(bus, since)
        redelivered = sum([await repeated(bus, stage) for stage in WORK])
        result = Result(
            scenario=scenario,
            samples=meter.samples,
            journeys=journeys,
            redelivered=redelivered,
            wall_s=time.monotonic() - begun,
            rest_at=rest_at,
            notes=notes,
        )
        if bare:
            pid = world.server.pid if world.server is not None else None
            result.bare = await measure(bus, pid, bare, scenario.size)
        return result


@asynccontextmanager
async def _watched(meter: Meter) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meter.run)
        yield
        tasks.cancel_scope.cancel()


async def _until_done(bus: Bus, scenario: Scenario, meter: Meter) -> None:
    """Until the run has finished and nothing waits."""
    said = time.monotonic()
    while not (await _finished(bus, scenario, meter) and await at_rest(bus, meter)):
        await anyio.sleep(0.2)
        if time.monotonic() - said > 10 and meter.samples:
            said = time.monotonic()
            print(f"  {scenario.name}: {meter.samples[-1].verdicts} verdicts", file=sys.stderr, flush=True)


async def _finished(bus: Bus, scenario: Scenario, meter: Meter) -> bool:
    """Will no more groups be opened?"""
    if scenario.phases:
        return "injector" in meter.world.ready
    entry = await bus.kv(topology.RUNS_BUCKET).get(RUN)
    return entry is not None and msgspec.msgpack.decode(entry[0], type=RunStatus).state == "finished"


async def at_rest(bus: Bus, meter: Meter) -> bool:
    """No message waits, and every opened group is closed."""
    look = await meter.look()
    records = (await bus.js.api(f"STREAM.INFO.KV_{topology.GROUPS_BUCKET}"))["state"]["messages"]
    return not any(look.waiting.values()) and records == look.groups
