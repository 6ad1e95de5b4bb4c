"""The connection under the client: pieces, ends, and peers that take nothing."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlparse

import pytest
from support.waiting import until

from tiltyard.kit import link as link_module
from tiltyard.kit.link import READ_BYTES, Link, Malformed

pytestmark = pytest.mark.anyio
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def linked(peer: Peer) -> AsyncIterator[Link]:
    """A link to a server that treats its one connection with `peer`."""
    link, writers = Link(), []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await peer(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await link.connect(urlparse(f"nats://127.0.0.1:{port}"), 0, 5)
    try:
        yield link
    finally:
        link.close()
        await link.wait_closed()
        for writer in writers:
            writer.close()
        server.close()


async def test_lines_first_then_pieces_in_order() -> None:
    """Lines are read while connecting; what came behind them is fed first, and then everything as it comes."""
    size = 5 * READ_BYTES + 3

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\nPONG\r\nearly")
        await reader.readexactly(2)
        writer.write(b"x" * size)
        await writer.drain()

    async with linked(peer) as link:
        assert await link.readline() == b"INFO {}\r\n"
        assert await link.readline() == b"PONG\r\n"
        taken = bytearray()
        link.hand_to(lambda piece: taken.extend(piece) or False)  # type: ignore[func-returns-value]
        link.write(b"go")
        await until(lambda: len(taken) == size + 5, 5)
        assert taken == b"early" + b"x" * size


async def test_the_end_is_told_after_what_came_before_it() -> None:
    """The reader is woken for its last work, then hears of the end; a line that was cut off is what there is of it."""

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n-ERR 'bye'\r\n")
        writer.close()

    async with linked(peer) as link:
        await link.readline()
        await until(lambda: link._open().ended, 5)
        taken: list[bytes] = []
        link.hand_to(lambda piece: taken.append(piece) or True)  # type: ignore[func-returns-value]
        assert taken == [b"-ERR 'bye'\r\n"]
        assert not link.at_eof()
        assert await link.read(0) == b""
        assert link.at_eof()

    async with linked(peer) as link:
        await link.readline()
        await link.readline()
        assert await link.readline() == b""


async def test_an_error_of_the_feed_ends_reading() -> None:
    """What the parser refuses is raised where the connection is read, and nothing more is fed."""

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"nonsense")

    def feed(piece: bytes) -> bool:
        if piece:
            raise Malformed("no protocol")
        return False

    async with linked(peer) as link:
        link.hand_to(feed)
        await link.read(0)
        with pytest.raises(Malformed, match="no protocol"):
            await link.read(0)
        assert link._open().feed is None


async def test_closing_doesnt_wait_for_a_peer_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server with a full socket holds up a reconnect for a moment only."""
    monkeypatch.setattr(link_module, "CLOSE_S", 0.2)

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()

    async with linked(peer) as link:
        link.write(b"x" * (64 << 20))
        before = time.monotonic()
        link.close()
        await link.wait_closed()
        assert time.monotonic() - before < 2
        await until(link._open().closed.is_set, 5)


async def test_plain_text_after_the_start_of_tls_is_refused() -> None:
    """What somebody slipped in before encryption began is not taken for the server's."""

    async def peer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"tls_required":true}\r\nMSG slipped.in 1 1\r\nx\r\n')

    async with linked(peer) as link:
        await link.readline()
        await until(lambda: bool(link._open().early), 5)
        with pytest.raises(Malformed, match="in the clear"):
            await link.connect_tls("localhost", ssl.create_default_context(), 0, 1)
