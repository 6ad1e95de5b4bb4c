"""Power cut of all three servers: what was acknowledged is there in production durability, and not in development.

The stores lie on file systems of their own; servers are stopped at once under load, the block images copied, and
servers started on the copies. Write order within the device is not modelled. nats-io/nats-server#7564.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support import build, disks
from support.services import stored

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.cluster import Cluster, Node
from tiltyard.kit.jetstream import BusUnavailable, NotFound
from tiltyard.kit.provision import provision
from tiltyard_proto.topology import GENERATE

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
REPLICAS = 3
SYNC = {"production": "always", "development": "2m"}
ENOUGH = 300
"""Acknowledged messages after which the power goes."""


class Site:
    """Three servers, each on a disk of its own."""

    def __init__(self, root: Path, durability: str) -> None:
        disks.require()
        self.root = root
        self.sync = SYNC[durability]
        self.disks: list[disks.Disk] = []
        self.clusters: list[Cluster] = []
        for name in "abc":
            self.disks.append(disks.Disk.make(root, name))
        self.cluster = self._cluster([Node(name=disk.mount_point.name, store=disk.mount_point) for disk in self.disks])

    def _cluster(self, nodes: list[Node]) -> Cluster:
        cluster = Cluster(nodes, sync=self.sync)
        self.clusters.append(cluster)
        return cluster

    def stop_power(self) -> None:
        """Every server stops in the middle of whatever it does; nothing is written out."""
        for node in self.cluster.nodes:
            assert node.process is not None
            node.process.send_signal(signal.SIGSTOP)

    def restore(self) -> Cluster:
        """Servers on what the disks had."""
        copies = [disk.cut(self.root / "after") for disk in self.disks]
        self.disks += copies
        old = {node.name: node for node in self.cluster.nodes}
        self.cluster.stop()
        nodes = [
            Node(name=name, store=copy.mount_point, port=old[name].port, route=old[name].route)
            for name, copy in zip("abc", copies, strict=True)
        ]
        self.cluster = self._cluster(nodes)
        self.cluster.start()
        return self.cluster

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.stop()
        for disk in self.disks:
            disk.close()


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, request.param)
    try:
        made.cluster.start()
        yield made
    finally:
        made.close()


@asynccontextmanager
async def connected(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Bus]:
    bus = await Bus.connect(cluster.urls, BlobStore(tmp_path / "blobs"), "test")
    try:
        yield bus
    finally:
        await bus.close()


async def publish_until_dark(site: Site, tmp_path: Path) -> set[str]:
    """Publish under load and cut the power in the middle of it; the subjects that were acknowledged."""
    acknowledged: set[str] = set()
    enough = anyio.Event()

    async def publish(bus: Bus, worker: int) -> None:
        index = worker
        while True:
            rollout = build.rollout(member=index, size=10**6)
            if await bus.publish(GENERATE, rollout):
                acknowledged.add(GENERATE.subject(rollout))
            index += 16
            if len(acknowledged) >= ENOUGH:
                enough.set()

    async with connected(site.cluster, tmp_path) as bus, anyio.create_task_group() as tasks:
        await provision(bus, REPLICAS)
        for worker in range(16):
            tasks.start_soon(publish, bus, worker)
        with anyio.fail_after(60):
            await enough.wait()
        site.stop_power()
        await anyio.sleep(0.2)  # acknowledgements on their way count as well
        tasks.cancel_scope.cancel()
    return acknowledged


async def survivors(site: Site, tmp_path: Path) -> set[str]:
    """The subjects that the servers have after the power came back; none when the stream itself is gone."""
    cluster = await anyio.to_thread.run_sync(site.restore)
    with anyio.fail_after(60):
        async with connected(cluster, tmp_path) as bus:
            while True:
                try:
                    info = await bus.js.api(f"STREAM.INFO.{GENERATE.stream}")
                    if (info.get("cluster") or {}).get("leader"):
                        return set(await stored(bus, GENERATE))
                except NotFound:
                    return set()
                except BusUnavailable:
                    pass
                await anyio.sleep(0.2)


@pytest.mark.parametrize("site", ["production"], indirect=True)
async def test_production_loses_no_acknowledged_message(site: Site, tmp_path: Path) -> None:
    """After a power cut of all servers every acknowledged message is there."""
    acknowledged = await publish_until_dark(site, tmp_path)
    left = await survivors(site, tmp_path)
    lost = acknowledged - left
    print(f"acknowledged {len(acknowledged)}, lost {len(lost)}, stored {len(left)}")
    assert len(acknowledged) >= ENOUGH
    assert not lost


@pytest.mark.parametrize("site", ["development"], indirect=True)
async def test_development_does_lose_some(site: Site, tmp_path: Path) -> None:
    """The control: with the server's default sync the same cut loses acknowledged messages, so the test can tell."""
    acknowledged = await publish_until_dark(site, tmp_path)
    left = await survivors(site, tmp_path)
    print(f"acknowledged {len(acknowledged)}, lost {len(acknowledged - left)}")
    assert acknowledged - left
