"""The janitor: trims what every consumer has passed, and collects blobs that nothing refers to.

Trimming: of the stages whose work is shared out, messages that are acknowledged and older than `keep_s`. Their subjects
are the idempotency keys, so `keep_s` must be longer than the longest outage after which something may be published
again. Streams that are followed by position are left to their maximum age.
Collecting: marked is every 64-digit hash that stands in a stored message, in a key-value entry, or in the blob of a
claim check; so a dead letter pins its blobs. Swept is what is unmarked and older than `blob_age_s`: a blob is written
(and touched when it is there already) before its reference is published, so what may yet be referred to is young.
Invariants: nothing unacknowledged is trimmed; when anything can't be read completely, nothing is swept.
Left out: weights, checkpoints and archives, which are files of their own with owners of their own.
"""

from __future__ import annotations

import re
import time
from contextlib import aclosing
from datetime import datetime
from typing import Any

import anyio
import msgspec
import structlog

from tiltyard_proto import topology
from tiltyard_proto.topology import Stage

from .blobs import BlobStore
from .bus import CLAIM, Bus
from .depth import consumers, passed
from .errors import BusError
from .jetstream import Stored

HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
READ_S = 600.0
log = structlog.get_logger()


class JanitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[janitor]`: what is tidied away, and when. `tiltyard up` has one; elsewhere run one `tiltyard janitor`."""

    every_s: float = 60.0
    """Between two rounds of trimming."""
    keep_s: float = 6 * 3600.0
    """Finished messages stay so long; longer than any outage after which work may be sent again."""
    blobs_every_s: float = 1800.0
    """Between two collections of blobs, which read every stored message."""
    blob_age_s: float = 86400.0
    """A blob that nothing refers to stays so long."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0 seconds")


class Collected(msgspec.Struct, frozen=True):
    """What one collection found."""

    kept: int
    removed: int
    freed_bytes: int


# ---------------------------------------------------------------- trimming


async def trim(bus: Bus, stage: Stage[Any], keep_s: float, now: float | None = None) -> int:
    """Remove the stage's messages that were acknowledged and are older than `keep_s`; how many.

    Each consumer's messages go up to where that consumer has come, so a domain that nobody serves loses nothing.
    """
    state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
    first, cutoff = int(state["first_seq"]), (time.time() if now is None else now) - keep_s
    old = await _first_since(bus, stage.stream, cutoff, first, int(state["last_seq"]) + 1)
    if old <= first:
        return 0
    removed = 0
    for info in await consumers(bus, stage):
        end = min(old, passed(info, old) + 1)
        if end > first:
            which = {"seq": end, "filter": info["config"].get("filter_subject") or stage.subjects}
            removed += int((await bus.js.api(f"STREAM.PURGE.{stage.stream}", which))["purged"])
    return removed


async def _first_since(bus: Bus, stream: str, cutoff: float, low: int, high: int) -> int:
    """The smallest position in [low, high] whose message is not older than `cutoff`; `high` when all are older."""
    while low < high:
        middle = (low + high) // 2
        stored = await bus.js.next_from(stream, middle)
        if stored is None or stored.sequence >= high or _time(stored) >= cutoff:
            high = middle
        else:
            low = stored.sequence + 1
    return high


def _time(stored: Stored) -> float:
    return datetime.fromisoformat(stored.headers["Nats-Time-Stamp"].replace("Z", "+00:00")[:26] + "+00:00").timestamp()


# ---------------------------------------------------------------- blobs


async def marked(bus: Bus) -> set[str]:
    """Hashes that something stored refers to. BusUnavailable when not everything could be read."""
    found: set[str] = set()
    streams = [stage.stream for stage in topology.STAGES] + [f"KV_{bucket}" for bucket in topology.BUCKETS]
    for stream in streams:
        claims = await _mark_stream(bus, stream, found)
        for claim in claims - found:
            found |= await anyio.to_thread.run_sync(_hashes_of_blob, bus.blobs, claim)
        found |= claims
    return found


async def _mark_stream(bus: Bus, stream: str, found: set[str]) -> set[str]:
    """Add what the messages of a stream name; returned are the hashes that may be claim checks."""
    claims: set[str] = set()
    state = (await bus.js.api(f"STREAM.INFO.{stream}"))["state"]
    if not state["messages"]:
        return claims
    with anyio.fail_after(READ_S):
        async with aclosing(bus.follow_raw(stream, ">")) as deliveries:
            async for delivery in deliveries:
                hashes = {match.decode() for match in HASH.findall(delivery.body)}
                if delivery.headers.get(CLAIM) or stream == topology.DLQ.stream:
                    claims |= hashes
                else:
                    found |= hashes
                if delivery.sequence >= state["last_seq"] or delivery.pending == 0:
                    break
    return claims


def _hashes_of_blob(blobs: BlobStore, sha256: str) -> set[str]:
    data = blobs.peek(sha256)
    return {match.decode() for match in HASH.findall(data)} if data is not None else set()


async def collect(bus: Bus, blob_age_s: float, now: float | None = None) -> Collected:
    """Remove blobs that nothing refers to and that are older than `blob_age_s`."""
    keep = await marked(bus)
    limit = (time.time() if now is None else now) - blob_age_s
    removed, freed, kept = await anyio.to_thread.run_sync(bus.blobs.sweep, keep, limit)
    return Collected(kept, removed, freed)


# ---------------------------------------------------------------- the rounds


async def tidy(bus: Bus, settings: JanitorSettings) -> None:
    """For ever: trim, and now and then collect; a round that fails is logged, and the next one comes."""
    collected = time.monotonic()
    while True:
        await anyio.sleep(settings.every_s)
        try:
            for stage in (each for each in topology.STAGES if each.work):
                if count := await trim(bus, stage, settings.keep_s):
                    log.info("trimmed", stage=stage.name, messages=count)
            if time.monotonic() - collected >= settings.blobs_every_s:
                collected = time.monotonic()
                done = await collect(bus, settings.blob_age_s)
                log.info("blobs_collected", kept=done.kept, removed=done.removed, freed_bytes=done.freed_bytes)
        except (BusError, TimeoutError, OSError) as error:
            log.warning("tidying_failed", error=str(error) or type(error).__name__)
