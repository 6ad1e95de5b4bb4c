"""One TCP connection to a server, over TLS when asked: what arrives goes straight from the socket to the parser.

asyncio's streams copy everything that arrives twice, shift what is left after every read and take a turn of the event
loop for it; at small messages that costs more than parsing them. Here the event loop reads into one buffer that is
small enough to stay in the processor's cache, and a function is called with each piece at once (`hand_to`).
Invariants: pieces come in order and none is lost; what had arrived before the connection broke is handed on before the
break is told; an error of the function ends reading and is raised by `read`; closing ends within `CLOSE_S` though the
peer takes nothing any more. Left out: reconnecting and the protocol (`wire`), WebSocket (nats-py's own transport).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import ParseResult

from nats.aio.transport import Transport
from nats.errors import ProtocolError

READ_BYTES = 64 << 10
MAX_LINE = 1 << 20
"""Longest line that is waited for while connecting."""
CLOSE_S = 2.0
Feed = Callable[[bytes], bool]
"""Takes a piece of what arrived; True when the reader has something to do about it."""


class Malformed(ProtocolError):  # type: ignore[misc]
    """What arrived is no protocol; nats-py's class says nothing but that."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class _Arrivals(asyncio.BufferedProtocol):
    """Both directions of one connection, as the event loop tells of them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.feed: Feed | None = None
        self.early = b""
        """What arrived before there was somebody to feed."""
        self.ended = False
        self.error: Exception | None = None
        self.closed = asyncio.Event()
        self.news = asyncio.Event()
        """Something arrived early, the reader has something to do, or the connection has ended."""
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.take(bytes(self._buffer[:nbytes]))

    def take(self, piece: bytes) -> None:
        """A piece has arrived."""
        if self.feed is None:
            self.early += piece
            self.news.set()
            return
        try:
            if self.feed(piece):
                self.news.set()
        except ProtocolError as error:
            self.end(error)

    def end(self, error: Exception | None) -> None:
        """Nothing more will arrive."""
        self.feed, self.ended, self.error = None, True, self.error or error
        self.news.set()

    def eof_received(self) -> bool:
        self.end(None)
        return False  # nothing is left to say to a server that has ended: the transport closes

    def connection_lost(self, error: Exception | None) -> None:
        self.end(error)
        self._may_write.set()
        self.closed.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def line(self) -> bytes:
        """A line with its end; what there is when the connection ends before."""
        while b"\n" not in self.early and not self.ended:
            if len(self.early) > MAX_LINE:
                raise Malformed("a line without an end")
            self.news.clear()
            await self.news.wait()
        end = self.early.find(b"\n") + 1 or len(self.early)
        line, self.early = self.early[:end], self.early[end:]
        return line

    async def drained(self) -> None:
        """Until the peer has taken enough to go on writing."""
        await self._may_write.wait()
        if self.closed.is_set():
            raise ConnectionResetError("the connection is lost")


class Link(Transport):  # type: ignore[misc]
    """The connection of one client; `connect` may be called again for the next."""

    def __init__(self) -> None:
        self._now: _Arrivals | None = None

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: float) -> None:
        self.close()
        host, port = uri.hostname, uri.port
        assert host is not None, "nats-py has checked it"
        assert port is not None, "nats-py has filled it in"
        arrivals = _Arrivals()
        made = asyncio.get_running_loop().create_connection(lambda: arrivals, host, port)
        try:
            await asyncio.wait_for(made, connect_timeout)
            self._now = arrivals
        finally:
            if self._now is not arrivals and arrivals.transport is not None:
                arrivals.transport.abort()  # cancelled in the moment in which it was made

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: float
    ) -> None:
        """Go on over TLS on the connection that there is."""
        bare, way, secured = self._open(), self._way(), _Arrivals()
        if bare.early:
            raise Malformed("the server went on in the clear after it had asked for TLS")
        name = uri if isinstance(uri, str) else uri.hostname
        made = asyncio.get_running_loop().start_tls(way, secured, ssl_context, server_hostname=name)
        try:
            secured.transport = await asyncio.wait_for(made, connect_timeout)
            self._now = secured
        finally:
            if secured.transport is None:  # the event loop took the transport from `bare` and tells it nothing more
                way.abort()
                bare.closed.set()

    def _open(self) -> _Arrivals:
        if self._now is None:
            raise ConnectionError("not connected")
        return self._now

    def _way(self) -> asyncio.Transport:
        transport = self._open().transport
        if transport is None:
            raise ConnectionError("not connected")
        return transport

    def write(self, payload: bytes) -> None:
        """Send; what is written after the end is dropped, for the reader is told of the end."""
        way = self._way()
        if not way.is_closing():
            way.write(payload)

    def writelines(self, payload: list[bytes]) -> None:
        way = self._way()
        if not way.is_closing():
            way.writelines(payload)

    def hand_to(self, feed: Feed) -> None:
        """From now on every piece goes to `feed` as it arrives, beginning with what has come already."""
        now = self._open()
        early, now.early, now.feed = now.early, b"", feed
        now.take(early)
        if now.ended:
            now.feed = None

    async def read(self, buffer_size: int) -> bytes:
        """Returns nothing, when `feed` has something to be done and at the end; the error that ended it is raised."""
        now = self._open()
        if now.error is not None and not now.news.is_set():
            raise now.error
        await now.news.wait()
        now.news.clear()
        return b""

    async def readline(self) -> bytes:
        return await self._open().line()

    async def drain(self) -> None:
        await self._open().drained()

    def close(self) -> None:
        if self._now is not None and self._now.transport is not None:
            self._now.feed = None
            self._now.transport.close()

    async def wait_closed(self) -> None:
        """Until what was written has left, at most `CLOSE_S`."""
        if self._now is None or self._now.transport is None:
            return
        try:
            await asyncio.wait_for(self._now.closed.wait(), CLOSE_S)
        except TimeoutError:
            self._now.transport.abort()

    def at_eof(self) -> bool:
        """Has it ended in order, and the reader been told? What broke it is raised by `read`."""
        now = self._now
        return now is None or (now.ended and now.error is None and not now.news.is_set())

    def __bool__(self) -> bool:
        return True
