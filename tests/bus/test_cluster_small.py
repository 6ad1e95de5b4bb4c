"""Three servers, one killed under load: the part of `make cluster` that every test run does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.clusters import Account, connected, kill_leader, publish_all, rollouts, serving, set_up

from tiltyard.kit.cluster import Cluster
from tiltyard_proto.topology import GENERATE, VERIFY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
COUNT = 80


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.under(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_one_of_three_servers_is_killed_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """The server that leads a stage is killed while its messages are published and handled, and comes back: everything
    is stored and handled once, and nothing is a dead letter."""
    account, half = Account(1, COUNT), anyio.Event()
    async with connected(cluster.urls, tmp_path / "blobs") as bus:
        await set_up(bus)
        async with connected(cluster.urls, tmp_path / "blobs", "worker") as worker, serving(worker):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish_all, bus, rollouts(1, COUNT), half)
                await half.wait()
                await kill_leader(bus, cluster)
            await account.settled(bus)
        assert await account.stored(bus, GENERATE) == await account.stored(bus, VERIFY) == account.wanted
        assert await account.dead(bus) == set()
