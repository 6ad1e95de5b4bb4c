"""Wire the aggregator: serve verdicts, watch deadlines, settle closed groups, write the archive."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio

from tiltyard.kit.bus import Bus
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.serve import serve
from tiltyard.kit.service import Context
from tiltyard_proto import topology
from tiltyard_proto.messages import Group, Policy
from tiltyard_proto.topology import Stage

from .archive import POLICY_COLUMNS, ROLLOUT_COLUMNS, PartWriter, policy_row, rollout_row
from .backend import BusLedger
from .groups import Groups
from .settings import AggregatorSettings


class Archiver:
    """Follows one stream into the parts of one table; `flush` writes what is pending."""

    def __init__(self, writer: PartWriter, rows: Callable[[Any], list[dict[str, Any]]], settings: AggregatorSettings):
        self.writer = writer
        self.rows = rows
        self.settings = settings
        self.pending: list[dict[str, Any]] = []
        self.first = 0
        self.last = writer.position()
        self._written = time.monotonic()
        self._lock = anyio.Lock()

    async def add(self, sequence: int, message: Any) -> None:
        self.first = self.first or sequence
        self.last = sequence
        self.pending += self.rows(message)
        if len(self.pending) >= self.settings.archive_groups * 8:
            await self.flush()

    async def flush(self) -> None:
        async with self._lock:
            rows, first, last = self.pending, self.first, self.last
            self.pending, self.first = [], 0
            self._written = time.monotonic()
            if rows:
                await anyio.to_thread.run_sync(self.writer.write, rows, first, last)

    async def flush_regularly(self) -> None:
        while True:
            await anyio.sleep(self.settings.archive_every_s)
            await self.flush()


async def start(context: Context) -> None:
    """Until told to stop; then the archive catches up with the streams."""
    settings: AggregatorSettings = context.settings
    bus, run = context.bus, context.run.name
    groups = Groups(BusLedger(bus), settings)

    def group_rows(group: Group) -> list[dict[str, Any]]:
        return [rollout_row(group, member) for member in group.members] if group.run == run else []

    def policy_rows(policy: Policy) -> list[dict[str, Any]]:
        return [policy_row(policy)] if policy.run == run else []

    rollouts = Archiver(PartWriter(context.data / "archive/rollouts", ROLLOUT_COLUMNS), group_rows, settings)
    policies = Archiver(PartWriter(context.data / "archive/policies", POLICY_COLUMNS), policy_rows, settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(groups.watch_records, bus)
        tasks.start_soon(groups.watch_deadlines, bus)
        tasks.start_soon(_follow, bus, topology.GROUP, rollouts, groups.on_group)
        tasks.start_soon(_follow, bus, topology.POLICY, policies, None)
        tasks.start_soon(rollouts.flush_regularly)
        tasks.start_soon(policies.flush_regularly)
        await serve(
            bus,
            topology.VERDICT,
            groups.on_verdict,
            slots=settings.slots,
            stop=context.stop,
            drain_s=context.service.drain_s,
            breaker=context.breaker(topology.VERDICT),
        )
        with anyio.move_on_after(context.service.drain_s):
            await _caught_up(bus, topology.GROUP, rollouts)
            await _caught_up(bus, topology.POLICY, policies)
        tasks.cancel_scope.cancel()
    await rollouts.flush()
    await policies.flush()


async def _follow(bus: Bus, stage: Stage[Any], archive: Archiver, also: Any) -> None:
    async for sequence, message in bus.follow(stage, after=archive.last):
        if also is not None:
            await also(message)
        await archive.add(sequence, message)


async def _caught_up(bus: Bus, stage: Stage[Any], archive: Archiver) -> None:
    try:
        info = await bus.js.api(f"STREAM.INFO.{stage.stream}")
    except BusUnavailable:  # the next process catches up from the last part
        return
    while archive.last < int(info["state"]["last_seq"]):  # noqa: ASYNC110  (polled once, while draining)
        await anyio.sleep(0.05)
