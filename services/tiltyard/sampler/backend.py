"""The sampler's outside world: the register of groups and runs, and the stage that takes new rollouts.

`BusRegister` is the real one; `MemoryRegister` is its fake for unit tests and passes the same suite.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import anyio
import msgspec

from tiltyard.kit.bus import Bus
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Rollout, RunStatus


class Register(Protocol):
    """Opened groups and the status of runs."""

    async def open(self, record: GroupRecord) -> GroupRecord:
        """Create the record, or adopt the one that an earlier process created under this id."""
        ...

    async def records(self, run: str) -> list[GroupRecord]:
        """All records of a run."""
        ...

    async def send(self, rollouts: Iterable[Rollout]) -> None:
        """Hand rollouts to their first stage; sending again is a no-op."""
        ...

    async def status(self, run: str) -> RunStatus | None: ...

    async def write_status(self, status: RunStatus) -> None: ...


class BusRegister:
    """Key-value buckets and the generate stage."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._groups = bus.kv(topology.GROUPS_BUCKET)
        self._runs = bus.kv(topology.RUNS_BUCKET)

    async def open(self, record: GroupRecord) -> GroupRecord:
        if await self._groups.create(record.id, msgspec.msgpack.encode(record)):
            return record
        entry = await self._groups.read(record.id, GroupRecord)
        if entry is None:
            raise BusUnavailable(f"group {record.id} exists, but the replica that was asked does not have it yet")
        found, revision = entry
        if found is not None:
            return found
        if await self._groups.update(record.id, msgspec.msgpack.encode(record), revision):
            return record  # what was there was no record
        return await self.open(record)

    async def records(self, run: str) -> list[GroupRecord]:
        found: list[GroupRecord] = []
        for key in await self._groups.keys():
            entry = await self._groups.read(key, GroupRecord) if key.startswith(f"{run}-") else None
            if entry is not None and entry[0] is not None:
                found.append(entry[0])
        return found

    async def send(self, rollouts: Iterable[Rollout]) -> None:
        async with anyio.create_task_group() as tasks:
            for rollout in rollouts:
                tasks.start_soon(self._bus.publish, topology.GENERATE, rollout)

    async def status(self, run: str) -> RunStatus | None:
        entry = await self._runs.read(run, RunStatus)
        return None if entry is None else entry[0]

    async def write_status(self, status: RunStatus) -> None:
        await self._runs.put(status.run, msgspec.msgpack.encode(status))


class MemoryRegister:
    """The same in dictionaries."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupRecord] = {}
        self.sent: dict[str, Rollout] = {}
        self.runs: dict[str, RunStatus] = {}

    async def open(self, record: GroupRecord) -> GroupRecord:
        return self.groups.setdefault(record.id, record)

    async def records(self, run: str) -> list[GroupRecord]:
        return [record for record in self.groups.values() if record.run == run]

    async def send(self, rollouts: Iterable[Rollout]) -> None:
        for rollout in rollouts:
            self.sent.setdefault(rollout.id, rollout)

    async def status(self, run: str) -> RunStatus | None:
        return self.runs.get(run)

    async def write_status(self, status: RunStatus) -> None:
        self.runs[status.run] = status
