"""The pull loop: pull requests of one consumer, topped up to the free slots.

Invariants: never more messages in hand and on their way than slots were free when asking (plus what a lost pull may
still deliver); every pull has a byte limit and a heartbeat; a pull whose heartbeat stays away, or that a reconnect cut
off, is asked again at once. Waiting ends at once when the caller is cancelled, and no message is lost by that.
Stopping removes the interest first, so that the server forgets the pulls and nothing is left waiting for its lease to
end. Left out: choosing between consumers (`fair`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import msgspec

from .errors import BusUnavailable, Forbidden, NotFound
from .jetstream import API, JetStream
from .wire import NotConnected, parse_headers

EXPIRES_S = 5.0
HEARTBEAT_S = 1.0
MAX_BYTES = 8 << 20


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One delivered message and what the server says about it."""

    subject: str
    body: bytes
    headers: dict[str, str]
    reply: str
    stream: str
    sequence: int
    deliveries: int
    stored: float
    """When the stream took it, seconds since the epoch."""
    pending: int
    consumer: str = ""


def parse_delivery(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> Delivery:
    """Read the acknowledgement subject.

    `$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<sequence>.<consumer sequence>.<ns>.<pending>[.<x>]`
    """
    text = reply.decode()
    parts = text.split(".")
    offset = 2 if len(parts) == 9 else 4
    stream, consumer, deliveries, sequence, _cseq, ns, pending = parts[offset : offset + 7]
    return Delivery(
        subject.decode(),
        body,
        parse_headers(headers),
        text,
        stream,
        int(sequence),
        int(deliveries),
        int(ns) / 1e9,
        int(pending),
        consumer,
    )


class Puller:
    """Messages of one consumer, as many at a time as asked for."""

    def __init__(self, js: JetStream, stream: str, consumer: str) -> None:
        self._js = js
        self._endpoint = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._buffer: deque[Delivery] = deque()
        self._inbox = js.client.new_inbox()
        self._serial = 0
        self._pulls: dict[bytes, int] = {}
        """Messages still to come, by pull; the server serves them in order."""
        self._coming = 0
        self._seen = 0.0
        self._lost = False
        self._refused = False
        self._waiter: asyncio.Future[None] | None = None
        self._subscription: Any = None

    async def start(self, _tasks: Any = None) -> None:
        """Subscribe; nothing is pulled yet."""
        self._subscription = await self._js.client.tap(f"{self._inbox}.*", self._on_message)
        self._js.client.lost.append(self._on_lost)
        self._js.client.refusals.append(self._on_refusal)

    def may_be_done(self, delivery: Delivery) -> bool:
        """Could somebody have finished this message already?"""
        return delivery.deliveries > 1

    # ------------------------------------------------------------ what the server says

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        self._seen = time.monotonic()
        if reply.startswith(b"$JS.ACK."):
            self._count()
            self._buffer.append(parse_delivery(subject, reply, headers, body))
            self._wake()
            return
        status = parse_headers(headers)
        if status.get("Status") == "100":  # heartbeat
            return
        self._coming -= self._pulls.pop(subject, 0)
        if not self._pulls:
            self._coming = 0
        if status.get("Status") == "503" or "Deleted" in status.get("Description", ""):
            self._lost = True
        self._wake()

    def _count(self) -> None:
        for pull, left in self._pulls.items():
            self._coming -= 1
            if left > 1:
                self._pulls[pull] = left - 1
            else:
                del self._pulls[pull]
            return

    def _on_lost(self) -> None:
        self._forget()
        self._wake()

    def _on_refusal(self, text: str) -> None:
        if f'"{self._endpoint}"' in text:
            self._refused = True
            self._wake()

    def _forget(self) -> None:
        self._pulls.clear()
        self._coming = 0

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ asking

    def _ask(self, batch: int) -> None:
        self._serial += 1
        reply = f"{self._inbox}.{self._serial}".encode()
        request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d,"max_bytes":%d}' % (
            batch,
            EXPIRES_S * 1e9,
            HEARTBEAT_S * 1e9,
            MAX_BYTES,
        )
        try:
            self._js.client.send(b"PUB %b %b %d\r\n%b\r\n" % (self._endpoint.encode(), reply, len(request), request))
        except NotConnected as error:
            raise BusUnavailable("not connected") from error
        self._pulls[reply] = batch
        self._coming += batch
        self._seen = time.monotonic()

    def _top_up(self, free: int) -> None:
        """Ask for what `free` slots can take beyond what is in hand and coming."""
        if not self._js.client.is_connected:
            raise BusUnavailable("not connected")
        if self._refused:
            self._refused = False
            self._forget()
            raise Forbidden(f"{self._endpoint}: this user may not pull here")
        if self._lost:
            self._lost = False
            self._forget()
            raise NotFound(f"{self._endpoint}: the consumer is gone")
        if self._coming and time.monotonic() - self._seen > 2.5 * HEARTBEAT_S:
            self._forget()  # a pull that is still alive is answered with a heartbeat every second
        held = len(self._buffer) + self._coming
        if free > held and held * 2 <= free:
            self._ask(free - held)

    async def next(self, free: int) -> Delivery | None:
        """The next message; None when there was none within about a second. `free` slots bound what is pulled.

        Raises NotFound when the consumer is gone, BusUnavailable while the server is away, Forbidden when the server's
        permissions refuse the pull.
        """
        if self._buffer:
            if (len(self._buffer) + self._coming) * 2 <= free and self._js.client.is_connected and not self._lost:
                self._top_up(free)
            return self._buffer.popleft()
        self._top_up(max(1, free))
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(HEARTBEAT_S, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        return self._buffer.popleft() if self._buffer else None

    async def stop(self) -> list[Delivery]:
        """Withdraw interest; the messages that were in hand and not taken."""
        if self._subscription is not None:
            self._js.client.lost.remove(self._on_lost)
            self._js.client.refusals.remove(self._on_refusal)
            await self._js.client.untap(self._subscription)
            self._subscription = None
        left = list(self._buffer)
        self._buffer.clear()
        return left
