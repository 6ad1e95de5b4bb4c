"""A follower whose connection breaks while it works on something else: what was on its way is lost, and comes again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build
from support.waiting import until

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard_proto.topology import TASK

pytestmark = pytest.mark.anyio


class Wire:
    """A way to the server that can swallow what the server says, and break."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.swallow = False
        self.swallowed = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, up_writer]
        await asyncio.gather(self._carry(reader, up_writer, False), self._carry(up_reader, writer, True))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        while data := await source.read(65536):
            if answers and self.swallow:
                self.swallowed += len(data)
            else:
                sink.write(data)
        sink.close()

    def break_off(self) -> None:
        """End every connection; the next ones are whole."""
        self.swallow = False
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def close(self) -> None:
        assert self._server is not None
        self.break_off()
        self._server.close()


@asynccontextmanager
async def through(wire: Wire, blobs: Path) -> AsyncIterator[Bus]:
    """A connection by way of `wire`."""
    far = await Bus.connect(await wire.open(), BlobStore(blobs), "follower")
    try:
        yield far
    finally:
        await far.close()
        await wire.close()


async def test_nothing_is_missing_after_a_break_that_a_busy_follower_did_not_see(
    bus: Bus, nats_server: Any, tmp_path: Path
) -> None:
    """Messages that were on their way when the connection broke come in their order, though the connection was back
    before the follower asked for the next."""
    wire = Wire(nats_server.port)
    tasks = [build.task(f"a.d{index}") for index in range(6)]
    seen = []
    with anyio.fail_after(20):
        async with through(wire, tmp_path / "blobs") as far, aclosing(far.follow_raw(TASK.stream, ">")) as follower:
            for task in tasks[:2]:
                await bus.publish(TASK, task)
                seen.append((await anext(follower)).sequence)
            wire.swallow = True
            for task in tasks[2:4]:
                await bus.publish(TASK, task)
            await until(lambda: wire.swallowed > 200, 5)
            wire.break_off()
            await until(lambda: not far.client.is_connected, 5)
            await until(lambda: far.client.is_connected, 5)
            for task in tasks[4:]:
                await bus.publish(TASK, task)
            while len(seen) < 6 and seen[-1] < 6:
                seen.append((await anext(follower)).sequence)
    assert seen == [1, 2, 3, 4, 5, 6]


async def test_what_is_missing_in_the_middle_comes_again(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """Messages that were lost without a break, as between two servers, are noticed by the next one and come before
    it."""
    wire = Wire(nats_server.port)
    positions = []
    with anyio.fail_after(20):
        async with through(wire, tmp_path / "blobs") as far, aclosing(far.follow_raw(TASK.stream, ">")) as follower:
            for index in range(5):
                wire.swallow = index in (1, 2)
                before = wire.swallowed
                await bus.publish(TASK, build.task(f"a.d{index}"))
                if wire.swallow:
                    await until(lambda since=before: wire.swallowed > since, 5)
                else:
                    positions.append((await anext(follower)).sequence)
            while positions[-1] < 5:
                positions.append((await anext(follower)).sequence)
    assert positions == [1, 2, 3, 4, 5]
