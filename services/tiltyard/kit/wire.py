"""The connection: nats-py's core client with a transport, a parser, a writer and a read loop of our own.

nats-py connects, authenticates, reconnects and replays subscriptions. Replaced is what costs or hurts: its streams
(`link`), its parser (`frames`), its flush per publish, its lower-casing of permission errors, and a read loop that ends
without telling when a callback raises. A subscription may be *tapped*: its messages go to a plain function as they
arrive, without a queue that could overflow.
Invariants: frames leave in the order they were sent, all frames of one turn of the event loop in one write; what
nobody waits for, the answers to deliveries, lingers a moment for a write to join; nothing is sent while disconnected;
a tap or a callback that raises never ends the connection; listeners hear of every loss and every return of the
connection, and `closed` is set when it has ended for good.
Left out: what is asked and answered (`replies`, `jetstream`). It leans on names of nats-py's client that are private;
the tests of this module's edges fail when a release changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from nats.aio.client import Client
from nats.errors import Error, ProtocolError, UnexpectedEOF

from .errors import BusUnavailable
from .frames import Tap, WireParser
from .link import Link

CONNECTED = Client.CONNECTED
log = structlog.get_logger()
LINGER_S = 0.002
"""How long an answer to a delivery may wait for frames to leave with: a write wakes both the kernel and the server."""
JOIN_BYTES = 64 << 10
"""Frames of one turn up to so many bytes are joined: cheaper than handing them on one by one."""


class NotConnected(BusUnavailable):
    """The frame was not sent: there is no connection."""


class ReadEnded(ConnectionError):
    """The read loop ended though the connection stands."""


class WireClient(Client):  # type: ignore[misc]
    """One connection to the servers."""

    def __init__(self) -> None:
        super().__init__()
        self._transport: Any
        self._ps = WireParser(self)
        self._scheduled = self._lingers = False
        self._pending: list[bytes] = []
        self._pending_data_size = 0
        self.taps: dict[bytes, Tap] = {}
        """By subscription, as the server writes its number."""
        self.lost: list[Callable[[], None]] = []
        """Called when the connection is lost or closed."""
        self.regained: list[Callable[[], None]] = []
        """Called when it is back and subscriptions have been replayed."""
        self.refusals: list[Callable[[str], None]] = []
        """Called with the text of each error that the server reports, such as a permission violation."""
        self.closed = asyncio.Event()
        """Set when the connection has ended for good: closed here, or refused by the server."""

    # ------------------------------------------------------------ sending

    def send(self, frame: bytes) -> None:
        """Send one protocol frame with this turn's others. NotConnected while there is no connection."""
        self._add(frame)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    def _add(self, frame: bytes) -> None:
        if self._status != CONNECTED:
            raise NotConnected("not connected to a server")
        self._pending.append(frame)
        self._pending_data_size += len(frame)

    def _write_late(self) -> None:
        self._lingers = False
        self._write_pending()

    def _write_pending(self) -> None:
        self._scheduled = False
        if self._status != CONNECTED or not self._pending:
            return  # what was queued when the connection broke is dropped by `_attempt_reconnect`
        frames, size = self._pending, self._pending_data_size
        self._pending, self._pending_data_size = [], 0
        if size > JOIN_BYTES:
            self._transport.writelines(frames)
        else:
            self._transport.write(b"".join(frames))

    def say(self, subject: bytes, body: bytes) -> None:
        """Publish without headers and without an answer, with the next frames or after `LINGER_S`; NotConnected while
        there is no connection."""
        self._add(b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body))
        if not (self._scheduled or self._lingers):
            self._lingers = True
            asyncio.get_running_loop().call_later(LINGER_S, self._write_late)

    async def tap(self, subject: str, tap: Tap) -> Any:
        """Subscribe `tap` to a subject; the subscription, for `untap`. NotConnected when the connection is closed."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            subscription = await self.subscribe(subject, future=never)
        except Error as error:
            raise NotConnected(f"{subject}: {error}") from error
        self.taps[b"%d" % subscription._id] = tap
        return subscription

    async def untap(self, subscription: Any, timeout_s: float = 2.0) -> None:
        """Withdraw a tap's interest; when connected, returns once the server knows and everything sent has arrived."""
        if self.is_closed:
            return
        try:
            await subscription.unsubscribe()
            if self.is_connected:
                await self.flush(timeout=timeout_s)
        except (Error, OSError) as error:  # the connection broke meanwhile, and with it the interest
            log.debug("untap_unanswered", error=str(error))
        finally:
            self.taps.pop(b"%d" % subscription._id, None)

    # ------------------------------------------------------------ losing and regaining the connection

    async def _connect_to_server(self, s: Any) -> None:
        if not self._transport and s.uri.scheme in ("nats", "tls"):
            self._transport = Link()
        self._ps.reset()
        await super()._connect_to_server(s)

    def refused(self, text: str) -> None:
        """The server reported an error."""
        _tell(self.refusals, text)

    async def _process_op_err(self, e: Exception) -> None:
        was = self.is_connected
        await super()._process_op_err(e)
        if was and not self.is_connected:
            _tell(self.lost)

    async def _attempt_reconnect(self) -> None:
        self._pending, self._pending_data_size = [], 0  # whoever sent it has been told that it is lost
        await super()._attempt_reconnect()
        if self._status == CONNECTED:
            _tell(self.regained)

    async def force_reconnect(self) -> None:
        await super().force_reconnect()
        _tell(self.lost)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        finally:
            _tell(self.lost)
            if status == Client.CLOSED:  # else an attempt to connect has failed, and the next follows
                self.closed.set()

    def _feed(self, piece: bytes) -> bool:
        return self._status == CONNECTED and self._ps.feed(piece)

    async def _read_loop(self) -> None:
        """Read until the connection is lost; however reading ends, a new connection follows."""
        transport = self._transport
        if isinstance(transport, Link):
            transport.hand_to(self._feed)
        try:
            while self._status == CONNECTED and not transport.at_eof():
                self._ps.feed(await transport.read(0))
                await self._ps.work()
            error: Exception = UnexpectedEOF()
        except asyncio.CancelledError:
            return
        except (OSError, ProtocolError) as broken:
            error = broken
        except Exception as mistake:  # a callback of nats-py's raised; it would leave us deaf and call us connected
            log.error("callback_failed", exc_info=mistake)
            error = ReadEnded("a callback raised")
        if self._status == CONNECTED:
            log.warning("connection_lost", error=str(error) or type(error).__name__)
            await self._process_op_err(error)


def _tell(listeners: list[Callable[..., None]], *arguments: str) -> None:
    for listener in list(listeners):
        try:
            listener(*arguments)
        except Exception as error:  # one listener's mistake must neither end the connection nor deafen the others
            log.error("listener_failed", exc_info=error)
