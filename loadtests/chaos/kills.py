"""Kill a random service every few seconds and the NATS server several times, and measure how soon each works again.

A service with a work queue works again at the first delivery after the kill, read from its consumer while there was
something to deliver; the others when they say that they are ready. Invariant: the order of kills follows from the
seed; their times do not. Left out: polite stops, which are the drain's tests.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from datetime import datetime

import anyio
from plan import Plan
from rig.world import World

from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import consumers
from tiltyard.kit.jetstream import BusError
from tiltyard_proto import topology
from tiltyard_proto.topology import Stage

STAGES: dict[str, Stage[object]] = {
    "gateway": topology.GENERATE,
    "sandbox": topology.EXECUTE,
    "verifier": topology.VERIFY,
    "aggregator": topology.VERDICT,
}
DEATH_S = 0.15
"""A delivery this soon after a kill still went to the dead process."""
PATIENCE_S = 30.0


class Killer:
    """The kills of one test."""

    def __init__(self, world: World, bus: Bus, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.bus = bus
        self.kills: Counter[str] = Counter()
        self.recoveries: dict[str, list[float]] = {}
        """Seconds until a killed service worked again, by service."""
        self._random = random.Random(plan.seed)

    async def services(self) -> None:
        """A random service every `kill_every_s` seconds, until the plan's kills are done or cancelled."""
        plan = self.plan
        async with anyio.create_task_group() as watchers:
            while not plan.kills or sum(self.kills.values()) - self.kills["nats"] < plan.kills:
                await anyio.sleep(plan.kill_every_s)
                name = self._random.choice(sorted(self.world.children))
                pid = self.world.children[name].pid
                if pid is None:
                    continue  # killed a moment ago and not back yet
                killed = time.monotonic(), time.time()
                os.kill(pid, signal.SIGKILL)
                self.kills[name] += 1
                watchers.start_soon(self._watch, name, *killed)

    async def server(self, done: float) -> None:
        """Kill the server when that share of the rollouts is done, and start it again; called as the share grows."""
        due = int(done * (self.plan.server_kills + 1))
        if self.kills["nats"] < min(due, self.plan.server_kills):
            self.kills["nats"] += 1
            await anyio.to_thread.run_sync(self.world.kill_server)
            self.world.start_server()
            await self.world.until_served()

    async def _watch(self, name: str, clock: float, wall: float) -> None:
        """Note how long the service was away, unless nothing waited for it or it was killed again meanwhile."""
        kills, server = self.kills[name], self.kills["nats"]
        with anyio.move_on_after(PATIENCE_S):
            found = await (self._delivered(name, wall) if name in STAGES else self._ready(name, clock))
            if found is not None and (self.kills[name], self.kills["nats"]) == (kills, server):
                self.recoveries.setdefault(name, []).append(found)

    async def _ready(self, name: str, clock: float) -> float:
        while self.world.ready.get(name, 0.0) <= clock:  # noqa: ASYNC110  (log lines are no event)
            await anyio.sleep(0.05)
        return self.world.ready[name] - clock

    async def _delivered(self, name: str, wall: float) -> float | None:
        stage = STAGES[name]
        while True:
            await anyio.sleep(0.1)
            try:
                found = await consumers(self.bus, stage)
            except BusError:
                return None
            stamps = [info["delivered"]["last_active"] for info in found if "last_active" in info["delivered"]]
            after = max(map(seconds, stamps), default=0.0) - wall
            if after > DEATH_S:
                return after
            if not any(info["num_pending"] for info in found):
                return None


def seconds(stamp: str) -> float:
    """Seconds since the epoch of the server's time stamp (nanoseconds, RFC 3339)."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
