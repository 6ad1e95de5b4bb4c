"""`tiltyard janitor`: trim finished messages and collect orphaned blobs, once or until it is told to stop.

It listens to signals itself, since the first process of a container has none that end it by default.
"""

from __future__ import annotations

import signal
from argparse import Namespace

import anyio

from tiltyard.kit.bus import Bus
from tiltyard.kit.janitor import JanitorSettings, collect, tidy, trim
from tiltyard.kit.settings import section
from tiltyard_proto import topology

from .connection import connected
from .main import source_of


async def _janitor(arguments: Namespace) -> None:
    source = source_of(arguments)
    settings = section(source, "janitor", JanitorSettings)
    async with connected(source, "janitor") as bus:
        if not arguments.once:
            await _until_told(bus, settings)
            return
        for stage in (each for each in topology.STAGES if each.work):
            print(f"{stage.name}: {await trim(bus, stage, settings.keep_s)} finished messages removed")
        done = await collect(bus, settings.blob_age_s)
        print(f"blobs: {done.removed} removed, {done.freed_bytes / 2**20:.1f} MiB freed, {done.kept} kept")


async def _until_told(bus: Bus, settings: JanitorSettings) -> None:
    """Tidy up until SIGTERM or SIGINT; a round that is cut short is done again by the next janitor."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tidy, bus, settings)
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


def main(arguments: Namespace) -> int:
    anyio.run(_janitor, arguments)
    return 0
