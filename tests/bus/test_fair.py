"""Fair shares over a real server: domains, lanes, weights, restarts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from support import build
from support.services import settled
from support.waiting import until

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.serve import Retry, Server
from tiltyard_proto.messages import GroupRef, Purpose, Rollout
from tiltyard_proto.topology import GENERATE, WEIGHTS_BUCKET

pytestmark = pytest.mark.anyio
Handler = Callable[[Rollout], Awaitable[Sequence[Out]]]


@asynccontextmanager
async def served(bus: Bus, handler: Handler, slots: int = 4) -> AsyncIterator[None]:
    """Stage generate, served fairly until the block ends."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=slots, bury=None, fair=True).run, stop)
        yield
        stop.set()


async def fill(bus: Bus, domain: str, count: int, group: str, purpose: Purpose = Purpose.TRAIN) -> None:
    """Publish rollouts of one domain."""
    task = build.task(domain)
    async with anyio.create_task_group() as tasks:
        for member in range(count):
            ref = GroupRef(id=group, size=count, deadline=2e9, purpose=purpose)
            rollout = msgspec.structs.replace(build.rollout(task, member=member, group=group), group=ref)
            tasks.start_soon(bus.publish, GENERATE, rollout)


async def test_one_flooding_domain_does_not_starve_the_others(bus: Bus) -> None:
    """With a flood waiting before them, ten other domains' rollouts are all served while the flood has hardly begun."""
    await fill(bus, "flood", 400, "run-t-0")
    for index in range(10):
        await fill(bus, f"small.d{index}", 3, f"run-t-{index + 1}")
    order: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        await anyio.sleep(0.002)
        order.append(rollout.task.domain)
        return []

    async with served(bus, handler):
        await until(lambda: len(order) == 430, 30)
    last = max(index for index, domain in enumerate(order) if domain != "flood")
    assert Counter(order) == {"flood": 400, **{f"small.d{index}": 3 for index in range(10)}}
    assert last < 150
    work = await settled(bus, GENERATE)
    assert (work.waiting, work.consumers) == (0, 11)


async def test_evaluations_are_served_before_training(bus: Bus) -> None:
    """Evaluation rollouts that arrive behind two hundred others are served before almost all of them."""
    await fill(bus, "a", 200, "run-t-0")
    order: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        await anyio.sleep(0.002)
        order.append(rollout.group.purpose.value)
        return []

    async with served(bus, handler, slots=2):
        await until(lambda: len(order) >= 20)
        before = len(order)
        await fill(bus, "a", 10, "run-e0-0", Purpose.EVAL)
        await until(lambda: order.count("eval") == 10)
        assert len(order) - before < 60
        await until(lambda: len(order) == 210, 30)


async def test_weights_change_while_it_runs(bus: Bus) -> None:
    """Weights written to the bucket take effect within seconds: a domain of weight 4 then gets four times as much."""
    kv = bus.kv(WEIGHTS_BUCKET)
    await kv.put(GENERATE.name, msgspec.json.encode({"a.x": 4.0, "b": 1.0}))
    await fill(bus, "a.x", 400, "run-t-0")
    await fill(bus, "b", 400, "run-t-1")
    order: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        await anyio.sleep(0.002)
        order.append(rollout.task.domain)
        return []

    async with served(bus, handler):
        await until(lambda: len(order) >= 300, 30)
    share = Counter(order[100:300])
    assert 2.5 < share["a.x"] / share["b"] < 6


async def test_a_rollout_that_was_handed_back_returns(bus: Bus) -> None:
    """A retry comes back though nothing announces it, and the domain's consumer is not asked in vain for long."""
    tries: list[float] = []

    async def handler(_: Rollout) -> Sequence[Out]:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise Retry(0.5, "not yet")
        return []

    await fill(bus, "a", 1, "run-t-0")
    async with served(bus, handler):
        await until(lambda: len(tries) == 2)
    assert 0.45 < tries[1] - tries[0] < 3


async def test_served_across_a_killed_server(bus: Bus, nats_server: Any) -> None:
    """The domains' consumers are lost with the server, made again, and everything is served."""
    seen: Counter[str] = Counter()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        seen[rollout.id] += 1
        return []

    await fill(bus, "a", 20, "run-t-0")
    async with served(bus, handler):
        await until(lambda: len(seen) == 20)
        nats_server.kill()
        nats_server.start()
        await fill(bus, "a", 5, "run-t-1")
        await fill(bus, "b", 5, "run-t-2")
        await until(lambda: len(seen) == 30, 20)


async def test_two_servers_share_a_stage(bus: Bus) -> None:
    """Two servers of one stage split its work, and each rollout is handled once."""
    seen: list[tuple[int, str]] = []

    def handler(number: int) -> Handler:
        async def handle(rollout: Rollout) -> Sequence[Out]:
            await anyio.sleep(0.005)
            seen.append((number, rollout.id))
            return []

        return handle

    async with served(bus, handler(0)), served(bus, handler(1)):
        await fill(bus, "a", 100, "run-t-0")
        await fill(bus, "b", 100, "run-t-1")
        await until(lambda: len(seen) == 200, 30)
    assert len({each for _, each in seen}) == 200
    assert min(Counter(number for number, _ in seen).values()) > 20


async def test_only_what_may_come_again_is_asked_for(bus: Bus) -> None:
    """Domains that have nothing left, or all of it in hand, are not pulled from on suspicion; one that was handed back
    for later is, every second."""
    domains = {f"d{index}" for index in range(15)} | {"held", "later"}
    handled: set[str] = set()
    release = anyio.Event()
    asked: Counter[str] = Counter()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        handled.add(rollout.task.domain)
        if rollout.task.domain == "later":
            raise Retry(60, "not now")
        if rollout.task.domain == "held":
            await release.wait()
        return []

    def note(subject: bytes, *_: bytes) -> None:
        asked[subject.decode().rpartition("_d_")[2]] += 1

    await bus.client.tap(f"$JS.API.CONSUMER.MSG.NEXT.{GENERATE.stream}.>", note)
    for number, domain in enumerate(sorted(domains)):
        await fill(bus, domain, 1, f"run-t-{number}")
    async with served(bus, handler):
        await until(lambda: handled == domains and asked["later"] >= 3, 20)
        asked.clear()
        await until(lambda: asked["later"] >= 2, 20)
        assert set(asked) == {"later"}
        release.set()
