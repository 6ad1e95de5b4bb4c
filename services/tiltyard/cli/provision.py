"""`tiltyard provision`: make the bus hold what the topology declares."""

from __future__ import annotations

from argparse import Namespace

import anyio

from tiltyard.kit.durability import check_durability
from tiltyard.kit.provision import provision
from tiltyard.kit.settings import BusSettings, section
from tiltyard_proto import topology

from .connection import connected
from .main import source_of


async def _provision(arguments: Namespace) -> None:
    source = source_of(arguments)
    settings = section(source, "bus", BusSettings)
    await check_durability(settings)
    async with connected(source, "provisioner") as bus:
        await provision(bus, settings.replicas)


def main(arguments: Namespace) -> int:
    anyio.run(_provision, arguments)
    print(f"{len(topology.STAGES)} streams and {len(topology.BUCKETS)} buckets are there")
    return 0
