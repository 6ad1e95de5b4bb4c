"""The JetStream API over nats-py's core client: JSON requests, stored publishes, direct reads.

Only the core client is used: nats-py's own fetch, publish_async, drain, object store and key-value watch each failed
a test that matters here (a fetch sat out 10 s after a reconnect, a refused publish never resolved its future).
Invariants: every call has a deadline; an answer that is an error raises a typed error; headers and body together are
checked against the server's limit before sending, because the server closes a connection that exceeds it.
Left out: retries and idempotency are `bus`, pulling is `pull`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

API = "$JS.API"
EXPECT_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
_CONFLICT_CODES = frozenset({10071, 10164})
_NOT_FOUND_CODES = frozenset({10014, 10037, 10059})
_FULL_CODES = frozenset({10023, 10047, 10077, 10122})


class BusError(RuntimeError):
    """Base of the bus's errors."""


class BusUnavailable(BusError):
    """No answer from JetStream: disconnected, no leader, or the stream does not exist yet. Worth trying again."""


class NotFound(BusError):
    """The stream, consumer or message does not exist."""


class Conflict(BusError):
    """Somebody else wrote this key first (compare-and-set failed)."""


class StreamFull(BusError):
    """The stream refuses new messages: its limits are reached (back-pressure)."""


class TooLarge(BusError, ValueError):
    """Headers and body together exceed what the server accepts."""


class ApiError(BusError):
    """Any other refusal of the JetStream API."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} (code {code}, {err_code})")
        self.code = code
        self.err_code = err_code


def _raise_for(error: dict[str, Any], subject: str) -> None:
    code, err_code = int(error.get("code", 0)), int(error.get("err_code", 0))
    text = f"{subject}: {error.get('description', 'unknown error')}"
    if err_code in _CONFLICT_CODES:
        raise Conflict(text)
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


class JetStream:
    """Requests to one JetStream account through a connected core client."""

    def __init__(self, client: Client, timeout_s: float = 5.0) -> None:
        self.client = client
        self.timeout_s = timeout_s

    async def _request(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> Any:
        try:
            return await self.client.request(subject, body, timeout=self.timeout_s, headers=headers)
        except NoRespondersError as error:
            raise BusUnavailable(f"{subject}: nobody answers (no such stream, or no JetStream)") from error
        except (NatsTimeout, OSError) as error:
            raise BusUnavailable(f"{subject}: no answer within {self.timeout_s:g} s") from error

    async def api(self, endpoint: str, payload: dict[str, Any] | None = None) -> dict[str, Any]:
        """One JSON request to `$JS.API.<endpoint>`."""
        body = msgspec.json.encode(payload) if payload is not None else b""
        reply = await self._request(f"{API}.{endpoint}", body)
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
        if "error" in answer:
            _raise_for(answer["error"], endpoint)
        return answer

    def check_size(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        """TooLarge when headers and body together would exceed the server's limit."""
        size = len(body) + sum(len(k) + len(v) + 4 for k, v in headers.items()) + 16
        limit = self.client.max_payload
        if size > limit:
            raise TooLarge(f"{subject}: {size} bytes with headers, the server takes {limit}")

    async def publish(self, subject: str, body: bytes, headers: dict[str, str], expect: int | None = None) -> int:
        """Publish and wait until it is stored; the sequence. `expect` is the last sequence allowed on the subject."""
        headers = dict(headers)
        if expect is not None:
            headers[EXPECT_SUBJECT_SEQ] = str(expect)
        self.check_size(subject, body, headers)
        reply = await self._request(subject, body, headers or None)
        answer = msgspec.json.decode(reply.data)
        if "error" in answer:
            _raise_for(answer["error"], subject)
        return int(answer["seq"])

    async def last(self, stream: str, subject: str) -> Stored | None:
        """The newest message on `subject`, by direct read; None when there is none."""
        reply = await self._request(f"{API}.DIRECT.GET.{stream}.{subject}", b"")
        return _stored(reply)

    async def by_sequence(self, stream: str, sequence: int) -> Stored | None:
        """The message at `sequence`; None when it is gone."""
        reply = await self._request(f"{API}.DIRECT.GET.{stream}", msgspec.json.encode({"seq": sequence}))
        return _stored(reply)


def _stored(reply: Any) -> Stored | None:
    headers = dict(reply.headers or {})
    status = headers.get("Status")
    if status == "404":
        return None
    if status is not None:
        raise ApiError(int(status), 0, headers.get("Description", "direct read refused"))
    return Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), reply.data, headers)
