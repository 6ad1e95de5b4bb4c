"""Requests and their answers: one wildcard inbox, a future per request, many in flight.

Invariants: every request ends: with its answer, with Forbidden when the server refuses its subject, with
BusUnavailable at once when the connection is lost or after `timeout_s`, or by its caller's cancellation. An answer
that comes too late is dropped. What is in flight is bounded in bytes and number; who comes later waits.
Left out: what an answer means (`jetstream`), and trying again (`bus`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable

from .errors import BusUnavailable, Forbidden
from .wire import NotConnected, WireClient

SWEEP_S = 0.25
MAX_BYTES = 32 << 20
MAX_REQUESTS = 16384
_BLANK = re.compile(r"[ \t\r\n]")
_REFUSED = re.compile(r'Permissions Violation for Publish to "([^"]*)"')
Answer = tuple[bytes, bytes]
"""Raw headers and body."""
_Waiting = tuple["asyncio.Future[Answer]", str, float, int]


class Replies:
    """Requests of one connection."""

    def __init__(self, client: WireClient, timeout_s: float) -> None:
        self.client = client
        self.timeout_s = timeout_s
        self._prefix = f"{client.new_inbox()}.".encode()
        self._cut = len(self._prefix)
        self._serial = 0
        self._waiting: dict[bytes, _Waiting] = {}
        self._bytes = 0
        self._room = asyncio.Event()
        self._subscribed: asyncio.Future[bool] | None = None
        """Did the attempt to subscribe succeed? None before the first, and after one that failed."""
        self._sweeping = False
        client.lost.append(self._on_lost)
        client.refusals.append(self._on_refusal)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def ask(self, subject: str, headers: bytes, body: bytes) -> Answer:
        """Send a request and wait for its answer. `headers` is a whole header block, or empty."""
        if self._subscribed is None or not self._subscribed.done():
            await self._subscribe()
        while self._bytes > MAX_BYTES or len(self._waiting) >= MAX_REQUESTS:
            self._room.clear()
            await self._room.wait()
        if not subject or _BLANK.search(subject):
            raise ValueError(f"subject {subject!r}: expected tokens without blanks")
        self._serial += 1
        token = b"%x" % self._serial
        reply = self._prefix + token
        if headers:
            total = len(headers) + len(body)
            frame = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), reply, len(headers), total, headers, body)
        else:
            frame = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply, len(body), body)
        try:
            self.client.send(frame)
        except NotConnected as error:
            raise BusUnavailable(f"{subject}: not connected") from error
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting[token] = (future, subject, time.monotonic() + self.timeout_s, len(frame))
        self._bytes += len(frame)
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(SWEEP_S, self._sweep)
        return await future

    async def _subscribe(self) -> None:
        while self._subscribed is not None:
            if await asyncio.shield(self._subscribed):
                return
        self._subscribed = attempt = asyncio.get_running_loop().create_future()
        done = False
        try:
            await self.client.tap(f"{self._prefix.decode()}*", self._on_reply)
            done = True
        finally:  # whoever waits for this attempt makes the next one when it fails
            self._subscribed = attempt if done else None
            attempt.set_result(done)

    # ------------------------------------------------------------ how requests end

    def _on_reply(self, subject: bytes, _reply: bytes, headers: bytes, body: bytes) -> None:
        waiting = self._waiting.pop(subject[self._cut :], None)
        if waiting is None:
            return
        self._bytes -= waiting[3]
        if not waiting[0].done():
            waiting[0].set_result((headers, body))
        if not self._room.is_set():
            self._room.set()

    def _fail(self, tokens: Iterable[bytes], error: type[Exception], why: str) -> None:
        for token in list(tokens):
            future, subject, _, size = self._waiting.pop(token)
            self._bytes -= size
            if not future.done():
                future.set_exception(error(f"{subject}: {why}"))
        self._room.set()

    def _on_lost(self) -> None:
        self._fail(self._waiting, BusUnavailable, "the connection was lost before the answer")

    def _on_refusal(self, text: str) -> None:
        refused = _REFUSED.match(text)
        if refused is not None:  # the oldest request to that subject: the server answers in order
            subject = refused.group(1)
            first = next((token for token, waiting in self._waiting.items() if waiting[1] == subject), None)
            if first is not None:
                self._fail([first], Forbidden, "this user may not publish here")

    def _sweep(self) -> None:
        now = time.monotonic()
        late: list[bytes] = []
        for token, waiting in self._waiting.items():  # in order of their deadlines
            if waiting[2] > now:
                break
            late.append(token)
        self._fail(late, BusUnavailable, f"no answer within {self.timeout_s:g} s")
        self._sweeping = bool(self._waiting)
        if self._sweeping:
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
