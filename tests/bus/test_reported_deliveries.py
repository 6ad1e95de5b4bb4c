"""Problems with deliveries that users of NATS and of libraries on it reported, and that this bus must not have.

Which report is which test: docs/reported-problems.md.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build, letters, training
from support.clusters import set_lease
from support.proxy import proxied
from support.services import eventually, stored
from support.waiting import until

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.deadletters import Letters
from tiltyard.kit.depth import depth
from tiltyard.kit.janitor import trim
from tiltyard.kit.provision import consumer_config, durable, flow_config, provision
from tiltyard.kit.pull import EXPIRES_S, Delivery, Puller
from tiltyard.trainer.handler import Full, Intake, take
from tiltyard_proto.flow import StepFold
from tiltyard_proto.messages import Policy, Rollout
from tiltyard_proto.topology import GENERATE, GROUP, POLICY, VERIFY, Stage

pytestmark = pytest.mark.anyio
FAR = 1e6
STAGE: Stage[Rollout] = dataclasses.replace(GENERATE, ack_wait_s=0.5, max_deliveries=3)


async def lose_consumers(bus: Bus) -> None:
    """Delete the consumers of whoever follows the policies."""
    with anyio.fail_after(10):
        while not (names := (await bus.js.api(f"CONSUMER.NAMES.{POLICY.stream}"))["consumers"]):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    for name in names:
        await bus.js.api(f"CONSUMER.DELETE.{POLICY.stream}.{name}")


@pytest.mark.parametrize("silent", [False, True], ids=["told", "silent"])
async def test_a_follower_whose_consumer_is_gone(nats_server: Any, tmp_path: Path, silent: bool) -> None:
    """A version published after the follower's consumer was deleted is heard within six seconds, also when the word
    of it was lost on a connection that went silent; nothing is heard twice."""
    async with proxied(nats_server.port) as proxy:
        direct = await Bus.connect(nats_server.url, BlobStore(tmp_path), "direct")
        await provision(direct)
        bus = await Bus.connect(proxy.url, BlobStore(tmp_path), "test")
        heard: list[int] = []

        async def follow() -> None:
            async for _, policy in bus.follow(POLICY):
                heard.append(policy.version)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await direct.publish(POLICY, Policy(run="run", version=0, path="/w"))
            await until(lambda: heard == [0])
            if silent:
                proxy.flows.clear()
            await lose_consumers(direct)
            await direct.publish(POLICY, Policy(run="run", version=1, path="/w"))
            proxy.flows.set()
            await until(lambda: len(heard) > 1, 6)
            tasks.cancel_scope.cancel()
        assert heard == [0, 1]
        await bus.close()
        await direct.close()


async def steps_of(bus: Bus, sizes: list[int], count: int) -> None:
    """The trainer's intake over the stream: the size of each step it cuts, until `count` groups were taken."""
    intake = Intake(fold=StepFold(groups_per_step=3, refill_cap=4.0), position=0)
    taken = 0
    async for sequence, group in bus.follow(GROUP):
        full: Full | None
        intake, full = take(intake, sequence, group, "run")
        taken += 1
        if full is not None:
            sizes.append(len(full.groups))
        if taken == count:
            return


async def test_fewer_than_asked_for_come_at_once(bus: Bus) -> None:
    """A follower that asks for hundreds and finds two has both long before its request expires, and the rest of the
    step completes it whenever it comes."""
    for index in range(2):
        await bus.publish(GROUP, training.simple_group(index))
    seen: list[float] = []

    async def follow() -> None:
        async for _ in bus.follow(GROUP):
            seen.append(time.monotonic())

    sizes: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        started = time.monotonic()
        await until(lambda: len(seen) == 2)
        assert seen[-1] - started < EXPIRES_S / 2
        tasks.start_soon(steps_of, bus, sizes, 3)
        await anyio.sleep(0.3)
        assert sizes == []
        await bus.publish(GROUP, training.simple_group(2))
        await until(lambda: sizes == [3])
        tasks.cancel_scope.cancel()


async def test_a_step_has_its_size_whatever_bursts_come(bus: Bus) -> None:
    """Groups that arrive singly, in pairs and all at once are cut into steps of the size that was asked for."""
    sizes: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steps_of, bus, sizes, 9)
        index = 0
        for burst in (1, 2, 1, 5):
            async with anyio.create_task_group() as publishing:
                for _ in range(burst):
                    publishing.start_soon(bus.publish, GROUP, training.simple_group(index))
                    index += 1
            await anyio.sleep(0.1)
    assert sizes == [3, 3, 3]


