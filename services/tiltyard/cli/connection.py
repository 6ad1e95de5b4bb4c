"""A connection to the bus for one command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import BusSettings, DataSettings, Source, section

from .main import UserError


@asynccontextmanager
async def connected(source: Source) -> AsyncIterator[Bus]:
    """A bus, or a UserError when none answers within three seconds."""
    settings, data = section(source, "bus", BusSettings), section(source, "data", DataSettings)
    bus: Bus | None = None
    with anyio.move_on_after(3):
        try:
            bus = await Bus.connect(settings.servers, BlobStore(data.blob_path), "cli", connect_timeout=2)
        except OSError:
            bus = None
    if bus is None:
        where = ", ".join(settings.servers)
        raise UserError(
            f"no bus at {where}: start one with `tiltyard up`, or name it with --set bus.servers='[\"nats://HOST:PORT\"]'"
        )
    try:
        yield bus
    finally:
        await bus.close()
