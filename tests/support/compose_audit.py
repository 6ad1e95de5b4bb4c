"""Run in a container of the stack: is everything that a run opened judged, closed and archived, once? Prints JSON.

`compose_audit.py RUN`. What is compared: group records, verdicts and closed groups on the bus, the archive's files.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import anyio
import msgspec

from tiltyard.cli.archive import Archive
from tiltyard.cli.connection import connected
from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import depth
from tiltyard.kit.settings import DataSettings, read_source, section
from tiltyard_proto import keys, topology
from tiltyard_proto.messages import GroupRecord
from tiltyard_proto.topology import Stage


async def read(bus: Bus, stage: Stage[Any]) -> list[Any]:
    """Everything that a stage's stream holds now."""
    left = int((await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]["messages"])
    found: list[Any] = []
    if left:
        with anyio.fail_after(60):
            async for _, message in bus.follow(stage):
                found.append(message)
                if len(found) == left:
                    break
    return found


async def records(bus: Bus) -> list[GroupRecord]:
    bucket = bus.kv(topology.GROUPS_BUCKET)
    entries = [await bucket.get(key) for key in await bucket.keys()]
    return [msgspec.msgpack.decode(entry[0], type=GroupRecord) for entry in entries if entry is not None]


async def account(run: str) -> dict[str, Any]:
    """Counts, and what is wrong: kind to how often."""
    source = read_source(None)
    async with connected(source) as bus:
        opened = [each for each in await records(bus) if each.run == run]
        groups = [each for each in await read(bus, topology.GROUP) if each.run == run]
        verdicts = Counter(each.rollout.id for each in await read(bus, topology.VERDICT) if each.rollout.run == run)
        policies = sorted(each.version for each in await read(bus, topology.POLICY) if each.run == run)
        waiting = {stage.name: (await depth(bus, stage)).waiting for stage in topology.STAGES if stage.work}
        letters = len(await read(bus, topology.DLQ))
    expected = {keys.rollout_id(each.id, member) for each in opened for member in range(each.size)}
    members = Counter(member.verdict.rollout.id for each in groups for member in each.members)
    archive = Archive(section(source, "data", DataSettings).run_path(run))
    archived = {row[0] for row in archive.rows("SELECT rollout FROM rollouts")}
    problems = {
        "rollouts without a verdict": len(expected - verdicts.keys()),
        "verdicts of no rollout": len(verdicts.keys() - expected),
        "rollouts with two verdicts": sum(count > 1 for count in verdicts.values()),
        "groups not closed": len({each.id for each in opened} - {each.id for each in groups}),
        "groups closed twice": len(groups) - len({each.id for each in groups}),
        "rollouts in no group": len(expected - members.keys()),
        "rollouts in two groups": sum(count > 1 for count in members.values()),
        "rollouts not archived": len(expected - archived),
        "archived rollouts that were never opened": len(archived - expected),
        "versions missing": len(set(range(len(policies))) - set(policies)),
        "dead letters": letters,
        **{f"left waiting at {name}": count for name, count in waiting.items()},
    }
    return {
        "rollouts": len(expected),
        "groups": len(groups),
        "versions": len(policies),
        "problems": {name: count for name, count in problems.items() if count},
    }


if __name__ == "__main__":
    print(json.dumps(anyio.run(account, sys.argv[1])))
