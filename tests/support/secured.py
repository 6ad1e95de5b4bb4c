"""A secured server for tests: real keys, real certificates, one user per service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from nats.aio.client import Client

from tiltyard.kit import credentials
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port, start_server
from tiltyard_proto import permissions


class Secured:
    """A server that knows the users of a credentials directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "credentials"
        credentials.make(self.directory)
        self.port = free_port()
        self.process = start_server(root / "nats", port=self.port, security=credentials.security(self.directory))

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def config(self) -> Path:
        return self.root / "nats" / "nats-server.conf"

    @property
    def log(self) -> str:
        return (self.root / "nats" / "nats-server.log").read_text(errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    @asynccontextmanager
    async def bus(self, user: str) -> AsyncIterator[Bus]:
        """The bus as a user's process sees it."""
        options = credentials.options_in(self.directory, user)
        bus = await Bus.connect(self.url, BlobStore(self.root / "blobs"), user, **options)
        try:
            yield bus
        finally:
            await bus.close()


class Attempts:
    """A bare connection of one user that notes what the server refuses."""

    def __init__(self, client: Client, refusals: list[str]) -> None:
        self.client = client
        self.refusals = refusals

    async def publish(self, subjects: list[str], body: bytes = b"{}") -> list[str]:
        """Publish to every subject; those that the server did not refuse."""
        for subject in subjects:
            await self.client.publish(subject, body, reply=f"{self.client._inbox_prefix.decode()}.attempt")
        return await self._unrefused("publish", subjects)

    async def subscribe(self, subjects: list[str]) -> list[str]:
        """Subscribe to every subject; those that the server did not refuse."""
        for subject in subjects:
            await self.client.subscribe(subject)
        return await self._unrefused("subscription", subjects)

    async def _unrefused(self, what: str, subjects: list[str]) -> list[str]:
        """Those that the server has not refused within two seconds after it has seen them all."""
        await self.client.flush()
        left = subjects
        with anyio.move_on_after(2):
            while left := [subject for subject in left if not self._refused(what, subject)]:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        return left

    def _refused(self, what: str, subject: str) -> bool:
        wanted = f'permissions violation for {what} to "{subject}"'.lower()
        return any(wanted in refusal.lower() for refusal in self.refusals)


@asynccontextmanager
async def bare(server: Secured, user: str, **options: Any) -> AsyncIterator[Attempts]:
    """A connection with nothing of ours around it; the first failure to connect is raised."""
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error))

    options = credentials.options_in(server.directory, user) | options
    async with connection(server.url, inbox_prefix=permissions.inbox(user), error_cb=note, **options) as client:
        yield Attempts(client, refusals)


@asynccontextmanager
async def connection(url: str, *, connect_timeout: float = 10, **options: Any) -> AsyncIterator[Client]:
    """The library's own client; closed whether it got in or not."""

    async def quiet(_: Exception) -> None:
        """What keeps it out is raised as well."""

    client = Client()
    try:
        await client.connect(
            url, allow_reconnect=False, connect_timeout=connect_timeout, **({"error_cb": quiet} | options)
        )
        yield client
    finally:
        if client.is_connected:
            await client.close()
        if client._transport is not None:  # a client that never got in leaves it open
            client._transport.close()
            for writer in (client._transport._io_writer, client._transport._bare_io_writer):
                if writer is not None:
                    writer.transport.abort()
