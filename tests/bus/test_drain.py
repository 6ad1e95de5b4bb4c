"""Draining and redelivery: nothing is lost, nothing is done twice, nothing is redelivered without need."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from support import build
from support.services import eventually, settled
from support.waiting import until

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.depth import depth
from tiltyard.kit.provision import durable
from tiltyard.kit.pull import Puller
from tiltyard.kit.serve import Server
from tiltyard_proto import flow
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE, VERIFY

pytestmark = pytest.mark.anyio


def finished(rollout: Rollout) -> Rollout:
    return flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED)


async def redelivered(bus: Bus) -> int:
    return int((await bus.js.api(f"CONSUMER.INFO.{GENERATE.stream}.{durable(GENERATE)}"))["num_redelivered"])


@pytest.mark.parametrize("fair", [False, True], ids=["one_queue", "fair"])
async def test_a_rolling_restart_under_load_redelivers_nothing(bus: Bus, fair: bool) -> None:
    """Workers that stop and start again while work comes in handle every rollout exactly once, at first delivery."""
    handled: Counter[str] = Counter()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        await anyio.sleep(0.01)
        handled[rollout.id] += 1
        return [(VERIFY, finished(rollout))]

    async def worker(restarts: int) -> None:
        for _ in range(restarts):
            stop = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Server(bus, GENERATE, handler, slots=4, bury=None, fair=fair).run, stop)
                await anyio.sleep(0.25)
                stop.set()

    async def publish() -> None:
        for member in range(200):
            await bus.publish(GENERATE, build.rollout(member=member, size=200))
            await anyio.sleep(0.002)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish)
        tasks.start_soon(worker, 8)
        await anyio.sleep(0.1)
        tasks.start_soon(worker, 8)
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=8, bury=None, fair=fair).run, stop)
        await until(lambda: len(handled) == 200, 20)
        stop.set()
    assert set(handled.values()) == {1}
    work = await settled(bus, GENERATE)
    assert (work.waiting, work.redelivered) == (0, 0)


async def test_what_cannot_finish_goes_back_at_the_deadline(bus: Bus) -> None:
    """At the end of the drain, hanging work is handed back at once, and another worker has it long before the lease."""
    started = anyio.Event()

    async def hang(_: Rollout) -> Sequence[Out]:
        started.set()
        await anyio.sleep_forever()
        return []

    await bus.publish(GENERATE, build.rollout())
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, hang, slots=4, bury=None).run, stop, 0.3)
        await started.wait()
        stop.set()
        begun = time.monotonic()
    assert time.monotonic() - begun < 1.5
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    with anyio.fail_after(2):
        while (delivery := await puller.next(1)) is None:
            pass
    assert delivery.deliveries == 2
    await puller.stop()


async def test_running_work_is_finished_while_draining(bus: Bus) -> None:
    """Work that ends within the drain is published and acknowledged, and its lease is extended meanwhile."""
    started = anyio.Event()

    async def slow(rollout: Rollout) -> Sequence[Out]:
        started.set()
        await anyio.sleep(0.5)
        return [(VERIFY, finished(rollout))]

    await bus.publish(GENERATE, build.rollout())
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, slow, slots=4, bury=None).run, stop)
        await started.wait()
        stop.set()
    assert await bus.get(VERIFY, VERIFY.subject(finished(build.rollout()))) is not None
    assert await redelivered(bus) == 0


async def test_work_that_is_done_is_not_done_again(bus: Bus) -> None:
    """A redelivered rollout whose result is stored is acknowledged without being handled."""
    handled: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        handled.append(rollout.id)
        return [(VERIFY, finished(rollout))]

    done, open_ = build.rollout(member=0), build.rollout(member=1)
    for rollout in (done, open_):
        await bus.publish(GENERATE, rollout)
    await bus.publish(VERIFY, finished(done))
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))  # a worker that dies between publish and acknowledge
    await puller.start()
    for _ in range(2):
        while (delivery := await puller.next(2)) is None:
            pass
        bus.say(delivery, b"-NAK")
    await puller.stop()
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=4, bury=None).run, stop)

        async def empty() -> None:
            while (work := await depth(bus, GENERATE)).waiting or work.in_flight:  # noqa: ASYNC110
                await anyio.sleep(0.02)

        with anyio.fail_after(10):
            await empty()
        stop.set()
    assert handled == [open_.id]


async def test_a_repeated_publish_whose_answer_was_lost_counts_as_first(bus: Bus, monkeypatch: Any) -> None:
    """When the answer to a publish is lost, trying again finds the own message there and says that it was the first."""
    from tiltyard.kit.jetstream import BusUnavailable

    real, calls = bus.js.publish, 0

    async def lossy(*args: Any, **kwargs: Any) -> int:
        nonlocal calls
        calls += 1
        sequence = await real(*args, **kwargs)
        if calls == 1:
            raise BusUnavailable("the answer was lost")
        return sequence

    monkeypatch.setattr(bus.js, "publish", lossy)
    assert await bus.publish(GENERATE, build.rollout())
    assert calls == 2
    assert not await bus.publish(GENERATE, build.rollout(created=2.0))


@pytest.mark.parametrize("fair", [False, True], ids=["one_queue", "fair"])
async def test_a_killed_server_does_not_have_work_done_again(bus: Bus, nats_server: Any, fair: bool) -> None:
    """A server that is killed forgets the last answers and delivers again as if for the first time: what has its
    result is acknowledged without being handled."""
    handled: Counter[str] = Counter()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        handled[rollout.id] += 1
        return [(VERIFY, finished(rollout))]

    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=8, bury=None, fair=fair).run, stop)
        for member in range(20):
            await bus.publish(GENERATE, build.rollout(member=member, size=40))
        await eventually(bus, VERIFY, 20)
        nats_server.kill()
        nats_server.start()
        for member in range(20, 40):
            await bus.publish(GENERATE, build.rollout(member=member, size=40))
        await until(lambda: len(handled) == 40, 20)
        stop.set()
    assert handled.total() == 40
