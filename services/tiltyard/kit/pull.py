"""The pull loop: one outstanding pull request per consumer, topped up to the free slots.

Invariants: never more messages in hand than slots were free when asking (plus what a lost pull may still deliver);
every pull has a byte limit and a heartbeat; a pull whose heartbeat stays away, or that a reconnect cut off, is asked
again at once. Stopping removes the interest first, so that the server forgets the pull and nothing is left waiting
for its lease to end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

import msgspec

from .jetstream import API, BusUnavailable, JetStream, NotFound

EXPIRES_S = 5.0
HEARTBEAT_S = 1.0
MAX_BYTES = 8 << 20


class Delivery(msgspec.Struct, frozen=True):
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


def parse_delivery(message: Any) -> Delivery:
    """Read the acknowledgement subject.

    `$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<sequence>.<consumer sequence>.<ns>.<pending>[.<x>]`
    """
    parts = message.reply.split(".")
    offset = 2 if len(parts) == 9 else 4
    stream, _consumer, deliveries, sequence, _cseq, ns, pending = parts[offset : offset + 7]
    return Delivery(
        subject=message.subject,
        body=message.data,
        headers=dict(message.headers or {}),
        reply=message.reply,
        stream=stream,
        sequence=int(sequence),
        deliveries=int(deliveries),
        stored=int(ns) / 1e9,
        pending=int(pending),
    )


class Puller:
    """Messages of one consumer, as many at a time as asked for."""

    def __init__(self, js: JetStream, stream: str, consumer: str) -> None:
        self._js = js
        self._endpoint = f"{API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._buffer: deque[Delivery] = deque()
        self._wake = asyncio.Event()
        self._inbox = js.client.new_inbox()
        self._serial = 0
        self._left = 0
        self._seen = 0.0
        self._lost = False
        self._connects = 0
        self._subscription: Any = None

    async def start(self) -> None:
        self._subscription = await self._js.client.subscribe(
            f"{self._inbox}.*", cb=self._on_message, pending_bytes_limit=256 << 20, pending_msgs_limit=65536
        )

    async def _on_message(self, message: Any) -> None:
        self._seen = time.monotonic()
        status = (message.headers or {}).get("Status")
        if status is None:
            self._left -= 1
            self._buffer.append(parse_delivery(message))
        elif message.subject == f"{self._inbox}.{self._serial}" and status != "100":
            self._left = 0
            self._lost = status == "503" or (status == "409" and "Deleted" in message.headers.get("Description", ""))
        self._wake.set()

    async def _ask(self, batch: int) -> None:
        self._serial += 1
        self._left = batch
        self._seen = time.monotonic()
        self._connects = self._js.client.stats["reconnects"]
        request = {
            "batch": batch,
            "expires": int(EXPIRES_S * 1e9),
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
            "max_bytes": MAX_BYTES,
        }
        await self._js.client.publish(
            self._endpoint, msgspec.json.encode(request), reply=f"{self._inbox}.{self._serial}"
        )

    def _pull_is_dead(self) -> bool:
        silent = time.monotonic() - self._seen > 2.5 * HEARTBEAT_S
        return silent or self._js.client.stats["reconnects"] != self._connects

    async def next(self, free: int) -> Delivery | None:
        """The next message; None when there was none within about a second. `free` bounds a new pull.

        Raises NotFound when the consumer is gone, BusUnavailable while the server is away.
        """
        if not self._buffer:
            if not self._js.client.is_connected:
                raise BusUnavailable("not connected")
            if self._lost:
                self._lost = False
                raise NotFound(f"{self._endpoint}: the consumer is gone")
            if self._left <= 0 or self._pull_is_dead():
                await self._ask(max(1, free))
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_S)
            except TimeoutError:
                return None
        return self._buffer.popleft() if self._buffer else None

    async def stop(self) -> list[Delivery]:
        """Withdraw interest; the messages that were in hand and not taken."""
        if self._subscription is not None and self._js.client.is_connected:
            await self._subscription.unsubscribe()
            await self._js.client.flush(timeout=2)
        left = list(self._buffer)
        self._buffer.clear()
        return left