async def exhausted(bus: Bus, times: int) -> Delivery:
    """A message that was delivered `times` times and never answered; nobody pulls afterwards."""
    await set_lease(bus, STAGE, 0.2)
    await bus.publish(GENERATE, build.rollout())
    puller = Puller(bus.js, STAGE.stream, durable(STAGE))
    await puller.start()
    with anyio.fail_after(30):
        while (delivery := await puller.next(1)) is None or delivery.deliveries < times:
            pass
    await puller.stop()
    return delivery


async def test_what_is_exhausted_while_nobody_pulls_gets_its_letter(bus: Bus, nats_server: Any) -> None:
    """A message that was unanswered as often as allowed, then waited without any worker and over a kill of the server,
    becomes a letter as soon as a worker is there: that rests on no advisory of the server's."""
    await exhausted(bus, STAGE.max_deliveries)
    nats_server.kill()
    nats_server.start()

    async def failing(_: Rollout) -> Sequence[Out]:
        raise MemoryError("what nobody could handle")

    await letters.serve_all(bus, failing, STAGE, bury=letters.bury)
    (entry,) = await Letters(bus).all()
    assert entry.letter.subject == GENERATE.subject(build.rollout())


async def test_what_is_exhausted_stays_visible(bus: Bus) -> None:
    """However often it was unanswered, a message counts as the stage's work, can be read, survives the janitor and is
    delivered: no consumer has a limit at which the server would drop it from sight."""
    await exhausted(bus, 3 * STAGE.max_deliveries)
    work = await depth(bus, GENERATE)
    assert work.waiting + work.in_flight == 1
    assert await trim(bus, GENERATE, keep_s=1, now=time.time() + FAR) == 0
    assert await bus.get(GENERATE, GENERATE.subject(build.rollout())) == build.rollout()
    again = await exhausted(bus, 3 * STAGE.max_deliveries + 1)
    assert again.subject == GENERATE.subject(build.rollout())
    assert consumer_config(GENERATE)["max_deliver"] == flow_config(GENERATE, "a")["max_deliver"] == -1
    info = await bus.js.api(f"CONSUMER.INFO.{GENERATE.stream}.{durable(GENERATE)}")
    assert info["config"]["max_deliver"] == -1


async def test_work_longer_than_its_lease_is_delivered_once(bus: Bus) -> None:
    """A rollout whose handling takes five leases is in one worker's hands all that time."""
    await set_lease(bus, STAGE, STAGE.ack_wait_s)
    times = 0

    async def slow(rollout: Rollout) -> Sequence[Out]:
        nonlocal times
        times += 1
        await anyio.sleep(5 * STAGE.ack_wait_s)
        return await letters.take(rollout)

    await bus.publish(GENERATE, build.rollout())
    async with letters.serving(bus, slow, STAGE), letters.serving(bus, slow, STAGE):
        await eventually(bus, VERIFY, 1)
        await letters.until_idle(bus, GENERATE)
    assert (times, (await depth(bus, GENERATE)).redelivered) == (1, 0)


async def test_a_burst_of_answers_keeps_pace(bus: Bus) -> None:
    """Two thousand answers at once are all counted within seconds: they delete nothing, the stream keeps its keys."""
    count = 2000
    async with anyio.create_task_group() as tasks:
        for member in range(count):
            tasks.start_soon(bus.publish, GENERATE, build.rollout(member=member, size=count))
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    held: list[Delivery] = []
    with anyio.fail_after(20):
        while len(held) < count:
            delivery = await puller.next(count)
            held += [delivery] if delivery is not None else []
    for delivery in held:
        bus.say(delivery, b"+ACK")
    await letters.until_idle(bus, GENERATE, within_s=10)
    await puller.stop()
    assert {delivery.deliveries for delivery in held} == {1}
    info = await bus.js.api(f"STREAM.INFO.{GENERATE.stream}")
    assert info["state"]["messages"] == count


async def test_an_acknowledged_key_is_remembered_over_a_kill(bus: Bus, nats_server: Any) -> None:
    """A message that was handled and acknowledged, then published again after the server was killed, has no second
    effect: what remembers it is the stream itself, not a window of message ids."""
    await set_lease(bus, STAGE, STAGE.ack_wait_s)  # a kill may forget that a message was answered
    await bus.publish(GENERATE, build.rollout())
    await letters.serve_all(bus, letters.take, STAGE)
    before = await bus.js.last(VERIFY.stream, VERIFY.subject(letters.done(build.rollout())))
    nats_server.kill()
    nats_server.start()
    assert not await bus.publish(GENERATE, build.rollout(created=2.0))
    await letters.serve_all(bus, letters.take, STAGE)
    assert await stored(bus, VERIFY) == [VERIFY.subject(letters.done(build.rollout()))]
    assert await bus.js.last(VERIFY.stream, VERIFY.subject(letters.done(build.rollout()))) == before
