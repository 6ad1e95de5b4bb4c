"""The bus: typed publish, read, follow and key-value over JetStream. The only NATS in the repository, with its
neighbours `jetstream` (the API), `pull` (deliveries), `serve` (handlers) and `provision` (streams and consumers).

Invariants: a publish names its key and expects no message there yet, so the first writer wins and repeating is
harmless; it returns only when the message is stored. Bodies over the inline limit travel as a claim check: the blob
is written first, the message carries its reference. Following a stream is by position and survives restarts of the
server. Left out: who may do what (the server's permissions), and what handlers do with messages.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
import structlog

from tiltyard_proto import topology
from tiltyard_proto.flow import Hop
from tiltyard_proto.messages import MAJOR, BlobRef, Message
from tiltyard_proto.topology import Stage

from . import intake, origin, tracing
from .blobs import BlobMissing, BlobStore
from .delivery import Delivery
from .errors import BusUnavailable, Conflict, InFlight, NotFound, StreamFull, StreamLost
from .intake import CLAIM as CLAIM
from .intake import SCHEMA as SCHEMA
from .intake import Reject
from .jetstream import JetStream, Stored
from .pull import Ordered
from .wire import NotConnected, WireClient

INLINE_LIMIT = 64 << 10
AWAY_EVERY_S = 10.0
"""Between two lines that say that the server can't be reached."""
IN_FLIGHT_S = 10.0
"""Longest wait for a write of the same key that is on its way."""
FOLLOW_IDLE_S = 6.0
"""A follower's consumer that was left behind, by a lost connection say, is gone after so long."""

M = TypeVar("M")
V = TypeVar("V", bound=msgspec.Struct)
Out = tuple[Stage[Any], Message]
"""What a handler returns: a message and the stage it goes to."""
log = structlog.get_logger()


def decode_value(key: str, body: bytes, kind: type[V]) -> V | None:
    """A value of a key-value bucket; None, and the log says so, when it is no `kind`: nobody shall fall over it."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        log.error("value_undecodable", key=key, expected=kind.__name__, error=str(error))
        return None


def out(hop: Hop) -> Out:
    """A hop of the flow as a handler's output."""
    return topology.BY_NAME[hop.stage], hop.message


class KeyValue:
    """One key-value bucket: compare-and-set on single keys."""

    def __init__(self, js: JetStream, bucket: str) -> None:
        self._js = js
        self.bucket = bucket
        self.stream = f"KV_{bucket}"

    def subject(self, key: str) -> str:
        return f"$KV.{self.bucket}.{key}"

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Value and revision; None when the key was never written."""
        stored = await self._js.last(self.stream, self.subject(key))
        return None if stored is None else (stored.body, stored.sequence)

    async def read(self, key: str, kind: type[V]) -> tuple[V | None, int] | None:
        """Value and revision, the value None when it can't be decoded; None when the key was never written."""
        entry = await self.get(key)
        return None if entry is None else (decode_value(key, entry[0], kind), entry[1])

    async def create(self, key: str, value: bytes) -> bool:
        """Write a new key; False when it exists."""
        return await self.update(key, value, 0)

    async def update(self, key: str, value: bytes, revision: int) -> bool:
        """Write if the newest revision is `revision`; False when it is not. Waits for a write that is on its way."""
        return bool(await self.swap(key, value, revision))

    async def swap(self, key: str, value: bytes, revision: int) -> int:
        """Like `update`: the new revision, or 0 when `revision` was not the newest."""
        deadline = time.monotonic() + IN_FLIGHT_S
        while True:
            try:
                return await self._js.publish(self.subject(key), value, {}, expect=revision)
            except Conflict:
                return 0
            except InFlight:
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(0.05)

    async def put(self, key: str, value: bytes) -> int:
        """Write whatever is there; the revision."""
        return await self._js.publish(self.subject(key), value, {})

    async def exists(self) -> bool:
        """Is there such a bucket?"""
        try:
            await self._js.api(f"STREAM.INFO.{self.stream}")
        except NotFound:
            return False
        return True

    async def keys(self) -> list[str]:
        """All keys of the bucket."""
        prefix = f"$KV.{self.bucket}."
        found: list[str] = []
        while True:
            payload = {"subjects_filter": f"{prefix}>", "offset": len(found)}
            info = await self._js.api(f"STREAM.INFO.{self.stream}", payload)
            page = info["state"].get("subjects") or {}
            found += [subject.removeprefix(prefix) for subject in page]
            if not page or len(found) >= int(info.get("total", len(found))):
                return found


