"""What arrives while a suspect has the worker to itself: it waits, and is nobody else's meanwhile."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import anyio
import pytest
from support import build
from support.clusters import set_lease
from support.waiting import until

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.delivery import Delivery
from tiltyard.kit.provision import durable
from tiltyard.kit.pull import Puller
from tiltyard.kit.serve import Server
from tiltyard.kit.suspects import NOTHING, Evidence
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE

pytestmark = pytest.mark.anyio
LEASE_S = 0.4
STAGE = dataclasses.replace(GENERATE, ack_wait_s=LEASE_S)


async def suspect(bus: Bus) -> Rollout:
    """A message that a worker died of, as far as one knows; its lease has yet to end."""
    rollout = build.rollout(member=0, size=9)
    await bus.publish(GENERATE, rollout)
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    delivery: Delivery | None = None
    while delivery is None:
        delivery = await puller.next(1)
    await puller.stop()
    await Evidence(bus, GENERATE, "a dead one").hold(delivery, NOTHING, alone=False)
    return rollout


async def test_what_waits_for_a_suspect_keeps_its_lease(bus: Bus) -> None:
    """Messages that arrive while a suspect is handled for several leases are handled once, at their first delivery."""
    await set_lease(bus, GENERATE, LEASE_S)
    dark = await suspect(bus)
    begun = anyio.Event()
    handled: Counter[str] = Counter()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        if rollout.id == dark.id:
            begun.set()
            await anyio.sleep(5 * LEASE_S)
        handled[rollout.id] += 1
        await anyio.sleep(LEASE_S)
        return []

    server, stop = Server(bus, STAGE, handler, slots=4, bury=None), anyio.Event()
    counts: list[int] = []
    inner = server._handle

    async def noted(delivery: Delivery, may_be_done: bool) -> str:
        counts.append(delivery.deliveries)
        return await inner(delivery, may_be_done)

    server._handle = noted  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, stop)
        with anyio.fail_after(10):
            await begun.wait()
        for member in (1, 2):
            await bus.publish(GENERATE, build.rollout(member=member, size=9))
        await until(lambda: len(handled) == 3, 10)
        await anyio.sleep(2 * LEASE_S)
        stop.set()
    assert set(handled.values()) == {1}
    assert counts == [2, 1, 1]
