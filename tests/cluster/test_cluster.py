"""Three servers on loopback, streams with three copies: servers killed, led elsewhere and scaled under load.

Nothing acknowledged is lost, every key has one effect, every message is handled or dead. Problems that others had and
this answers: nats-io/nats-server #3272, #7817, #7148, #4956, #5839, #4320, #7545, #5638.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from support.clusters import (
    Account,
    answered,
    connected,
    finish_or_reject,
    idle,
    kill_leader,
    leader_of,
    publish_all,
    rollouts,
    serving,
    set_up,
)

from tiltyard.kit.bus import Bus
from tiltyard.kit.cluster import Cluster
from tiltyard.kit.provision import durable, stream_config
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import DLQ, GENERATE, TASK, VERIFY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster.under(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
async def bus(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Bus]:
    async with connected(cluster.urls, tmp_path) as made:
        await set_up(made)
        yield made


async def held(bus: Bus) -> int:
    """Messages on stage generate, once its leader answers."""
    info = await answered(lambda: bus.js.api(f"STREAM.INFO.{GENERATE.stream}"))
    return int(info["state"]["messages"])


async def test_a_leader_killed_under_load_loses_nothing(bus: Bus, cluster: Cluster, tmp_path: Path) -> None:
    """The leader of the stream is killed while messages are published and handled: every key is handled once."""
    account, half = Account(1, 300), anyio.Event()
    async with connected(cluster.urls, tmp_path, "worker") as worker, serving(worker):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_all, bus, rollouts(1, 300), half)
            await half.wait()
            await kill_leader(bus, cluster)
        await account.settled(bus)
    assert await account.stored(bus, GENERATE) == await account.stored(bus, VERIFY) == account.wanted
    assert await account.dead(bus) == set()


async def test_one_winner_per_key_over_leader_kills(bus: Bus, cluster: Cluster) -> None:
    """Fifty racers for each key, a leader killed in between: one is told that it won, and its message is there."""
    items, racers = rollouts(2, 12), 50
    winners: dict[int, list[Rollout]] = {item.member: [] for item in items}

    async def race(item: Rollout) -> None:
        if await bus.publish(GENERATE, item):
            winners[item.member].append(item)

    async with anyio.create_task_group() as tasks:
        for item in items:
            if item.member == 6:
                await kill_leader(bus, cluster)
            for racer in range(racers):
                tasks.start_soon(race, msgspec.structs.replace(item, created=float(racer)))
    for item in items:
        stored = await answered(lambda i=item: bus.get(GENERATE, GENERATE.subject(i)))  # type: ignore[misc]
        assert winners[item.member] == [stored]


async def test_every_message_is_handled_or_dead_over_leader_changes(bus: Bus, cluster: Cluster, tmp_path: Path) -> None:
    """Every tenth message is rejected while stream and consumer change their leaders: none is lost, none is both."""
    count = 200
    account, half = Account(3, count), anyio.Event()
    async with connected(cluster.urls, tmp_path, "worker") as worker, serving(worker, finish_or_reject):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_all, bus, rollouts(3, count), half)
            await half.wait()
            for stage in (GENERATE, DLQ, VERIFY):
                await answered(lambda s=stage: bus.js.api(f"STREAM.LEADER.STEPDOWN.{s.stream}"))  # type: ignore[misc]
            name = f"{GENERATE.stream}.{durable(GENERATE)}"
            await answered(lambda: bus.js.api(f"CONSUMER.LEADER.STEPDOWN.{name}"))
        await account.settled(bus)
    dead = await account.dead(bus)
    assert dead == {member for member in range(count) if member % 10 == 0}
    assert await account.stored(bus, VERIFY) == account.wanted - dead


async def test_keys_are_remembered_over_a_restart_of_all(bus: Bus, cluster: Cluster, tmp_path: Path) -> None:
    """Messages that were handled, then published again after all servers were killed, have no second effect."""
    items, account = rollouts(4, 40), Account(4, 40)
    async with connected(cluster.urls, tmp_path, "worker") as worker, serving(worker):
        await publish_all(bus, items, anyio.Event())
        await account.settled(bus)
        for node in cluster.nodes:
            cluster.kill(node)
        await anyio.to_thread.run_sync(cluster.start)
        before = await held(bus)
        await publish_all(bus, items, anyio.Event())  # an answer that was lost on the way may read as won
        assert await held(bus) == before
        assert await answered(lambda: idle(bus, GENERATE))
    assert await account.stored(bus, VERIFY) == account.wanted


async def test_copies_can_be_changed_under_load(bus: Bus) -> None:
    """Three copies to one and back while messages are published: what was acknowledged is there."""
    items, half = rollouts(5, 200), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish_all, bus, items, half)
        await half.wait()
        for copies in (1, 3):
            config = stream_config(GENERATE, copies)
            await answered(lambda c=config: bus.js.api(f"STREAM.UPDATE.{GENERATE.stream}", c))  # type: ignore[misc]
    assert await Account(5, 200).stored(bus, GENERATE) == set(range(200))


async def test_a_follower_sees_everything_in_order_over_a_kill(bus: Bus, cluster: Cluster) -> None:
    """A stream followed by position is seen once and in order though its leader is killed in between."""
    from support import build

    seen: list[str] = []
    wanted = [build.task(text=f"order {index}") for index in range(40)]
    enough = anyio.Event()

    async def follow() -> None:
        async for _, task in bus.follow(TASK):
            seen.append(task.id)
            if len(seen) == len(wanted):
                enough.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        for task in wanted[:20]:
            await bus.publish(TASK, task)
        node = await leader_of(bus, cluster, TASK)
        await anyio.to_thread.run_sync(cluster.kill, node)
        for task in wanted[20:]:
            await bus.publish(TASK, task)
        await anyio.to_thread.run_sync(cluster.start)
        with anyio.fail_after(40):
            await enough.wait()
        tasks.cancel_scope.cancel()
    assert seen == [task.id for task in wanted]
