"""What the processes of a test use and how far the work has come, looked at once in a while.

A look costs a few API requests, whatever is in flight. CPU seconds are those of /proc, in hundredths. Left out:
latencies, which are read from the streams afterwards (`hops`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
from rig.world import World

from tiltyard.cli.up.child import cpu_seconds
from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import depth
from tiltyard.kit.errors import BusError
from tiltyard_proto import topology

PAGE = os.sysconf("SC_PAGE_SIZE")
WORK = [stage for stage in topology.STAGES if stage.work]
SERVER = "nats"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look."""

    at: float
    """Seconds since the begin."""
    verdicts: int
    groups: int
    """Closed."""
    cpu_s: dict[str, float]
    """By process, from its start on."""
    memory: dict[str, int]
    """Bytes resident, by process."""
    files: dict[str, int]
    """Open descriptors, by process."""
    waiting: dict[str, int]
    """Messages of a stage that wait or are in a handler."""
    machine_s: tuple[float, float]
    """CPU seconds of all cores since the machine's start: those that were used by anybody, and all there were."""


@dataclass
class Meter:
    """Looks at a world until it is cancelled."""

    world: World
    bus: Bus
    every_s: float = 0.5
    samples: list[Sample] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        while True:
            try:
                self.samples.append(await self.look())
            except BusError:  # the server is away: there is nothing to see
                pass
            await anyio.sleep(self.every_s)

    async def look(self) -> Sample:
        for child in self.world.children.values():
            child.sample_cpu()
        pids = {name: child.pid for name, child in self.world.children.items() if child.pid is not None}
        cpu = {name: child.cpu_s for name, child in self.world.children.items()}
        if self.world.server is not None:
            pids[SERVER] = self.world.server.pid
            cpu[SERVER] = cpu_seconds(self.world.server.pid)
        waiting: dict[str, int] = {}
        for stage in WORK:
            found = await depth(self.bus, stage)
            waiting[stage.name] = found.waiting + found.in_flight
        return Sample(
            at=time.monotonic() - self.begun,
            verdicts=await count(self.bus, topology.VERDICT.stream),
            groups=await count(self.bus, topology.GROUP.stream),
            cpu_s=cpu,
            memory={name: memory(pid) for name, pid in pids.items()},
            files={name: files(pid) for name, pid in pids.items()},
            waiting=waiting,
            machine_s=machine(),
        )


async def count(bus: Bus, stream: str) -> int:
    """Messages that a stream has taken so far, those that were trimmed included."""
    return int((await bus.js.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


def memory(pid: int) -> int:
    """Bytes resident; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def machine() -> tuple[float, float]:
    """CPU seconds used and there, over all cores; time that a hypervisor took counts as used."""
    numbers = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    whole = sum(numbers) / os.sysconf("SC_CLK_TCK")
    return whole - (numbers[3] + numbers[4]) / os.sysconf("SC_CLK_TCK"), whole


def files(pid: int) -> int:
    """Open descriptors; 0 when it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def window(samples: list[Sample], low: float = 0.1, high: float = 0.9) -> tuple[Sample, Sample]:
    """The samples between which the middle of the verdicts fell: what comes before and after is warming and ending."""
    last = samples[-1].verdicts
    first = next((each for each in samples if each.verdicts >= low * last), samples[0])
    end = next((each for each in samples if each.verdicts >= high * last), samples[-1])
    return (first, end) if end.verdicts > first.verdicts else (samples[0], samples[-1])
