"""What the bus alone carries: the operations of a single-turn rollout, by a client that does nothing else.

A rollout is three stored messages, three deliveries with their acknowledgements, and a look and a write in a bucket; a
group is a write, a look and a write in the bucket, a read of each verdict and one stored message. All of them go to
streams of their own, configured as the real ones and with bodies of the sizes that the load had, on the same server
right after it; the streams are removed. So rate and CPU of client and server say what is left to the services.
Left out: decoding, checks, and whatever a service does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiltyard.cli.up.child import cpu_seconds
from tiltyard.kit.bus import Bus
from tiltyard.kit.errors import Conflict
from tiltyard.kit.provision import bucket_config, consumer_config, stream_config
from tiltyard.kit.pull import Puller
from tiltyard_proto import topology

PREFIX = "load_bare"
HOPS = 3
RECORD = 256
"""Bytes of a group's record, about."""


@dataclass(frozen=True, kw_only=True)
class Bare:
    """What was found."""

    rate: float
    """Rollouts per second."""
    client_ms: float
    """CPU of the client for a rollout."""
    server_ms: float | None
    """CPU of the server for a rollout; None where it runs elsewhere."""


async def sizes(bus: Bus) -> list[int]:
    """Mean bytes of a message at generate, verify, verdict and group."""
    found = []
    for stage in (topology.GENERATE, topology.VERIFY, topology.VERDICT, topology.GROUP):
        state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
        found.append(min(900_000, state["bytes"] // max(1, state["messages"])))
    return found


class Chain:
    """Rollouts on their way through three streams."""

    def __init__(self, bus: Bus, bodies: Sequence[int], rollouts: int, size: int, in_flight: int) -> None:
        self.bus = bus
        self.bodies = [b"x" * count for count in bodies]
        self.rollouts = rollouts
        self.size = size
        self.joined: dict[int, int] = {}
        self.free = asyncio.Semaphore(in_flight)
        self.left = rollouts
        self.done = asyncio.Event()

    async def create(self) -> None:
        for hop in range(HOPS + 1):
            stream = f"{PREFIX}_{hop}"
            config = stream_config(topology.GENERATE) | {"name": stream, "subjects": [f"{PREFIX}.{hop}.>"]}
            await self.bus.js.api(f"STREAM.CREATE.{stream}", config)
            if hop < HOPS:
                payload = {"stream_name": stream, "config": consumer_config(topology.GENERATE)}
                await self.bus.js.api(f"CONSUMER.DURABLE.CREATE.{stream}.generate_work", payload)
        config = bucket_config(PREFIX)
        await self.bus.js.api(f"STREAM.CREATE.{config['name']}", config)

    async def remove(self) -> None:
        for stream in (*(f"{PREFIX}_{hop}" for hop in range(HOPS + 1)), f"KV_{PREFIX}"):
            await self.bus.js.api(f"STREAM.DELETE.{stream}")

    async def run(self) -> None:
        """All rollouts, one after another as room comes free."""
        async with asyncio.TaskGroup() as tasks:
            pullers = [tasks.create_task(self._serve(hop, tasks)) for hop in range(HOPS)]
            for number in range(self.rollouts):
                await self.free.acquire()
                tasks.create_task(self._open(number))
            await self.done.wait()
            for puller in pullers:
                puller.cancel()

    async def _open(self, number: int) -> None:
        group, member = divmod(number, self.size)
        if member == 0:
            await self.bus.kv(PREFIX).create(str(group), b"x" * RECORD)
        await self._store(0, number)

    async def _store(self, hop: int, key: int) -> None:
        await self.bus.js.publish(f"{PREFIX}.{hop}.{key}", self.bodies[hop], {"Tilt-Schema": "rollout/1"}, expect=0)

    async def _serve(self, hop: int, tasks: asyncio.TaskGroup) -> None:
        puller = Puller(self.bus.js, f"{PREFIX}_{hop}", "generate_work")
        await puller.start()
        try:
            while True:
                delivery = puller.take(256) or await puller.next(256)
                if delivery is not None:
                    tasks.create_task(self._hop(hop, delivery))
        finally:
            await puller.stop()

    async def _hop(self, hop: int, delivery: Any) -> None:
        number = int(delivery.subject.rpartition(".")[2])
        if hop + 1 < HOPS:
            await self._store(hop + 1, number)
        else:
            await self._join(number // self.size)
            self.free.release()
        self.bus.say(delivery, b"+ACK")
        if hop + 1 == HOPS:
            self.left -= 1
            if not self.left:
                self.done.set()

    async def _join(self, group: int) -> None:
        bucket = self.bus.kv(PREFIX)
        while True:
            entry = await bucket.get(str(group))
            if entry is None or await bucket.update(str(group), b"x" * RECORD, entry[1]):
                break
        self.joined[group] = self.joined.get(group, 0) + 1
        if self.joined[group] == self.size:
            await self._close(group)

    async def _close(self, group: int) -> None:
        for member in range(self.size):
            await self.bus.js.last(f"{PREFIX}_2", f"{PREFIX}.2.{group * self.size + member}")
        try:
            await self._store(HOPS, group)
        except Conflict:  # a second delivery
            return
        entry = await self.bus.kv(PREFIX).get(str(group))
        if entry is not None:
            await self.bus.kv(PREFIX).update(str(group), b"x" * RECORD, entry[1])


async def measure(bus: Bus, server_pid: int | None, rollouts: int, size: int, in_flight: int = 256) -> Bare:
    """Take `rollouts` (a multiple of the group size) through the chain."""
    chain = Chain(bus, await sizes(bus), rollouts, size, in_flight)
    await chain.create()
    try:
        started, client = time.monotonic(), time.process_time()
        server = cpu_seconds(server_pid) if server_pid else 0.0
        await chain.run()
        seconds, used = time.monotonic() - started, time.process_time() - client
        served = cpu_seconds(server_pid) - server if server_pid else None
    finally:
        await chain.remove()
    return Bare(
        rate=rollouts / seconds,
        client_ms=used / rollouts * 1e3,
        server_ms=None if served is None else served / rollouts * 1e3,
    )
