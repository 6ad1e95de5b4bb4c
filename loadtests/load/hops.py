"""Latencies of every hop, from the times at which the server stored the messages, and what became of every rollout.

A message's subject names its rollout, so the streams' headers say all: when a rollout entered each stage and when it
left it. Nothing has to be added to the messages, and nobody looks while the load runs. Left out: times within a hop.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio
import msgspec

from tiltyard.kit.bus import Bus, decode_value
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord

READ_S = 600.0
KEY = re.compile(r"(.+)-a\d+(?:-t\d+|-grade|-graded)?")
ROLLOUT = "whole rollout"
LAST = "last verdict to group"


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of seconds."""

    count: int
    p50: float
    p95: float
    p99: float
    most: float


@dataclass
class Journeys:
    """What the streams say."""

    times: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    """Of each rollout: when it was stored at which stage."""
    domains: dict[str, str] = field(default_factory=dict)
    """Of each rollout that has a verdict: its domain as subjects have it."""
    groups: dict[str, float] = field(default_factory=dict)
    """When each group was closed."""
    records: dict[str, GroupRecord] = field(default_factory=dict)
    """Every group that was opened."""
    letters: int = 0
    """Dead letters."""

    def whole(self) -> dict[str, float]:
        """Seconds from the first message to the verdict of every rollout, in the order of the verdicts."""
        ends: list[tuple[float, str]] = []
        for name in self.domains:
            ends.append((next(time for time, stage in self.times[name] if stage == "verdict"), name))
        return {name: end - min(self.times[name])[0] for end, name in sorted(ends)}

    def lost(self) -> int:
        """Rollouts without a verdict, and groups that never closed."""
        missing = sum(record.size - len(record.members) for record in self.records.values())
        return missing + len(self.records.keys() - self.groups.keys())

    def group_seconds(self) -> list[float]:
        """From the opening of each group to its closing, in the order of the closings."""
        closed = sorted((at, name) for name, at in self.groups.items() if name in self.records)
        return [at - self.records[name].opened for at, name in closed]

    def hops(self) -> dict[str, list[float]]:
        """Seconds of every hop, by stage."""
        found: dict[str, list[float]] = defaultdict(list)
        last: dict[str, float] = {}
        for name, times in self.times.items():
            times.sort()
            for (begun, stage), (ended, _) in itertools.pairwise(times):
                found[stage].append(ended - begun)
            if times[-1][1] == "verdict":
                group = name.rpartition("-")[0]
                last[group] = max(last.get(group, 0.0), times[-1][0])
        found[ROLLOUT] = list(self.whole().values())
        found[LAST] = [closed - last[group] for group, closed in self.groups.items() if group in last]
        return found

    def first_verdict(self) -> float:
        """Seconds from the first rollout to the first verdict."""
        begun = min(time for times in self.times.values() for time, _ in times)
        return min(time for times in self.times.values() for time, stage in times if stage == "verdict") - begun


def spread(values: Sequence[float]) -> Spread:
    """Percentiles by nearest rank; of at least one value."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Spread(count=len(ordered), p50=at(0.5), p95=at(0.95), p99=at(0.99), most=ordered[-1])


async def read(bus: Bus, since: float) -> Journeys:
    """Everything that was stored after `since`, seconds since the epoch."""
    found = Journeys()
    for stage in (topology.GENERATE, topology.EXECUTE, topology.VERIFY, topology.VERDICT):
        async for subject, stored in _headers(bus, stage.stream, stage.subjects, since):
            domain, key = subject.split(".")[3:5]
            if stage is topology.VERDICT:
                found.domains[key] = domain
            elif match := KEY.fullmatch(key):
                key = match[1]
            found.times[key].append((stored, stage.name))
    async for subject, stored in _headers(bus, topology.GROUP.stream, topology.GROUP.subjects, since):
        found.groups[subject.rpartition(".")[2]] = stored
    found.letters = len([None async for _ in _headers(bus, topology.DLQ.stream, topology.DLQ.subjects, since)])
    for record in await records(bus):
        found.records[record.id] = record
    return found


async def _headers(bus: Bus, stream: str, subjects: str, since: float) -> AsyncIterator[tuple[str, float]]:
    state = (await bus.js.api(f"STREAM.INFO.{stream}"))["state"]
    if not state["messages"]:
        return
    with anyio.fail_after(READ_S):
        async with aclosing(bus.follow_raw(stream, subjects, headers_only=True)) as deliveries:
            async for delivery in deliveries:
                if delivery.stored >= since:
                    yield delivery.subject, delivery.stored
                if delivery.sequence >= state["last_seq"] or not delivery.pending:
                    return


async def records(bus: Bus) -> list[GroupRecord]:
    """Every group record of the bucket."""
    kv = bus.kv(topology.GROUPS_BUCKET)
    state = (await bus.js.api(f"STREAM.INFO.{kv.stream}"))["state"]
    found: list[GroupRecord] = []
    if not state["messages"]:
        return found
    with anyio.fail_after(READ_S):
        async with aclosing(bus.follow_raw(kv.stream, kv.subject(">"))) as deliveries:
            async for delivery in deliveries:
                record = decode_value(delivery.subject, delivery.body, GroupRecord)
                found += [record] if record is not None else []
                if delivery.sequence >= state["last_seq"] or not delivery.pending:
                    break
    return found
