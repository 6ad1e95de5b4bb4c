"""Join verdicts into groups and close them: at the last verdict, or at the deadline with what is there.

Invariants: the closed group is published before its record says closed, and its key is the group's id, so a crash in
between closes it again with the same effect; a verdict for a closed group is late: kept on its stream, counted,
never trained.
"""

from __future__ import annotations

import time

import anyio
import msgspec
import structlog
from prometheus_client import Counter, Histogram

from tiltyard.kit import joins
from tiltyard.kit.bus import Bus, Out, decode_value
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.serve import Retry
from tiltyard_proto import topology
from tiltyard_proto.messages import Group, GroupRecord, Verdict

from . import handler
from .backend import Ledger
from .settings import AggregatorSettings

GROUPS = Counter("tiltyard_groups_total", "Closed groups by domain and why they do not train", ["domain", "reason"])
LATE = Counter("tiltyard_late_verdicts_total", "Verdicts whose group had closed", ["domain"])
REWARD = Histogram("tiltyard_reward", "Rewards of training members", ["domain"], buckets=[i / 10 for i in range(11)])
WAIT_S = 0.3
"""Between two tries while the bus is away."""
LAG_S = 10.0
"""Reads go to any replica; one that is behind by more than this is not waited for."""
log = structlog.get_logger()


class Groups:
    """The handler of the verdict stage, and the watch over deadlines."""

    def __init__(self, ledger: Ledger, settings: AggregatorSettings) -> None:
        self.ledger = ledger
        self.settings = settings
        self.open: dict[str, GroupRecord] = {}
        """Open groups as last seen, for the deadlines."""

    async def on_verdict(self, verdict: Verdict) -> list[Out]:
        """Set the member; the closed group when it was the last one."""
        rollout = verdict.rollout
        while True:
            entry = await self.ledger.read(rollout.group.id)
            if entry is None:
                raise Retry(1.0, f"group {rollout.group.id} has no record yet")
            record, revision = entry
            if record.closed:
                if rollout.member not in record.members:  # else a second delivery of one that was in time
                    LATE.labels(record.domain).inc()
                    log.info("late_verdict", rollout=rollout.id, group=record.id)
                return []
            joined = handler.add_member(record, rollout.member)
            if joined == record or await self.ledger.write(joined, revision):
                break
        return await self.close_if_complete(joined)

    async def close_if_complete(self, record: GroupRecord) -> list[Out]:
        now = time.time()
        if not handler.is_complete(record, now):
            return []
        found = [
            await self._verdict(subject, joined=member in record.members)
            for member, subject in enumerate(handler.verdict_subjects(record))
        ]
        group = handler.close(
            record,
            [verdict for verdict in found if verdict is not None],
            now,
            kind=self.settings.advantage,
            min_members=self.settings.min_members,
            min_spread=self.settings.min_spread,
            max_unverified=self.settings.max_unverified,
        )
        return [(topology.GROUP, group)]

    async def _verdict(self, subject: str, *, joined: bool) -> Verdict | None:
        """A member's verdict. That of one that has joined is stored: a replica that lags behind is given time."""
        deadline = time.monotonic() + LAG_S
        while True:
            found = await self.ledger.verdict(subject)
            if found is not None or not joined or time.monotonic() >= deadline:
                return found
            await anyio.sleep(0.05)

    async def mark_closed(self, group: str) -> None:
        """After the group is published: its record says closed. Waits while the bus is away."""
        while True:
            try:
                entry = await self.ledger.read(group)
                if entry is None or entry[0].closed:
                    return
                if await self.ledger.write(msgspec.structs.replace(entry[0], closed=True), entry[1]):
                    return
            except BusUnavailable as error:
                log.warning("aggregator_waits", group=group, error=str(error))
                await anyio.sleep(WAIT_S)

    async def watch_records(self, bus: Bus) -> None:
        """Keep `open` current from the bucket's own stream."""
        kv = bus.kv(topology.GROUPS_BUCKET)
        async for delivery in bus.follow_raw(kv.stream, f"$KV.{kv.bucket}.>"):
            record = decode_value(delivery.subject, delivery.body, GroupRecord)
            if record is None:
                continue
            if record.closed:
                self.open.pop(record.id, None)
            else:
                self.open[record.id] = record

    async def watch_deadlines(self, bus: Bus) -> None:
        """Close groups whose deadline has passed."""
        while True:
            await anyio.sleep(self.settings.deadline_check_s)
            due = [record for record in self.open.values() if record.deadline <= time.time()]
            for record in due:
                log.warning("group_deadline", group=record.id, members=len(record.members), size=record.size)
                try:
                    for stage, group in await self.close_if_complete(record):
                        await bus.publish(stage, group)
                except BusUnavailable as error:  # it stays due
                    log.warning("aggregator_waits", group=record.id, error=str(error))

    async def on_group(self, group: Group) -> None:
        """A group is on the stream, whoever published it: settle its record and count it."""
        await self.mark_closed(group.id)
        self.open.pop(group.id, None)
        GROUPS.labels(group.domain, group.reason or "trains").inc()
        joins.closed(group)
        for member in group.members:
            if member.trains:
                REWARD.labels(group.domain).observe(member.reward)
