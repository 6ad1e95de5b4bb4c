"""The few calls of Docker's Engine API that sandboxes need, over its Unix socket.

Invariants: what the daemon refuses is `DockerError` with its own words; the bytes of an attached container are read
only as they are asked for, so a flood inside can't fill this process. Left out: everything to do with networks,
builds and registries.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp

from .backend import SandboxLost
from .channel import Channel, split

API = "/v1.41"
"""Docker 20.10 and later."""
HEADER = 8
"""Bytes before each piece of output: which stream, and how long."""
PIECE = 1 << 20
STDOUT = 1


class DockerError(RuntimeError):
    """The daemon refused, or can't be reached."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class Docker:
    """One daemon."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def call(self, method: str, path: str, body: Any = None, *, within_s: float = 60.0, **query: str) -> Any:
        """One request; its JSON, or None for an empty answer. `body`: JSON, or a stream of bytes (a tar)."""
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=self.socket, limit=0))
        stream = isinstance(body, AsyncIterator)
        options: dict[str, Any] = {"data": body} if stream else {"json": body} if body is not None else {}
        if stream:
            options["headers"] = {"Content-Type": "application/x-tar"}
        try:
            async with self._session.request(
                method,
                f"http://docker{API}{path}",
                params=query,
                timeout=aiohttp.ClientTimeout(total=within_s),
                **options,
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DockerError(0, f"no Docker daemon at {self.socket}: {error or type(error).__name__}") from error
        if answer.status >= 400:
            raise DockerError(answer.status, _message(text))
        return json.loads(text) if text.strip() and answer.content_type == "application/json" else None

    async def attach(self, container: str, max_frame: int, ended: Callable[[], Awaitable[None]]) -> Channel:
        """A channel over the stdin and stdout of a container. `ended` is awaited when the output has ended."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.socket, limit=PIECE)
        except OSError as error:
            raise DockerError(0, f"no Docker daemon at {self.socket}: {error.strerror}") from error
        path = f"{API}/containers/{container}/attach?stream=1&stdin=1&stdout=1"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
        )
        channel = Attached(reader, writer, max_frame, ended)
        try:
            writer.write(head.encode())
            status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode("ascii", "replace")
            if not status.startswith(("HTTP/1.1 101", "HTTP/1.1 200")):
                raise DockerError(0, f"attach: {status}")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            channel.close()
            raise DockerError(0, f"attach: {error}") from error
        except BaseException:
            channel.close()
            raise
        return channel

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class Attached(Channel):
    """See `Channel`. The output comes in pieces that name their stream."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        max_frame: int,
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        self._pieces, self._sink, self._limit, self._when_ended = reader, writer, max_frame, ended
        self._stdout = bytearray()
        super().__init__(reader, writer, writer.transport, max_frame)  # type: ignore[arg-type]

    async def receive(self) -> list[bytes]:
        try:
            size = int.from_bytes(await self._take(4), "big")
            if size > self._limit:
                raise SandboxLost(f"the agent announced {size} bytes")
            return split(await self._take(size))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self._when_ended()
            raise SandboxLost("the sandbox is gone") from error

    async def _take(self, size: int) -> bytes:
        """The next `size` bytes of stdout."""
        while len(self._stdout) < size:
            header = await self._pieces.readexactly(HEADER)
            length = int.from_bytes(header[4:], "big")
            if length > PIECE:
                raise SandboxLost("Docker announced a piece of output that is too long")
            data = await self._pieces.readexactly(length)
            if header[0] == STDOUT:
                self._stdout += data
        found = bytes(self._stdout[:size])
        del self._stdout[:size]
        return found


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"]).strip().split("\n")[0][:400]
    except (ValueError, KeyError, TypeError):
        return text.strip()[:400]
