"""A connection to the bus for one command: a bus that is not there, or refuses, is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio

from tiltyard.kit import log as log_setup
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.credentials import client_options
from tiltyard.kit.jetstream import BusError
from tiltyard.kit.settings import BusSettings, DataSettings, Source, section

from .errors import UserError


@asynccontextmanager
async def connected(source: Source, user: str = "cli") -> AsyncIterator[Bus]:
    """A bus as `user`, or a UserError when none answers within three seconds."""
    log_setup.setup("cli", level="error")  # a command says what is wrong itself, and its output stays readable
    settings, data = section(source, "bus", BusSettings), section(source, "data", DataSettings)
    options = client_options(settings, data, user)
    bus: Bus | None = None
    if listening := await _somebody_listens(settings.servers):
        with anyio.move_on_after(3):
            bus = await Bus.connect(settings.servers, BlobStore(data.blob_path), user, connect_timeout=2, **options)
    if bus is None and listening:
        raise UserError(
            f"the bus at {', '.join(settings.servers)} does not take us as {user!r}: name its credentials with "
            "--set bus.credentials=DIR, or say --set bus.secure=true where `tiltyard up --secure` started it"
        )
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
