"""Rollouts at a given rate, whatever becomes of them: stands for the sampler where a test needs an open loop.

`python inject.py CONFIG ORDERS.json`. Groups are opened and sent by the sampler's own code (records by compare-and-set,
rollouts on the generate stage) when they are due, many at a time; what can't keep up with the rate is late, not left
out. It says `injector_begins`, and `injector_ready` when all is sent; then it idles.
Left out: choosing tasks, staleness.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec

from tiltyard.kit import log
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import BusSettings, DataSettings, RunSettings, read_source, section
from tiltyard.sampler.backend import BusRegister
from tiltyard.sampler.handler import rollouts
from tiltyard_proto import keys
from tiltyard_proto.messages import GroupRecord, Purpose, Task

AT_A_TIME = 64
"""Groups that are being opened."""
TICK_S = 0.02


class Phase(msgspec.Struct, frozen=True):
    """So many seconds at one rate of rollouts, over all domains in turn; `flood` come from the first domain on top."""

    seconds: float
    rate: float
    flood: float = 0.0


class Orders(msgspec.Struct, frozen=True):
    """What is to be injected."""

    phases: tuple[Phase, ...]
    tasks: tuple[Task, ...]
    size: int


def due(phases: tuple[Phase, ...], tasks: tuple[Task, ...], size: int) -> Iterator[tuple[float, Task]]:
    """When each group is due, seconds from the begin, and its task; in order."""
    begin, turn = 0.0, 0
    for phase in phases:
        times = [(begin + size / phase.rate * n, False) for n in range(int(phase.seconds * phase.rate / size))]
        if phase.flood:
            times += [(begin + size / phase.flood * n, True) for n in range(int(phase.seconds * phase.flood / size))]
        for at, floods in sorted(times):
            yield at, tasks[0] if floods else tasks[turn % len(tasks)]
            turn += not floods
        begin += phase.seconds


async def inject(bus: Bus, run: RunSettings, orders: Orders) -> None:
    """Open every group when it is due."""
    register, limit, begun = BusRegister(bus), anyio.CapacityLimiter(AT_A_TIME), time.monotonic()

    async def one(index: int, task: Task) -> None:
        async with limit:
            record = await register.open(_record(run.name, task, index, orders.size, run.group_deadline_s))
            await register.send(rollouts(record, task, run))

    async with anyio.create_task_group() as tasks:
        for index, (at, task) in enumerate(due(orders.phases, orders.tasks, orders.size)):
            if (wait := at - (time.monotonic() - begun)) > 0:
                await anyio.sleep(max(TICK_S, wait))
            tasks.start_soon(one, index, task)


def _record(run: str, task: Task, index: int, size: int, deadline_s: float) -> GroupRecord:
    now = time.time()
    return GroupRecord(
        id=keys.group_id(run, Purpose.TRAIN, index),
        run=run,
        domain=task.domain,
        task_id=task.id,
        template=task.template,
        purpose=Purpose.TRAIN,
        version=0,
        size=size,
        index=index,
        opened=now,
        deadline=now + deadline_s,
    )


async def main(config: Path, orders: Orders) -> None:
    source = read_source(config, (), {})
    run, settings, data = (
        section(source, "run", RunSettings),
        section(source, "bus", BusSettings),
        section(source, "data", DataSettings),
    )
    bus = await Bus.connect(settings.servers, BlobStore(data.blob_path), "sampler")
    while await bus.latest_policy(run.name) is None:  # noqa: ASYNC110  (the trainer's first word, asked for)
        await anyio.sleep(0.1)
    print('{"event": "injector_begins"}', flush=True)
    await inject(bus, run, orders)
    print('{"event": "injector_ready"}', flush=True)
    await anyio.sleep_forever()


if __name__ == "__main__":
    top = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    top.add_argument("config", type=Path)
    top.add_argument("orders", type=Path)
    given = top.parse_args()
    log.setup("injector", level="warning")
    told = msgspec.json.decode(given.orders.read_bytes(), type=Orders)
    sys.exit(anyio.run(main, given.config, told, backend_options={"use_uvloop": True}))