class Bus:
    """A connection to the bus and everything services do with it."""

    def __init__(self, client: WireClient, blobs: BlobStore) -> None:
        self.client = client
        self.js = JetStream(client)
        self.blobs = blobs
        self.closing = False

    @classmethod
    async def connect(cls, servers: str | Sequence[str], blobs: BlobStore, name: str, **options: Any) -> Bus:
        """Connect and keep reconnecting for ever; the first connection is waited for as well."""

        said = -AWAY_EVERY_S

        async def note(error: Exception) -> None:
            nonlocal said
            if isinstance(error, OSError):  # tried several times a second for as long as the server is away
                if time.monotonic() - said < AWAY_EVERY_S:
                    return
                said = time.monotonic()
            log.warning("bus_error", servers=servers, error=str(error) or type(error).__name__)

        client = WireClient()
        chosen: dict[str, Any] = {
            "servers": list([servers] if isinstance(servers, str) else servers),
            "name": name,
            "inbox_prefix": f"_INBOX_{name}",
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2 + 0.1 * random.random(),
            "ping_interval": 5,
            "error_cb": note,
        }
        await client.connect(**(chosen | options))
        return cls(client, blobs)

    async def close(self) -> None:
        self.closing = True
        await self.client.close()

    def kv(self, bucket: str) -> KeyValue:
        return KeyValue(self.js, bucket)

    def say(self, delivery: Delivery, word: bytes) -> None:
        """Answer a delivery (+ACK, -NAK, +WPI, +TERM); while disconnected nothing: the lease ends by itself."""
        try:
            self.client.say(delivery.reply, word)
        except NotConnected as error:
            log.debug("answer_dropped", subject=delivery.subject, error=str(error))

    # ------------------------------------------------------------ publish

    async def _wrap(self, message: Message) -> tuple[bytes, dict[str, str]]:
        body = topology.encode(message)
        headers = {SCHEMA: f"{message.__struct_config__.tag}/{MAJOR}", **tracing.headers(message)}
        if len(body) > INLINE_LIMIT:
            ref = await anyio.to_thread.run_sync(self.blobs.put, body)
            body, headers[CLAIM] = msgspec.msgpack.encode(ref), "1"
        return body, headers

    async def publish(self, stage: Stage[M], message: M, *, patience_s: float | None = None) -> bool:
        """Store `message` under its key; False when another message has the key (the first writer won).

        A repeated attempt whose predecessor's answer was lost is compared with what is stored. So writers of equal
        messages may both be told True; of writers of different ones exactly one is. Waits while the bus is away or the
        stream is full, at most `patience_s` when given, then raises the last error.
        """
        assert isinstance(message, Message)
        assert stage.accepts(message), f"{type(message).__name__} on {stage.name}"
        subject = stage.subject(message)
        body, headers = await self._wrap(message)
        start, delay, unsure = time.monotonic(), 0.05, False
        while True:
            try:
                return await self._store(stage, subject, body, headers, unsure)
            except (BusUnavailable, StreamFull) as error:
                unsure = unsure or isinstance(error, BusUnavailable)
                if patience_s is not None and time.monotonic() - start > patience_s:
                    raise
                log.warning("publish_waits", subject=subject, error=str(error))
                await anyio.sleep(delay * (0.5 + random.random()))
                delay = min(2.0, delay * 2)
                if CLAIM in headers:
                    body, headers = await self._wrap(message)  # keeps its blob young while the bus is away

    async def _store(
        self, stage: Stage[Any], subject: str, body: bytes, headers: Mapping[str, str], unsure: bool
    ) -> bool:
        """One attempt. `unsure`: an earlier one was not answered, so the key may be taken by our own message."""
        try:
            await self.js.publish(subject, body, headers, expect=0)
        except Conflict:
            if not unsure:
                return False
            stored = await self.js.last(stage.stream, subject)
            if stored is None:  # the replica that was asked lags behind the one that refused
                raise BusUnavailable(f"{subject}: taken, and not readable yet") from None
            return stored.body == body
        return True

    # ------------------------------------------------------------ read

    async def unwrap(self, stage: Stage[M], body: bytes, headers: Mapping[str, str]) -> M:
        """Decode a message of `stage`, fetching the blob of a claim check (BlobMissing when it is gone)."""
        if headers.get(CLAIM):
            ref = msgspec.msgpack.decode(body, type=BlobRef)
            body = await anyio.to_thread.run_sync(self.blobs.get, ref)
        return topology.decode(stage, body)

    async def receive(self, stage: Stage[M], delivery: Delivery) -> M:
        """The message of a delivery; Reject when it can't be worked on, BlobMissing when its claim leads nowhere."""
        if delivery.reply:  # what is read directly has the mark of a read by itself
            try:
                origin.check(stage, delivery.subject, delivery.headers)
            except origin.Misplaced as error:
                raise Reject("subject", str(error)) from error
        body = delivery.body
        if delivery.headers.get(CLAIM):
            body = await anyio.to_thread.run_sync(self.blobs.get, intake.claim(body))
        return intake.accept(stage, delivery.subject, body, delivery.headers, time.time())

    async def get(self, stage: Stage[M], subject: str) -> M | None:
        """The message stored on `subject`; None when there is none."""
        stored = await self.js.last(stage.stream, subject)
        return None if stored is None else await self._read(stage, stored)

    async def get_sequence(self, stage: Stage[M], sequence: int) -> M | None:
        """The message at a position of the stage's stream; None when it was trimmed."""
        stored = await self.js.by_sequence(stage.stream, sequence)
        return None if stored is None else await self._read(stage, stored)

    async def _read(self, stage: Stage[M], stored: Stored) -> M:
        return await self.unwrap(stage, stored.body, stored.headers)

    async def latest_policy(self, run: str) -> Any:
        """The newest `Policy` of a run; None before the first."""
        info = await self.js.api(
            f"STREAM.INFO.{topology.POLICY.stream}",
            {"subjects_filter": f"{topology.PREFIX}.policy.policy.>"},
        )
        prefix = f"{topology.PREFIX}.policy.policy.{run}-"
        ends = [s.removeprefix(prefix) for s in info["state"].get("subjects") or {} if s.startswith(prefix)]
        for version in sorted((int(end) for end in ends if end.isascii() and end.isdigit()), reverse=True):
            try:
                return await self.get(topology.POLICY, f"{prefix}{version}")
            except (msgspec.MsgspecError, RecursionError, BlobMissing) as error:
                log.error("policy_unreadable", run=run, version=version, error=str(error))
        return None

    # ------------------------------------------------------------ follow

    async def follow(self, stage: Stage[M], after: int = 0) -> AsyncIterator[tuple[int, M]]:
        """Every message of the stage in order, from the one after position `after`, then live, for ever.

        What can't be worked on is logged and passed over; `deadletters.follow_checked` reports it as well, by the same
        check, so that all followers of a stream agree on what it holds.
        """
        async for delivery in self.follow_raw(stage.stream, stage.subjects, after):
            try:
                message = await self.receive(stage, delivery)
            except (Reject, BlobMissing) as error:
                log.error("follow_passes_over", subject=delivery.subject, error=str(error))
                continue
            yield delivery.sequence, message

    async def follow_raw(
        self, stream: str, subjects: str, after: int = 0, *, headers_only: bool = False
    ) -> AsyncGenerator[Delivery, None]:
        """Deliveries of a stream in order, from the position after `after`; the consumer is remade when it is lost, or
        something that it sent.

        With `headers_only` the bodies are left empty. StreamLost when the stream ends before `after`.
        """
        while True:
            try:
                await self._check_position(stream, after)
                puller = await self._ordered(stream, subjects, after, headers_only)
            except (BusUnavailable, NotFound) as error:
                log.debug("follow_waits", stream=stream, error=str(error))
                await anyio.sleep(0.3)
                continue
            try:
                while True:
                    delivery = puller.take(256) or await puller.next(256)
                    if delivery is None:
                        continue
                    puller.check(delivery)
                    if delivery.sequence > after:
                        after = delivery.sequence
                        yield delivery
            except (BusUnavailable, NotFound) as error:
                log.info("follow_resumes", stream=stream, after=after, error=str(error))
                await anyio.sleep(0.2)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                    await puller.stop()

    async def _check_position(self, stream: str, after: int) -> None:
        if not after:
            return
        last = int((await self.js.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
        if last < after:
            raise StreamLost(
                f"{stream} ends at position {last} and was followed up to {after}: the server has lost what it had "
                "acknowledged, or serves another store; restore the store, or begin a run of another name"
            )

    async def _ordered(self, stream: str, subjects: str, after: int, headers_only: bool) -> Ordered:
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "filter_subject": subjects,
            "inactive_threshold": int(FOLLOW_IDLE_S * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
            "headers_only": headers_only,
        }
        answer = await self.js.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
        puller = Ordered(self.js, stream, answer["name"])
        await puller.start()
        return puller
