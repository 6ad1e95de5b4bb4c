"""A connection to the bus for one command: a bus that is not there, or refuses, is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio

from tiltyard.kit import log as log_setup
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.jetstream import BusError
from tiltyard.kit.settings import BusSettings, DataSettings, Source, section

from .errors import UserError


@asynccontextmanager
async def connected(source: Source) -> AsyncIterator[Bus]:
    """A bus, or a UserError when none answers within three seconds."""
    log_setup.setup("cli", level="error")  # a command says what is wrong itself, and its output stays readable
    settings, data = section(source, "bus", BusSettings), section(source, "data", DataSettings)
    bus: Bus | None = None
    if await _somebody_listens(settings.servers):
        with anyio.move_on_after(3):
            bus = await Bus.connect(settings.servers, BlobStore(data.blob_path), "cli", connect_timeout=2)
    if bus is None:
        raise UserError(
            f"no bus at {', '.join(settings.servers)}: start one with `tiltyard up`, "
            "or name it with --set bus.servers='[\"nats://HOST:PORT\"]'"
        )
    try:
        yield bus
    except BusError as error:
        raise UserError(f"{error}; is the bus provisioned (`tiltyard provision`) and not full?") from error
    finally:
        await bus.close()


async def _somebody_listens(servers: Sequence[str]) -> bool:
    for server in servers:
        url = urlsplit(server if "//" in server else f"nats://{server}")
        try:
            with anyio.fail_after(2):
                stream = await anyio.connect_tcp(url.hostname or "127.0.0.1", url.port or 4222)
                await stream.aclose()
        except (OSError, TimeoutError):
            continue
        return True
    return False
