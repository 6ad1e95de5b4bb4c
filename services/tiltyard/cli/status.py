"""`tiltyard status`: what is running, queue depths, in-flight work per domain, the policy version, dead letters."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from typing import Any

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from tiltyard.kit.breaker import standing
from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import depth
from tiltyard.kit.jetstream import NotFound
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Policy, RunStatus

from .connection import connected
from .dlq.pauses import note
from .errors import UserError
from .main import source_of


async def stages(bus: Bus) -> list[dict[str, Any]]:
    """Depth of every stage's stream and consumer."""
    rows: list[dict[str, Any]] = []
    for stage in topology.STAGES:
        try:
            state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
        except NotFound as error:
            raise UserError(
                f"the bus holds no stream {stage.stream}: run `tiltyard provision` or `tiltyard up`"
            ) from error
        row = {"stage": stage.name, "stored": state["messages"], "bytes": state["bytes"]}
        if stage.work:
            work = await depth(bus, stage)
            row |= {
                "waiting": work.waiting,
                "in_flight": work.in_flight,
                "redelivered": work.redelivered,
                "idle_pulls": work.pulls,
            }
        rows.append(row)
    return rows


async def runs(bus: Bus) -> list[dict[str, Any]]:
    """Every run's state, policy version and open groups per domain."""
    groups = bus.kv(topology.GROUPS_BUCKET)
    open_groups: dict[str, Counter[str]] = {}
    for key in await groups.keys():
        entry = await groups.read(key, GroupRecord)
        if entry is not None and (record := entry[0]) is not None and not record.closed:
            counter = open_groups.setdefault(record.run, Counter())
            counter[record.domain] += record.size - len(record.members)
    bucket = bus.kv(topology.RUNS_BUCKET)
    found: list[dict[str, Any]] = []
    for name in await bucket.keys():
        stored = await bucket.read(name, RunStatus)
        if stored is None or (state := stored[0]) is None:
            continue
        policy: Policy | None = await bus.latest_policy(name)
        found.append(
            {
                "run": name,
                "state": state.state,
                "detail": state.detail,
                "age_s": round(time.time() - state.started, 1),
                "policy": policy.version if policy else None,
                "weights": policy.path if policy else None,
                "in_flight": dict(open_groups.get(name, {})),
            }
        )
    return found


def unserved(row: dict[str, Any]) -> bool:
    """Does work wait at a stage that nobody works on or asks for work from?"""
    return bool(row.get("waiting")) and not row["in_flight"] and not row["idle_pulls"]


def _print(state: dict[str, Any]) -> None:
    console = Console(highlight=False)
    for run in state["runs"]:
        console.print(f"run {run['run']}: {run['state']}, {run['detail']}, policy {run['policy']} ({run['weights']})")
        for domain, count in run["in_flight"].items():
            console.print(f"  {domain}: {count} rollouts in flight")
    table = Table("stage", "stored", "waiting", "in flight", "redelivered", "idle pulls", "", box=None)
    for row in state["stages"]:
        cells = (row.get(key, "") for key in ("stored", "waiting", "in_flight", "redelivered", "idle_pulls"))
        table.add_row(
            row["stage"], *map(str, cells), "nobody takes it: is the service running?" if unserved(row) else ""
        )
    console.print(table)
    if dead := next(row["stored"] for row in state["stages"] if row["stage"] == "dlq"):
        console.print(f"{dead} dead letters", style="red")
    note(console, state["paused"], time.time())


async def _status(arguments: Namespace) -> dict[str, Any]:
    async with connected(source_of(arguments)) as bus:
        depths = await stages(bus)
        return {"runs": await runs(bus), "stages": depths, "paused": await standing(bus)}


def main(arguments: Namespace) -> int:
    state = anyio.run(_status, arguments)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(state)).decode())
    else:
        _print(state)
    return 0
