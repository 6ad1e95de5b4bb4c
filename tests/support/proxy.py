"""A TCP proxy in front of the server that can go silent, cut connections or put bytes into what the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Forwards to a port on loopback."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.flows = asyncio.Event()
        self.flows.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def inject(self, data: bytes) -> None:
        """Bytes that the client reads as if the server had sent them; between two frames when nothing is in flight."""
        for writer in self._writers[::2]:
            writer.write(data)

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self.flows.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers += [writer, server_writer]
        for pair in ((reader, server_writer), (server_reader, writer)):
            task = asyncio.create_task(self._pump(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(target: int) -> AsyncIterator[Proxy]:
    """A proxy to a port, on a port of its own."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
