"""A TCP proxy before the server that cuts a client off after its k-th publish, as if its process were killed there.

It counts PUB and HPUB frames that change something (messages, records, acknowledgements). After the k-th was passed on,
nothing passes any more in either direction and new connections are refused: what the client had sent has happened, the
answer has not arrived, and nothing the client does while it is being torn down (such as handing messages back) leaves
it. Invariant: independent of how the client library makes its frames.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class Cutter:
    """Where a service connects; see the module. `k` None: never cut."""

    def __init__(self, port: int, k: int | None) -> None:
        self.server_port = port
        self.k = k
        self.published = 0
        self.subjects: list[str] = []
        self.cut = anyio.Event()
        self.port = 0
        self.server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, as `asyncio.start_server` hands it over."""
        self._writers.add(writer)
        if self.cut.is_set():
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._client(reader, writer))
        self._tasks.add(task)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.server_port, limit=1 << 22)
        self._writers.add(up_writer)
        self._tasks.add(asyncio.ensure_future(self._down(up_reader, writer)))
        try:
            await self._up(reader, up_writer)
        except (OSError, asyncio.IncompleteReadError):
            pass

    async def close(self) -> None:
        """End every connection and task."""
        self.cut.set()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass frames on, one at a time."""
        while line := await reader.readline():
            words = line.split()
            verb = words[0].upper() if words else b""
            body = await reader.readexactly(int(words[-1]) + 2) if verb in (b"PUB", b"HPUB") else b""
            writer.write(line + body)
            if body and not words[1].startswith(b"$JS.API."):
                self.published += 1
                self.subjects.append(words[1].decode())
                if self.k is not None and self.published >= self.k:
                    await writer.drain()
                    await self._kill()
                    return

    async def _kill(self) -> None:
        self.cut.set()
        if self.server is not None:
            self.server.close()
        for writer in self._writers:
            writer.close()  # what was passed on is sent first


@asynccontextmanager
async def cutting(server_port: int, k: int | None) -> AsyncIterator[Cutter]:
    """A proxy on a free port while the block runs."""
    cutter = Cutter(server_port, k)
    server = cutter.server = await asyncio.start_server(cutter.accept, "127.0.0.1", 0, limit=1 << 22)
    cutter.port = server.sockets[0].getsockname()[1]
    try:
        yield cutter
    finally:
        server.close()
        with anyio.CancelScope(shield=True):
            await cutter.close()
            await server.wait_closed()
