"""Edges of pulling: what a pull leaves behind, how soon it resumes, what it may hold."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs
from support import build

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.jetstream import BusUnavailable, NotFound
from tiltyard.kit.provision import consumer_config, durable, provision
from tiltyard.kit.pull import MAX_BYTES, Delivery, Puller
from tiltyard.kit.serve import Server, serve
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE

pytestmark = pytest.mark.anyio


async def info(bus: Bus) -> dict[str, Any]:
    return await bus.js.api(f"CONSUMER.INFO.{GENERATE.stream}.{durable(GENERATE)}")


async def puller_of(bus: Bus) -> Puller:
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    return puller


async def take(puller: Puller, free: int = 1, within_s: float = 5.0) -> Delivery:
    with anyio.fail_after(within_s):
        while (delivery := await puller.next(free)) is None:
            pass
    return delivery


async def test_a_pull_outstanding_at_a_restart_resumes(bus: Bus, nats_server: Any) -> None:
    """6: a message published after a restart is handled within two seconds though a pull was cut off by it."""
    puller = await puller_of(bus)
    assert await puller.next(1) is None
    nats_server.kill()
    nats_server.start()
    assert await bus.publish(GENERATE, build.rollout())
    started = time.monotonic()

    async def resume() -> Delivery:
        while True:
            try:
                return await take(puller)
            except BusUnavailable:  # away for a moment
                await anyio.sleep(0.02)

    with anyio.fail_after(5):
        delivery = await resume()
    assert time.monotonic() - started < 2
    assert delivery.deliveries == 1
    await puller.stop()


async def test_cancelled_pulls_steal_nothing(bus: Bus) -> None:
    """7: pulls that were cancelled in the middle leave nothing on the server that would take a message."""
    for _ in range(20):
        puller = await puller_of(bus)
        with anyio.move_on_after(0.01):
            await puller.next(8)
        assert await puller.stop() == []
    for member in range(10):
        await bus.publish(GENERATE, build.rollout(member=member))
    assert (await info(bus))["num_ack_pending"] == 0
    puller = await puller_of(bus)
    got = [await take(puller, 10) for _ in range(10)]
    assert {delivery.deliveries for delivery in got} == {1}
    await puller.stop()


async def test_an_idle_stage_stops_at_once(bus: Bus) -> None:
    """8: a stage that waits for messages ends within a second of being told to."""

    async def handler(_: Rollout) -> Sequence[Out]:
        return []

    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=4, bury=None).run, stop)
        await anyio.sleep(0.3)
        stop.set()
        started = time.monotonic()
    assert time.monotonic() - started < 1


async def test_a_deleted_consumer_is_told(bus: Bus) -> None:
    """9: when the consumer is deleted in the middle of a pull, the puller says so."""
    puller = await puller_of(bus)
    assert await puller.next(1) is None
    await bus.js.api(f"CONSUMER.DELETE.{GENERATE.stream}.{durable(GENERATE)}")
    with pytest.raises(NotFound):
        await take(puller)
    await puller.stop()


async def test_a_stage_outlives_its_consumer_without_spinning(bus: Bus) -> None:
    """9: while its consumer is missing a stage waits, with a few lines of log, and goes on once it is there again."""
    seen: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        seen.append(rollout.id)
        return []

    stop = anyio.Event()
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Server(bus, GENERATE, handler, slots=4, bury=None).run, stop)
            await anyio.sleep(0.1)
            await bus.js.api(f"CONSUMER.DELETE.{GENERATE.stream}.{durable(GENERATE)}")
            await anyio.sleep(1.5)
            await provision(bus)
            await bus.publish(GENERATE, build.rollout())
            with anyio.fail_after(5):
                while not seen:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            stop.set()
    assert 1 <= len([entry for entry in logs if entry["event"] == "stage_waits"]) < 12


async def test_a_slow_handler_loses_nothing_to_a_buffer(bus: Bus) -> None:
    """15: with one slow slot and many messages everything is handled at its first delivery; nothing is dropped."""
    deliveries: list[int] = []
    server: Server[Rollout]

    async def handler(_: Rollout) -> Sequence[Out]:
        await anyio.sleep(0.001)
        return []

    for member in range(200):
        await bus.publish(GENERATE, build.rollout(member=member))
    stop = anyio.Event()
    server = Server(bus, GENERATE, handler, slots=1, bury=None)
    inner = server._handle

    async def noted(delivery: Delivery, may_be_done: bool) -> str:
        deliveries.append(delivery.deliveries)
        return await inner(delivery, may_be_done)

    server._handle = noted  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, stop)
        with anyio.fail_after(20):
            while len(deliveries) < 200:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        stop.set()
    assert deliveries == [1] * 200


async def test_a_pull_is_bounded_in_bytes(bus: Bus) -> None:
    """18: a pull for many large messages delivers no more than the byte limit at a time, even to a loop that stalls."""
    body = b"x" * 900_000
    for key in range(20):
        await bus.js.publish(f"tilt.v1.generate.a.{key}", body, {})
    puller = await puller_of(bus)
    first = await take(puller, 20)
    time.sleep(0.3)  # noqa: ASYNC251  the loop stalls: what is on its way arrives
    await anyio.sleep(0.3)
    assert sum(len(delivery.body) for delivery in [first, *puller._buffer]) <= MAX_BYTES
    rest = [await take(puller, 20) for _ in range(19)]
    assert {delivery.deliveries for delivery in rest} == {1}
    assert bus.client.is_connected
    await puller.stop()


async def test_the_reason_of_a_termination_is_told(bus: Bus) -> None:
    """18: a terminated message leaves an advisory that carries the reason."""
    heard: list[bytes] = []
    await bus.client.tap("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", lambda *parts: heard.append(parts[3]))
    await bus.publish(GENERATE, build.rollout())
    puller = await puller_of(bus)
    bus.say(await take(puller), b"+TERM decode")
    with anyio.fail_after(5):
        while not heard:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert b'"reason":"decode"' in heard[0]
    await puller.stop()


@pytest.mark.parametrize("delay_s", [0.3, 0.8])
async def test_a_delayed_return_comes_when_it_was_asked_for(bus: Bus, delay_s: float) -> None:
    """A message handed back with a delay comes back after that delay, within a tenth, at every delivery."""
    await bus.publish(GENERATE, build.rollout())
    puller = await puller_of(bus)
    delivery = await take(puller)
    for expected in (2, 3, 4):
        bus.say(delivery, f'-NAK {{"delay": {int(delay_s * 1e9)}}}'.encode())
        started = time.monotonic()
        delivery = await take(puller)
        assert delivery.deliveries == expected
        assert delay_s * 0.97 < time.monotonic() - started < delay_s * 1.1 + 0.15
    await puller.stop()


async def test_never_more_unacknowledged_than_slots(bus: Bus) -> None:
    """With two slots and work longer than the lease, at most two messages are out, and each is delivered once."""
    await bus.js.api(
        f"CONSUMER.DURABLE.CREATE.{GENERATE.stream}.{durable(GENERATE)}",
        {"stream_name": GENERATE.stream, "config": consumer_config(GENERATE) | {"ack_wait": int(0.5e9)}},
    )
    stage = dataclasses.replace(GENERATE, ack_wait_s=0.5)
    done: list[str] = []

    async def slow(rollout: Rollout) -> Sequence[Out]:
        await anyio.sleep(1.2)
        done.append(rollout.id)
        return []

    for member in range(4):
        await bus.publish(GENERATE, build.rollout(member=member))
    most, redelivered, stop = 0, 0, anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, stage, slow, slots=2, bury=None).run, stop)
        with anyio.fail_after(20):
            while len(done) < 4:
                state = await info(bus)
                most = max(most, state["num_ack_pending"])
                redelivered = max(redelivered, state["num_redelivered"])
                await anyio.sleep(0.05)
        stop.set()
    assert (most, redelivered, len(set(done))) == (2, 0, 4)


async def test_a_closed_client_does_not_freeze_the_loop(bus: Bus) -> None:
    """When the connection has been closed under a stage, the event loop goes on and the stage can be stopped."""

    async def handler(_: Rollout) -> Sequence[Out]:
        return []

    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await serve(bus, GENERATE, handler, slots=2, stop=stop)

        tasks.start_soon(run)
        await anyio.sleep(0.1)
        await bus.close()
        ticks = 0
        end = asyncio.get_running_loop().time() + 0.5
        while asyncio.get_running_loop().time() < end:
            await anyio.sleep(0.01)
            ticks += 1
        stop.set()
    assert ticks > 10
