"""Work on a three-server cluster: publish, serve, and account for every key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from support import build
from support.services import stored

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.cluster import Cluster, Node
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.provision import consumer_config, durable, provision
from tiltyard.kit.serve import Reject, serve
from tiltyard_proto import flow, keys, topology
from tiltyard_proto.messages import Purpose, Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import DLQ, GENERATE, VERIFY, Stage

REPLICAS = 3
LEASE_S = 2.0


@asynccontextmanager
async def connected(urls: Sequence[str], blobs: Path, name: str = "test") -> AsyncIterator[Bus]:
    """A connection, closed at the end."""
    bus = await Bus.connect(urls, BlobStore(blobs), name)
    try:
        yield bus
    finally:
        await bus.close()


async def answered(call: Callable[[], Any], within_s: float = 40) -> Any:
    """What `call()` returns once the cluster answers; TimeoutError after `within_s` seconds."""
    with anyio.fail_after(within_s):
        while True:
            try:
                return await call()
            except BusUnavailable:
                await anyio.sleep(0.1)


async def set_up(bus: Bus) -> None:
    """Streams with three copies, and short leases so that lost acknowledgements cost little time."""
    await answered(lambda: provision(bus, REPLICAS))
    for stage in topology.STAGES:
        if stage.work:
            await set_lease(bus, stage, LEASE_S)


async def set_lease(bus: Bus, stage: Stage[Any], seconds: float) -> None:
    """Let unanswered deliveries of a stage come again after `seconds`."""
    config = consumer_config(stage) | {"ack_wait": int(seconds * 1e9)}
    payload = {"stream_name": stage.stream, "config": config}
    await answered(lambda: bus.js.api(f"CONSUMER.DURABLE.CREATE.{stage.stream}.{durable(stage)}", payload))


async def leader_of(bus: Bus, cluster: Cluster, stage: Stage[Any]) -> Node:
    """The server that leads a stage's stream."""

    async def ask() -> str:
        info = await bus.js.api(f"STREAM.INFO.{stage.stream}")
        if not (name := (info.get("cluster") or {}).get("leader")):
            raise BusUnavailable("no leader")
        return str(name)

    return cluster.node(await answered(ask))


async def kill_leader(bus: Bus, cluster: Cluster) -> None:
    """Kill whoever leads stage generate, wait until another does, bring the killed one back."""
    old = await leader_of(bus, cluster, GENERATE)
    await anyio.to_thread.run_sync(cluster.kill, old)
    with anyio.fail_after(40):
        while await leader_of(bus, cluster, GENERATE) is old:  # noqa: ASYNC110  (no event)
            await anyio.sleep(0.1)
    await anyio.to_thread.run_sync(cluster.start)


async def publish_all(bus: Bus, items: list[Rollout], half: anyio.Event, workers: int = 8) -> list[bool]:
    """Publish with several workers; says when half is done. True for each that was stored as new."""
    left, won = iter(items), list[bool]()

    async def work() -> None:
        for item in left:
            won.append(await bus.publish(GENERATE, item))
            if len(won) * 2 >= len(items):
                half.set()

    async with anyio.create_task_group() as tasks:
        for _ in range(workers):
            tasks.start_soon(work)
    return won


def rollouts(group: int, count: int) -> list[Rollout]:
    """Rollouts with keys of their own."""
    name = keys.group_id("run", Purpose.TRAIN, group)
    return [build.rollout(member=member, group=name, size=count) for member in range(count)]


async def finish(rollout: Rollout) -> Sequence[Out]:
    """A handler that ends the rollout."""
    return [(VERIFY, flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED))]


async def finish_or_reject(rollout: Rollout) -> Sequence[Out]:
    """A handler that can't take every tenth rollout."""
    if rollout.member % 10 == 0:
        raise Reject("validation", "every tenth")
    return await finish(rollout)


class Account:
    """Where the rollouts of one group are."""

    def __init__(self, group: int, count: int) -> None:
        self.group = group
        self.wanted = set(range(count))

    async def stored(self, bus: Bus, stage: Stage[Any]) -> set[int]:
        """Members that lie on a stage; asserts that none is there twice."""
        prefix = keys.group_id("run", Purpose.TRAIN, self.group) + "-"
        ours = [subject.rsplit(".", 1)[1] for subject in await answered(lambda: stored(bus, stage))]
        members = [int(key.removeprefix(prefix).split("-")[0]) for key in ours if key.startswith(prefix)]
        assert len(members) == len(set(members)), f"{stage.name}: a member is there twice"
        return set(members)

    async def dead(self, bus: Bus) -> set[int]:
        """Members that lie in the dead-letter stream."""
        found: set[int] = set()
        for subject in await answered(lambda: stored(bus, DLQ)):
            letter = await answered(lambda s=subject: bus.get(DLQ, s))  # type: ignore[misc]
            rollout = topology.decode(GENERATE, letter.body)
            if rollout.group.id == keys.group_id("run", Purpose.TRAIN, self.group):
                found.add(rollout.member)
        return found

    async def settled(self, bus: Bus, within_s: float = 60) -> None:
        """Until every rollout is either verified or dead, and nothing waits for an answer."""
        with anyio.fail_after(within_s):
            while True:
                verified = await self.stored(bus, VERIFY)
                if verified | await self.dead(bus) == self.wanted and await idle(bus, GENERATE):
                    return
                await anyio.sleep(0.2)


async def idle(bus: Bus, stage: Stage[Any]) -> bool:
    """Nothing of a stage is pending or unanswered."""
    info = await answered(lambda: bus.js.api(f"CONSUMER.INFO.{stage.stream}.{durable(stage)}"))
    return bool(info["num_pending"] == info["num_ack_pending"] == 0)


@asynccontextmanager
async def serving(bus: Bus, handler: Any = finish) -> AsyncIterator[None]:
    """Stage generate is served while the block runs."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await serve(bus, GENERATE, handler, slots=8, stop=stop)

        tasks.start_soon(run)
        try:
            yield
        finally:
            stop.set()
