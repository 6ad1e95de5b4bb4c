"""The connection: nats-py's core client with a parser, a writer and a read loop of our own.

nats-py connects, authenticates, reconnects and replays subscriptions. Replaced is what costs or hurts: its parser
(two regular expressions and a task switch per message), its flush per publish, its lower-casing of permission errors,
and a read loop that ends without telling when a callback raises. A subscription may be *tapped*: its messages go to a
plain function inside the read loop, without a queue that could overflow.
Invariants: frames leave in the order they were sent, all frames of one turn of the event loop in one write; nothing is
sent while disconnected; a tap or a callback that raises never ends the connection; listeners hear of every loss and
every return of the connection, and `closed` is set when it has ended for good.
Left out: what is asked and answered (`replies`, `jetstream`). It leans on names of nats-py's client that are private;
the tests of this module's edges fail when a release changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import Error, ProtocolError, UnexpectedEOF
from nats.protocol.parser import Parser

from .errors import BusUnavailable

Tap = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply subject, raw headers (empty when there are none) and body."""
log = structlog.get_logger()
MAX_LINE = 64 << 10
READ_BYTES = 32 << 10
"""Read at a time: pieces that stay in the processor's cache, and under the size that malloc maps anew each time."""


class NotConnected(BusUnavailable):
    """The frame was not sent: there is no connection."""


class ReadEnded(ConnectionError):
    """The read loop ended though the connection stands."""


class WireParser(Parser):  # type: ignore[misc]
    """Splits what the server sends into messages; a message that isn't whole yet waits for the rest."""

    def reset(self) -> None:
        super().reset()
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0

    async def parse(self, data: bytes = b"") -> None:
        self._chunks.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        chunks = self._chunks
        whole = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        used, missing = await self._consume(whole)
        if self._chunks is chunks:  # else a lost connection reset the parser meanwhile
            rest = whole[used:]
            self._chunks, self._have = ([rest], len(rest)) if rest else ([], 0)
            self._need = self._have + missing

    async def _consume(self, data: bytes) -> tuple[int, int]:
        """How many bytes were used, and how many are missing at least before going on makes sense."""
        client, at, size = self.nc, 0, len(data)
        taps = client.taps
        while True:
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                if size - at > MAX_LINE:
                    raise ProtocolError("a control line without an end")
                return at, 1
            kind = data[at]
            if kind != 77 and kind != 72:  # neither MSG nor HMSG
                await self._control(data[at:line_end])
                at = line_end + 2
                continue
            words = data[at:line_end].split()
            start = line_end + 2
            try:
                end = start + int(words[-1])
                body_start = start + int(words[-2]) if kind == 72 else start
                reply = words[3] if len(words) == (6 if kind == 72 else 5) else b""
                sid = int(words[2])
            except (ValueError, IndexError) as error:
                raise ProtocolError(f"malformed control line {data[at:line_end][:40]!r}") from error
            if end + 2 > size:
                return at, end + 2 - size
            at = end + 2
            tap = taps.get(sid)
            if tap is None:
                headers = data[start:body_start] or None
                await client._process_msg(sid, words[1], reply, data[body_start:end], headers)
                continue
            try:
                tap(words[1], reply, data[start:body_start], data[body_start:end])
            except Exception as error:  # a tap's mistake must not end the connection
                log.error("tap_failed", subject=words[1].decode(errors="replace"), exc_info=error)

    async def _control(self, line: bytes) -> None:
        client = self.nc
        if line.startswith(b"PING"):
            await client._process_ping()
        elif line.startswith(b"PONG"):
            await client._process_pong()
        elif line.startswith(b"INFO "):
            await client._process_info(msgspec.json.decode(line[5:]))
        elif line.startswith(b"-ERR"):
            text = line[5:].decode(errors="replace").strip().strip("'")
            client.refused(text)
            await client._process_err(text.lower())
        elif not line.startswith(b"+OK"):
            raise ProtocolError(f"unknown control line {line[:40]!r}")


class WireClient(Client):  # type: ignore[misc]
    """One connection to the servers."""

    def __init__(self) -> None:
        super().__init__()
        self._ps = WireParser(self)
        self._scheduled = False
        self._pending: list[bytes] = []
        self._pending_data_size = 0
        self.taps: dict[int, Tap] = {}
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
        if self._status != Client.CONNECTED:
            raise NotConnected("not connected to a server")
        self._pending.append(frame)
        self._pending_data_size += len(frame)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write_pending)

    def _write_pending(self) -> None:
        self._scheduled = False
        if self._status != Client.CONNECTED or not self._pending:
            return  # what was queued when the connection broke is dropped by `_attempt_reconnect`
        frames, self._pending, self._pending_data_size = self._pending, [], 0
        try:
            self._transport.writelines(frames)
        except RuntimeError as error:  # uvloop: the transport has closed, and the read loop will tell in a moment
            log.debug("written_to_a_closed_connection", error=str(error))

    def say(self, subject: str, body: bytes) -> None:
        """Publish without headers and without an answer; NotConnected while there is no connection."""
        self.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(body), body))

    async def tap(self, subject: str, tap: Tap) -> Any:
        """Subscribe `tap` to a subject; the subscription, for `untap`. NotConnected when the connection is closed."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            subscription = await self.subscribe(subject, future=never)
        except Error as error:
            raise NotConnected(f"{subject}: {error}") from error
        self.taps[subscription._id] = tap
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
            self.taps.pop(subscription._id, None)

    # ------------------------------------------------------------ losing and regaining the connection

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
        if self._status == Client.CONNECTED:
            _tell(self.regained)

    async def force_reconnect(self) -> None:
        await super().force_reconnect()
        _tell(self.lost)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        finally:
            _tell(self.lost)
            self.closed.set()

    async def _read_loop(self) -> None:
        """Read until the connection is lost; however reading ends, a new connection follows."""
        transport = self._transport
        try:
            while self._status == Client.CONNECTED and not transport.at_eof():
                await self._ps.parse(await transport.read(READ_BYTES))
            error: Exception = UnexpectedEOF()
        except asyncio.CancelledError:
            return
        except (OSError, ProtocolError) as broken:
            error = broken
        except Exception as mistake:  # a callback of nats-py's raised; it would leave us deaf and call us connected
            log.error("callback_failed", exc_info=mistake)
            error = ReadEnded("a callback raised")
        if self._status == Client.CONNECTED:
            log.warning("connection_lost", error=str(error) or type(error).__name__)
            await self._process_op_err(error)


def _tell(listeners: list[Callable[..., None]], *arguments: str) -> None:
    for listener in list(listeners):
        try:
            listener(*arguments)
        except Exception as error:  # one listener's mistake must neither end the connection nor deafen the others
            log.error("listener_failed", exc_info=error)


def parse_headers(raw: bytes) -> dict[str, str]:
    """Headers as sent; an inline status becomes `Status` and `Description`."""
    if not raw:
        return {}
    found: dict[str, str] = {}
    if raw.startswith(b"NATS/1.0\r\n"):  # no status: nearly always, and on the path of every message
        try:
            for line in raw[10:-4].decode().split("\r\n"):
                name, value = line.split(": ", 1)
                found[name] = value
            return found
        except ValueError:  # an unusual header, or none
            found.clear()
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    if len(first) > 8:  # NATS/1.0 404 No Messages
        found["Status"], _, description = first[8:].strip().partition(" ")
        if description:
            found["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found
