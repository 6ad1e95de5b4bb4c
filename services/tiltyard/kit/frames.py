"""What a server sends, split into messages and control lines.

A message whose subscription is tapped goes to its tap at once, while the event loop reads; what nats-py handles in
coroutines waits in order for `work`. nats-py's own parser takes two regular expressions and a task switch per message.
Invariants: how the bytes were cut into pieces changes nothing; a tap that raises ends nothing; what is no protocol is
`Malformed`. Left out: the connection (`link`, `wire`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog
from nats.protocol.parser import Parser

from .link import Malformed

Tap = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply subject, raw headers (empty when there are none) and body."""
log = structlog.get_logger()
MAX_LINE = 64 << 10
MSG, HMSG = b"M"[0], b"H"[0]
"""How messages without and with headers begin; nothing else that a server sends begins so."""


class WireParser(Parser):  # type: ignore[misc]
    """Splits what the server sends into messages; a message that isn't whole yet waits for the rest."""

    def reset(self) -> None:
        super().reset()
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0
        self._chores: deque[Callable[[], Awaitable[None]]] = deque()

    def feed(self, data: bytes) -> bool:
        """Take a piece and hand its messages to their taps; is there something for `work`?"""
        self._chunks.append(data)
        self._have += len(data)
        if self._have >= self._need:
            whole = data if len(self._chunks) == 1 else b"".join(self._chunks)
            used, missing = self._consume(whole)
            rest = whole[used:]
            self._chunks, self._have = ([rest], len(rest)) if rest else ([], 0)
            self._need = self._have + missing
        return bool(self._chores)

    async def work(self) -> None:
        """What nats-py does in coroutines: control lines and messages without a tap, in their order."""
        while self._chores:
            await self._chores.popleft()()

    def _consume(self, data: bytes) -> tuple[int, int]:
        """How many bytes were used, and how many are missing at least before going on makes sense."""
        at, size = 0, len(data)
        find, taps = data.find, self.nc.taps
        while True:
            line_end = find(b"\n", at)
            if line_end < 0:
                if size - at > MAX_LINE:
                    raise Malformed("a control line without an end")
                return at, 1
            kind = data[at]
            if kind != HMSG and kind != MSG:
                self._chores.append(partial(self._control, data[at:line_end]))
                at = line_end + 1
                continue
            words = data[at:line_end].split()
            start = body_start = line_end + 1
            try:
                if kind == HMSG and len(words) == 6:
                    _, subject, sid, reply, head, total = words
                else:
                    subject, sid, reply, head, total = _other(kind, words)
                body_start += int(head)
                end = start + int(total)
                if not start <= body_start <= end:
                    raise ValueError("sizes")
                tap = taps.get(sid) or self._untapped(int(sid))
            except ValueError as error:
                raise Malformed(f"malformed control line {data[at:line_end][:40]!r}") from error
            if end + 2 > size:
                return at, end + 2 - size
            at = end + 2
            try:
                tap(subject, reply, data[start:body_start], data[body_start:end])
            except Exception as error:  # a tap's mistake must not end the connection
                log.error("tap_failed", subject=subject.decode(errors="replace"), exc_info=error)

    def _untapped(self, sid: int) -> Tap:
        """For messages of a usual subscription of nats-py's."""

        def later(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
            self._chores.append(partial(self.nc._process_msg, sid, subject, reply, body, headers or None))

        return later

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
            raise Malformed(f"unknown control line {line[:40]!r}")


def _other(kind: int, words: list[bytes]) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Subject, subscription, reply, size of the headers and of all; ValueError for what is no message."""
    if kind == MSG:
        words.insert(-1, b"0")
    if len(words) == 5:
        words.insert(3, b"")
    _, subject, sid, reply, head, total = words
    return subject, sid, reply, head, total


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
