"""`tiltyard janitor`: trim finished messages and collect orphaned blobs, once or for ever."""

from __future__ import annotations

from argparse import Namespace

import anyio

from tiltyard.kit.janitor import JanitorSettings, collect, tidy, trim
from tiltyard.kit.settings import section
from tiltyard_proto import topology

from .connection import connected
from .main import source_of


async def _janitor(arguments: Namespace) -> None:
    source = source_of(arguments)
    settings = section(source, "janitor", JanitorSettings)
    async with connected(source) as bus:
        if not arguments.once:
            await tidy(bus, settings)
        for stage in (each for each in topology.STAGES if each.work):
            print(f"{stage.name}: {await trim(bus, stage, settings.keep_s)} finished messages removed")
        done = await collect(bus, settings.blob_age_s)
        print(f"blobs: {done.removed} removed, {done.freed_bytes / 2**20:.1f} MiB freed, {done.kept} kept")


def main(arguments: Namespace) -> int:
    anyio.run(_janitor, arguments)
    return 0
