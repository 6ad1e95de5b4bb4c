"""Join verdicts into groups and close them: at the last verdict, or at the deadline with what is there.

Invariants: the closed group is published before its record says closed, and its key is the group's id, so a crash in
between closes it again with the same effect; a verdict for a closed group is late: kept on its stream, counted,
never trained.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import anyio
import msgspec
import structlog
from prometheus_client import Counter, Histogram

from tiltyard.kit import joins
from tiltyard.kit.bus import Bus, Out, decode_value
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.serve import Retry
from tiltyard_proto import topology
from tiltyard_proto.messages import Group, GroupRecord, Rollout, Verdict

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


@dataclass
class Arrived:
    """What a process has been given of one group."""

    members: set[int] = field(default_factory=set)
    """Whose verdicts are stored."""
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """Those of them that are kept for the closing."""
    kept: int = 0
    """Bytes of these, about."""
    closer: int | None = None
    """The member whose message is answered only when the group is published."""


def weight(verdict: Verdict) -> int:
    """Bytes that a verdict takes in memory, about."""
    turns = verdict.rollout.turns
    return 4096 + sum(3 * len(turn.action_ids) + len(turn.context_ids) + 2 * len(turn.text) for turn in turns)


class Groups:
    """The handler of the verdict stage, and the watch over deadlines."""

    def __init__(self, ledger: Ledger, settings: AggregatorSettings) -> None:
        self.ledger = ledger
        self.settings = settings
        self.open: dict[str, tuple[GroupRecord, int]] = {}
        """Records of open groups and their revisions, as last seen: for the deadlines, and to write without a look."""
        self.arrived: dict[str, Arrived] = {}
        """What this process has been given of groups that are not closed yet."""
        self.room = settings.keep_bytes
        """How many more bytes of verdicts may be kept."""

    async def on_verdict(self, verdict: Verdict) -> list[Out]:
        """Set the member; the closed group when it was the last one.

        Whoever writes sets all members that have arrived, so that a group that comes at once costs one write. One of
        them closes it: its message stays unanswered until the group is published, the others' may go.
        """
        rollout = verdict.rollout
        arrived = self.arrived.setdefault(rollout.group.id, Arrived())
        self._keep(arrived, verdict)
        async with self.ledger.turn(rollout.group.id):
            record = await self._join(rollout, arrived)
        if record is None or not handler.is_complete(record, time.time()):
            return []
        if arrived.closer is None:
            arrived.closer = rollout.member
        return await self.close_if_complete(record) if arrived.closer == rollout.member else []

    async def _join(self, rollout: Rollout, arrived: Arrived) -> GroupRecord | None:
        """The record with the rollout's member in it; None when the group closed without or with it."""
        group = rollout.group.id
        while True:
            entry = self.open.get(group) or await self.ledger.read(group)
            if entry is None:
                self._forget(group)
                raise Retry(1.0, f"group {group} has no record yet")
            record, revision = entry
            if record.closed:
                if rollout.member not in record.members:  # else a second delivery of one that was in time
                    LATE.labels(record.domain).inc()
                    log.info("late_verdict", rollout=rollout.id, group=record.id)
                self._forget(group)
                return None
            if rollout.member in record.members:
                return record
            joined = handler.add_members(record, arrived.members)
            if written := await self.ledger.write(joined, revision):
                self._saw(joined, written)
                return joined
            self.open.pop(group, None)  # somebody was faster

    def _keep(self, arrived: Arrived, verdict: Verdict) -> None:
        """Have a verdict at hand for the closing, unless too much is kept: then it is read again."""
        member, size = verdict.rollout.member, weight(verdict)
        arrived.members.add(member)
        if member not in arrived.verdicts and size <= self.room:
            self.room -= size
            arrived.kept += size
            arrived.verdicts[member] = verdict

    def _forget(self, group: str) -> None:
        self.open.pop(group, None)
        arrived = self.arrived.pop(group, None)
        if arrived is not None:
            self.room += arrived.kept

    def _saw(self, record: GroupRecord, revision: int) -> None:
        """A record as it was at a revision; an older one than is known says nothing."""
        known = self.open.get(record.id)
        if record.closed:
            self._forget(record.id)
        elif known is None or known[1] < revision:
            self.open[record.id] = record, revision

    async def close_if_complete(self, record: GroupRecord) -> list[Out]:
        now = time.time()
        if not handler.is_complete(record, now):
            return []
        arrived = self.arrived.get(record.id, Arrived())
        found = [
            arrived.verdicts.get(member) or await self._verdict(subject, joined=member in record.members)
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
                entry = self.open.pop(group, None) or await self.ledger.read(group)
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
            if record is not None:
                self._saw(record, delivery.sequence)

    async def watch_deadlines(self, bus: Bus) -> None:
        """Close groups whose deadline has passed."""
        while True:
            await anyio.sleep(self.settings.deadline_check_s)
            due = [record for record, _ in self.open.values() if record.deadline <= time.time()]
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
        self._forget(group.id)
        GROUPS.labels(group.domain, group.reason or "trains").inc()
        joins.closed(group)
        for member in group.members:
            if member.trains:
                REWARD.labels(group.domain).observe(member.reward)
