"""The JetStream API over the connection: JSON requests, stored publishes, direct reads.

Invariants: every call has a deadline; an answer that is an error raises a typed error; headers and body together are
checked against the server's limit before sending, because the server closes a connection that exceeds it; headers
are ASCII. Left out: retries and idempotency are `bus`, pulling is `pull`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .errors import (
    ApiError,
    BusError,
    BusUnavailable,
    Conflict,
    Forbidden,
    InFlight,
    NotFound,
    StreamFull,
    TooLarge,
)
from .frames import parse_headers
from .replies import Answer, Replies
from .wire import WireClient

__all__ = [
    "ApiError",
    "BusError",
    "BusUnavailable",
    "Conflict",
    "Forbidden",
    "InFlight",
    "JetStream",
    "NotFound",
    "Stored",
    "StreamFull",
    "TooLarge",
]

API = "$JS.API"
MAX_MESSAGE = 1 << 20
"""Most bytes of a message on a stream, headers included."""
EXPECT_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
_CONFLICT_CODES = frozenset({10071})
_IN_FLIGHT_CODES = frozenset({10164})
_NOT_FOUND_CODES = frozenset({10014, 10037, 10059})
_FULL_CODES = frozenset({10023, 10047, 10077, 10122})


class _Error(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = "unknown error"


class _Stored(msgspec.Struct, frozen=True):
    """The answer to a publish."""

    seq: int = 0
    error: _Error | None = None


_decode_stored = msgspec.json.Decoder(_Stored).decode


def _raise_for(error: Mapping[str, Any] | _Error, subject: str) -> None:
    if not isinstance(error, _Error):
        error = msgspec.convert(error, _Error)
    code, err_code, text = error.code, error.err_code, f"{subject}: {error.description}"
    if err_code in _CONFLICT_CODES:
        raise Conflict(text)
    if err_code in _IN_FLIGHT_CODES:
        raise InFlight(text)
    if err_code == 10077 and "per subject" in text:
        raise Conflict(text)
    if err_code in _FULL_CODES:
        raise StreamFull(text)
    if err_code in _NOT_FOUND_CODES or (code == 404 and err_code == 0):
        raise NotFound(text)
    if code == 503:
        raise BusUnavailable(text)
    raise ApiError(code, err_code, text)


class Stored(msgspec.Struct, frozen=True):
    """A message read back from a stream."""

    subject: str
    sequence: int
    body: bytes
    headers: dict[str, str]


def header_block(headers: Mapping[str, str], expect: int | None = None) -> bytes:
    """Headers as they travel; ValueError for what can't stand in one."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    ends = text.count("\r") + text.count("\n")
    if not text.isascii() or ends != 2 * len(headers) or "" in headers or ":" in "".join(headers):
        raise ValueError(_unfit(headers))
    expected = "" if expect is None else f"{EXPECT_SUBJECT_SEQ}: {expect}\r\n"
    return f"NATS/1.0\r\n{expected}{text}\r\n".encode()


def _unfit(headers: Mapping[str, str]) -> str:
    """Which of the headers can't stand in a block, and why."""
    for name, value in headers.items():
        line = f"{name}: {value}"
        if not line.isascii() or "\r" in line or "\n" in line or not name or ":" in name:
            return f"header {name!r}: {value!r}: expected ASCII on one line, and a name without ':'"
    raise AssertionError("every header can stand in a block")


class JetStream:
    """Requests to one JetStream account through a connection."""

    def __init__(self, client: WireClient, timeout_s: float = 5.0) -> None:
        self.client = client
        self.replies = Replies(client, timeout_s)

    async def _request(self, subject: str, body: bytes) -> Answer:
        self.check_size(subject, body, b"")
        answer = await self.replies.ask(subject, b"", body)
        _check_answered(answer, subject)
        return answer

    async def api(self, endpoint: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """One JSON request to `$JS.API.<endpoint>`."""
        body = msgspec.json.encode(payload) if payload is not None else b""
        _, data = await self._request(f"{API}.{endpoint}", body)
        answer: dict[str, Any] = msgspec.json.decode(data)
        if "error" in answer:
            _raise_for(answer["error"], endpoint)
        return answer

    def check_size(self, subject: str, body: bytes, headers: bytes) -> None:
        """TooLarge when headers and body together would exceed the server's limit."""
        size, limit = len(body) + len(headers), self.client.max_payload
        if size > limit:
            raise TooLarge(f"{subject}: {size} bytes with headers, the server takes {limit}")

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str], expect: int | None = None) -> int:
        """Publish and wait until it is stored; the sequence. `expect` is the last sequence allowed on the subject."""
        block = header_block(headers, expect) if headers or expect is not None else b""
        self.check_size(subject, body, block)
        said = await self.replies.ask(subject, block, body)
        _check_answered(said, subject)
        answer = _decode_stored(said[1])
        if answer.error is not None:
            _raise_for(answer.error, subject)
        return answer.seq

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The newest message on `subject`, by direct read; None when there is none."""
        return _stored(await self._request(f"{API}.DIRECT.GET.{stream}.{subject}", b""))

    async def by_sequence(self, stream: str, sequence: int) -> Stored | None:
        """The message at `sequence`; None when it is gone."""
        return _stored(await self._request(f"{API}.DIRECT.GET.{stream}", msgspec.json.encode({"seq": sequence})))

    async def next_from(self, stream: str, sequence: int) -> Stored | None:
        """The first message at `sequence` or after it; None when there is none."""
        request = msgspec.json.encode({"seq": sequence, "next_by_subj": ">"})
        return _stored(await self._request(f"{API}.DIRECT.GET.{stream}", request))


def _check_answered(answer: Answer, subject: str) -> None:
    if answer[0].startswith(b"NATS/1.0 503"):
        raise BusUnavailable(f"{subject}: nobody answers (no such stream, or no JetStream)")


def _stored(answer: Answer) -> Stored | None:
    headers = parse_headers(answer[0])
    if answer[0].startswith(b"NATS/1.0 "):  # a status of the server's, not a header that somebody named so
        if headers["Status"] == "404":
            return None
        raise ApiError(int(headers["Status"]), 0, headers.get("Description", "direct read refused"))
    return Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), answer[1], headers)
