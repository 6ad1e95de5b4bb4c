"""The network between three servers is cut around the leader, which its clients still reach, and heals.

The isolated leader must not acknowledge what the others don't have; the other two go on; afterwards everything that
anybody was told is stored is there once, and all work is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.clusters import Account, answered, connected, leader_of, rollouts, serving, set_up
from support.networks import Network
from support.services import stored

from tiltyard.kit.bus import Bus
from tiltyard.kit.cluster import Cluster, Node
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE, VERIFY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network("abc")
    yield made
    made.close()


@pytest.fixture
def cluster(network: Network, tmp_path: Path) -> Iterator[Cluster]:
    nodes = [
        Node(name=name, store=tmp_path / name, host=network.address(name), prefix=network.enter(name))
        for name in network.names
    ]
    made = Cluster(nodes)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Publisher:
    """Publishes rollouts one after another through one server; remembers which are acknowledged."""

    def __init__(self, bus: Bus, items: list[Rollout]) -> None:
        self.bus = bus
        self.items = items
        self.acknowledged: set[str] = set()

    async def run(self) -> None:
        for item in self.items:
            await self.bus.publish(GENERATE, item)
            self.acknowledged.add(GENERATE.subject(item))
            await anyio.sleep(0.01)

    async def reach(self, count: int, within_s: float = 60) -> None:
        with anyio.fail_after(within_s):
            while len(self.acknowledged) < count:  # noqa: ASYNC110  (any condition)
                await anyio.sleep(0.02)


async def test_a_leader_cut_off_from_the_others(network: Network, cluster: Cluster, tmp_path: Path) -> None:
    """With the leader isolated the majority elects another and goes on; after the heal nothing is lost or doubled."""
    count = 150
    async with connected(cluster.urls, tmp_path / "blobs") as bus:
        await set_up(bus)
        leader = await leader_of(bus, cluster, GENERATE)
    others = [node for node in cluster.nodes if node is not leader]
    async with (
        connected([leader.url], tmp_path / "blobs", "inside") as inside,
        connected([others[0].url], tmp_path / "blobs", "outside") as outside,
        connected([node.url for node in others], tmp_path / "blobs", "worker") as worker,
        serving(worker),
    ):
        cut_off = Publisher(inside, rollouts(1, count))
        majority = Publisher(outside, rollouts(2, count))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cut_off.run)
            tasks.start_soon(majority.run)
            await cut_off.reach(20)
            await majority.reach(20)
            network.cut(leader.name)
            before = len(majority.acknowledged)
            with anyio.fail_after(60):
                while await leader_of(outside, cluster, GENERATE) is leader:  # noqa: ASYNC110  (no event)
                    await anyio.sleep(0.1)
            await majority.reach(min(count, before + 20))
            assert len(cut_off.acknowledged) < count, "the isolated leader went on alone"
            told = set(cut_off.acknowledged)
            there = set(await answered(lambda: stored(outside, GENERATE)))
            assert told <= there, "the isolated leader acknowledged what the others don't have"
            network.heal(leader.name)
        for group in (1, 2):
            account = Account(group, count)
            await account.settled(outside)
            assert await account.stored(outside, VERIFY) == account.wanted
    assert len(cut_off.acknowledged) == len(majority.acknowledged) == count
