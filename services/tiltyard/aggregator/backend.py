"""The aggregator's outside world: the records of open groups and the verdicts of their members.

`BusLedger` keeps records in the key-value bucket by compare-and-set; `MemoryLedger` is its fake for unit tests and
passes the same suite.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

import anyio
import msgspec

from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import read_sound
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Verdict


class Ledger(Protocol):
    """Group records by id, each with a revision."""

    async def read(self, group: str) -> tuple[GroupRecord, int] | None:
        """The record and its revision; None when the group was never opened."""
        ...

    async def write(self, record: GroupRecord, revision: int) -> int:
        """Store if the revision is still the newest: the new revision, or 0 when somebody was faster."""
        ...

    def turn(self, group: str) -> AbstractAsyncContextManager[None]:
        """While it lasts nobody else of this process has a turn with the group. It saves lost races, and guards
        nothing."""
        ...

    async def verdict(self, subject: str) -> Verdict | None:
        """The verdict stored on a subject; None when there is none that can be worked on."""
        ...


def encode(record: GroupRecord) -> bytes:
    return msgspec.msgpack.encode(record)


class BusLedger:
    """Records in the bucket of groups, verdicts on the verdict stream."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._kv = bus.kv(topology.GROUPS_BUCKET)
        self._turns: dict[str, anyio.Lock] = {}

    async def read(self, group: str) -> tuple[GroupRecord, int] | None:
        entry = await self._kv.read(group, GroupRecord)
        return None if entry is None or entry[0] is None else (entry[0], entry[1])

    async def write(self, record: GroupRecord, revision: int) -> int:
        return await self._kv.swap(record.id, encode(record), revision)

    @asynccontextmanager
    async def turn(self, group: str) -> AsyncIterator[None]:
        lock = self._turns.setdefault(group, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # nobody waits for it either: it would have been handed over
                self._turns.pop(group, None)

    async def verdict(self, subject: str) -> Verdict | None:
        return await read_sound(self._bus, topology.VERDICT, subject)


class MemoryLedger:
    """The same in a dictionary."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[bytes, int]] = {}
        self.verdicts: dict[str, Verdict] = {}

    async def read(self, group: str) -> tuple[GroupRecord, int] | None:
        entry = self.records.get(group)
        return None if entry is None else (msgspec.msgpack.decode(entry[0], type=GroupRecord), entry[1])

    async def write(self, record: GroupRecord, revision: int) -> int:
        if self.records.get(record.id, (b"", 0))[1] != revision:
            return 0
        self.records[record.id] = (encode(record), revision + 1)
        return revision + 1

    def turn(self, group: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def verdict(self, subject: str) -> Verdict | None:
        return self.verdicts.get(subject)
