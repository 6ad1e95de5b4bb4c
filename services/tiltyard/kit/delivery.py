"""A delivered message: what arrived, read when somebody asks for it.

Who only wants positions, or only acknowledges, doesn't pay for headers; a handler pays once.
Invariants: reading never fails; what was read is kept. Left out: decoding the body (`intake`), answering (`bus`).
"""

from __future__ import annotations

import msgspec
import structlog

from .frames import parse_headers

log = structlog.get_logger()


class Told(msgspec.Struct, frozen=True, gc=False):
    """What the server says about a delivery."""

    stream: str
    consumer: str
    deliveries: int
    sequence: int
    stored: float
    """When the stream took it, seconds since the epoch."""
    pending: int = 0
    place: int = 0
    """Which of its consumer's deliveries this is, from 1; 0 when that is not known."""


def parse_told(reply: bytes) -> Told:
    """Read an acknowledgement subject.

    `$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<deliveries>.<sequence>.<consumer sequence>.<ns>.<pending>[.<x>]`
    What isn't one, and so not the server's, says nothing.
    """
    parts = reply.decode(errors="replace").split(".")
    offset = 2 if len(parts) == 9 else 4
    try:
        stream, consumer, deliveries, sequence, place, ns, pending = parts[offset : offset + 7]
        return Told(stream, consumer, int(deliveries), int(sequence), int(ns) / 1e9, int(pending), int(place))
    except ValueError:
        log.error("delivery_unreadable", reply=reply)
        return Told("", "", deliveries=1, sequence=0, stored=0.0)


class Delivery(msgspec.Struct, gc=False):
    """One delivered message and what the server says about it; read from what arrived when it is asked for."""

    raw_subject: bytes
    reply: bytes
    """Where the server waits for the answer; empty for what was not delivered but read."""
    raw_headers: bytes
    body: bytes
    _told: Told | None = None
    _headers: dict[str, str] | None = None
    _subject: str | None = None

    @classmethod
    def of(cls, subject: str, headers: dict[str, str], body: bytes, told: Told) -> Delivery:
        """What was read, as if it had been delivered."""
        return cls(subject.encode(), b"", b"", body, told, headers)

    @property
    def subject(self) -> str:
        if self._subject is None:
            self._subject = self.raw_subject.decode(errors="replace")  # a server takes any bytes
        return self._subject

    @property
    def headers(self) -> dict[str, str]:
        if self._headers is None:
            self._headers = parse_headers(self.raw_headers)
        return self._headers

    @property
    def told(self) -> Told:
        if self._told is None:
            self._told = parse_told(self.reply)
        return self._told

    @property
    def stream(self) -> str:
        return self.told.stream

    @property
    def consumer(self) -> str:
        return self.told.consumer

    @property
    def sequence(self) -> int:
        return self.told.sequence

    @property
    def deliveries(self) -> int:
        """How often it has been delivered, this time included."""
        return self.told.deliveries

    @property
    def stored(self) -> float:
        """When the stream took it, seconds since the epoch."""
        return self.told.stored

    @property
    def pending(self) -> int:
        """How many more wait for this consumer."""
        return self.told.pending
