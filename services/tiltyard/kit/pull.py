"""The pull loop: pull requests of one consumer, topped up to the free slots.

Invariants: never more messages in hand and on their way than slots were free when asking (plus what a lost pull may
still deliver); no pull brings more than `MAX_BYTES`; every pull has a heartbeat; a pull whose heartbeat stays away,
or that a reconnect cut off, is asked again at once. Waiting ends at once when the caller is cancelled, and no message
is lost by that. Stopping removes the interest first, so that the server forgets the pulls and nothing is left waiting
for its lease to end. What a consumer sends without expecting an answer is never sent again, so `Ordered` says when
something is missing.
Left out: choosing between consumers (`fair`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from .delivery import Delivery
from .errors import BusUnavailable, Forbidden, NotFound
from .frames import parse_headers
from .jetstream import API, MAX_MESSAGE, JetStream
from .wire import NotConnected

EXPIRES_S = 5.0
HEARTBEAT_S = 1.0
MAX_BYTES = 8 << 20


def byte_limit(batch: int) -> bytes:
    """What a pull of `batch` messages says about its bytes: nothing where they can't be too many, since the server
    ends each pull that says something with a message of its own."""
    return b',"max_bytes":%d' % MAX_BYTES if batch * MAX_MESSAGE >= MAX_BYTES else b""


class Puller:
    """Messages of one consumer, as many at a time as asked for."""

    def __init__(self, js: JetStream, stream: str, consumer: str) -> None:
        self._js = js
        self._endpoint = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._buffer: deque[Delivery] = deque()
        self._inbox = js.client.new_inbox()
        self._serial = 0
        self._pulls: dict[bytes, int] = {}
        """Messages still to come when `_settle` looked last, by pull; the server serves them in order."""
        self._arrived = 0
        """Messages that have come since."""
        self._held = 0
        """Messages in hand and on their way."""
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

    def waiting(self) -> Iterable[Delivery]:
        """Messages in hand that nobody has taken."""
        return self._buffer

    # ------------------------------------------------------------ what the server says

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        if reply.startswith(b"$JS.ACK."):
            self._buffer.append(Delivery(subject, reply, headers, body))
            self._arrived += 1
            if self._waiter is not None:
                self._wake()
            return
        self._seen = time.monotonic()
        status = parse_headers(headers)
        if status.get("Status") == "100":  # heartbeat
            return
        self._settle()
        self._held -= self._pulls.pop(subject, 0)
        if not self._pulls:
            self._held = len(self._buffer)
        if status.get("Status") == "503" or "Deleted" in status.get("Description", ""):
            self._lost = True
        self._wake()

    def _settle(self) -> None:
        """Count what has arrived against the oldest pulls."""
        arrived, self._arrived = self._arrived, 0
        if arrived:
            self._seen = time.monotonic()
        for pull, left in list(self._pulls.items()):
            if left > arrived:
                self._pulls[pull] = left - arrived
                return
            del self._pulls[pull]
            arrived -= left
        self._held += arrived  # of a pull that was given up

    def _on_lost(self) -> None:
        self._forget()
        self._wake()

    def _on_refusal(self, text: str) -> None:
        if f'"{self._endpoint}"' in text:
            self._refused = True
            self._wake()

    def _forget(self) -> None:
        self._pulls.clear()
        self._arrived, self._held = 0, len(self._buffer)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # ------------------------------------------------------------ asking

    def _ask(self, batch: int) -> None:
        self._serial += 1
        reply = f"{self._inbox}.{self._serial}".encode()
        request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d%b}' % (
            batch,
            EXPIRES_S * 1e9,
            HEARTBEAT_S * 1e9,
            byte_limit(batch),
        )
        try:
            self._js.client.send(b"PUB %b %b %d\r\n%b\r\n" % (self._endpoint.encode(), reply, len(request), request))
        except NotConnected as error:
            raise BusUnavailable("not connected") from error
        self._pulls[reply] = batch
        self._held += batch
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
        self._settle()
        if self._pulls and time.monotonic() - self._seen > 2.5 * HEARTBEAT_S:
            self._forget()  # a pull that is still alive is answered with a heartbeat every second
        if free > self._held and self._held * 2 <= free:
            self._ask(free - self._held)

    def take(self, free: int) -> Delivery | None:
        """A message in hand, None when there is none: `next` without waiting."""
        if not self._buffer:
            return None
        if self._held * 2 <= free and self._js.client.is_connected and not self._lost:
            self._top_up(free)
        self._held -= 1
        return self._buffer.popleft()

    async def next(self, free: int) -> Delivery | None:
        """The next message; None when there was none within about a second. `free` slots bound what is pulled.

        Raises NotFound when the consumer is gone, BusUnavailable while the server is away, Forbidden when the server's
        permissions refuse the pull.
        """
        if self._buffer:
            return self.take(free)
        self._top_up(max(1, free))
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(HEARTBEAT_S, self._wake)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        if not self._buffer:
            return None
        self._held -= 1
        return self._buffer.popleft()

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


class Ordered(Puller):
    """Messages of a consumer that nobody answers. It never sends again what was on its way when a connection broke,
    here or between two servers: then BusUnavailable, and a new consumer must begin after the last message."""

    def __init__(self, js: JetStream, stream: str, consumer: str) -> None:
        super().__init__(js, stream, consumer)
        self._broken = False
        """Was the connection lost? What is in hand came before that."""
        self._place = 0

    def _on_lost(self) -> None:
        self._broken = True
        super()._on_lost()

    async def next(self, free: int) -> Delivery | None:
        if self._broken and not self._buffer:
            raise BusUnavailable("the connection was lost meanwhile, and perhaps what was on its way")
        return await super().next(free)

    def check(self, delivery: Delivery) -> None:
        """BusUnavailable unless `delivery` is the one that comes after the last that was checked."""
        if place := delivery.told.place:
            self._place += 1
            if place != self._place:
                raise BusUnavailable(f"delivery {place} came as the {self._place}th: something was lost on its way")
