"""Scenarios of the bus benchmark: full hops, an idle hop's latency, one flooding domain among many."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.provision import durable
from tiltyard.kit.pull import Puller
from tiltyard.kit.serve import Server
from tiltyard_proto import flow, keys
from tiltyard_proto.messages import ChatMessage, GroupRef, Rollout, Sampling, Task, Turn, Verification
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import EXECUTE, GENERATE, VERIFY

SLOTS = 8
WORK_S = 0.02
DOMAINS = 8
"""Domains of the hops at a stage that they share."""
Opened = Callable[[], AbstractAsyncContextManager[tuple[Bus, int, int]]]


class Fairness(msgspec.Struct, frozen=True):
    """What one flooding domain leaves to the others."""

    served: float
    p99_s: float
    throughput: float
    timer_p99_s: float
    """How late a timer of this process was in the same seconds: what of the wait is the machine's."""


class Hops(msgspec.Struct, frozen=True):
    """CPU microseconds of a hop with 64 in flight."""

    library: float
    """Of this process, with the library's calls."""
    served: float
    """Of this process, through a stage's handler."""
    server: float
    """Of the server meanwhile."""


class Idle(msgspec.Struct, frozen=True):
    """What one hop adds while nothing else is going on."""

    p50_s: float
    p99_s: float
    timer_p99_s: float
    """How late a timer of this process was in the same seconds: what of it is the machine's."""


def rollout(domain: str, group: str, member: int, text: str = "x" * 512) -> Rollout:
    """A rollout of about a kibibyte."""
    task = Task(
        id="", domain=domain, prompt=(ChatMessage(role="user", content=text),), verification=Verification(kind="k")
    )
    return Rollout(
        id=keys.rollout_id(group, member),
        run="bench",
        group=GroupRef(id=group, size=member + 1, deadline=4e9),
        member=member,
        task=msgspec.structs.replace(task, id="0" * 20),
        sampling=Sampling(),
        deadline=4e9,
    )


_TURN = Turn(context_ids=b"", action_ids=b"", logprobs=b"", versions=(), text="", finish="stop")


def ended(of: Rollout) -> Rollout:
    return flow.finish(flow.add_turn(of, _TURN), Outcome.FINISHED)


async def _publish(bus: Bus, rollouts: Sequence[Rollout], window: int = 256) -> None:
    left = iter(rollouts)

    async def some() -> None:
        for each in left:
            await bus.publish(GENERATE, each)

    await asyncio.gather(*(some() for _ in range(window)))


# ---------------------------------------------------------------- hops


async def hop_cpu(bus: Bus, hops: int, rounds: int, server: Callable[[], float]) -> Hops:
    """What a hop costs; `server` says what the server has used, in CPU seconds."""
    library: list[float] = []
    served: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        await _publish(bus, [rollout("bench.hop", f"bench-l{number}", member) for member in range(hops)])
        library.append(await _library_hops(bus, hops, number))
        await _publish(bus, [rollout("bench.hop", f"bench-s{number}", member) for member in range(hops)])
        before = server()
        served.append(await _served_hops(bus, hops))
        theirs.append(server() - before)
    medians = [statistics.median(each) / hops * 1e6 for each in (library, served, theirs)]
    return Hops(*medians)


async def shared_hop_cpu(bus: Bus, hops: int) -> float:
    """CPU microseconds of this process for a hop through the handler of a stage that domains share; on a fresh bus."""
    for number, count in enumerate((DOMAINS, hops)):  # first one of each, so that its consumer is there
        of = [rollout(f"bench.d{member % DOMAINS}", f"bench-f{number}", member) for member in range(count)]
        await _publish(bus, of)
        spent = await _served_hops(bus, count, fair=True)
    return spent / hops * 1e6


async def _library_hops(bus: Bus, hops: int, number: int) -> float:
    body = b"x" * 1024
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    busy = 0

    async def hop(delivery: Any, index: int) -> None:
        nonlocal busy
        await bus.js.publish(f"tilt.v1.verify.bench.{number}-{index}", body, {"Tilt-Schema": "rollout/1"}, expect=0)
        bus.say(delivery, b"+ACK")
        busy -= 1

    before = time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for index in range(hops):
            while busy >= 64 or (delivery := await puller.next(64 - busy)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            busy += 1
            tasks.create_task(hop(delivery, index))
    spent = time.process_time() - before
    await puller.stop()
    return spent


async def _served_hops(bus: Bus, hops: int, *, fair: bool = False) -> float:
    count, stop = 0, anyio.Event()

    async def handler(of: Rollout) -> Sequence[Out]:
        nonlocal count
        count += 1
        if count == hops:
            stop.set()
        return [(VERIFY, ended(of))]

    before = time.process_time()
    await Server(bus, GENERATE, handler, slots=64, bury=None, fair=fair).run(stop)
    return time.process_time() - before


async def idle_hop(bus: Bus, pings: int) -> Idle:
    """Seconds from a handler's return to the next stage's handler, one message at a time."""
    left: dict[str, float] = {}
    hops: list[float] = []
    late: list[float] = []
    done = anyio.Event()

    async def first(of: Rollout) -> Sequence[Out]:
        left[of.id] = time.perf_counter()
        return [(EXECUTE, flow.add_turn(of, _TURN))]

    async def second(of: Rollout) -> Sequence[Out]:
        now = time.perf_counter()
        hops.append(now - left[of.id])
        left[of.id] = time.perf_counter()
        return [(VERIFY, flow.finish(of, Outcome.FINISHED))]

    async def third(of: Rollout) -> Sequence[Out]:
        nonlocal done
        hops.append(time.perf_counter() - left[of.id])
        done.set()
        return []

    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for stage, handler in ((GENERATE, first), (EXECUTE, second), (VERIFY, third)):
            tasks.start_soon(Server(bus, stage, handler, slots=4, bury=None).run, stop)
        for member in range(pings):
            done = anyio.Event()
            await bus.publish(GENERATE, rollout("bench.idle", "bench-i", member))
            with anyio.fail_after(10):
                await done.wait()
            slept = time.perf_counter()
            await anyio.sleep(0.005)
            late.append(time.perf_counter() - slept - 0.005)
        stop.set()
    return Idle(_at(hops, 0.5), _at(hops, 0.99), _at(late, 0.99))


def _at(seconds: list[float], part: float) -> float:
    return sorted(seconds)[int(len(seconds) * part)]


# ---------------------------------------------------------------- one flooding domain


async def fairness(opened: Opened, domains: int, flood: int, seconds: float, rounds: int) -> Fairness:
    """A domain floods eight slots of 20 ms work while the others send one rollout now and then."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    waits: list[float] = []
    late: list[float] = []
    sent = 0
    for _ in range(rounds):
        for fair in (False, True):
            async with opened() as (bus, _, _):
                rate, waited, count = await _flooded(bus, domains, flood, seconds, fair=fair, late=late)
            rates[fair].append(rate)
            if fair:
                waits += waited
                sent += count
    ratio = statistics.median(rates[True]) / statistics.median(rates[False])
    return Fairness(len(waits) / sent, _at(waits, 0.99) if waits else 1e9, ratio, _at(late, 0.99))


async def _flooded(
    bus: Bus, domains: int, flood: int, seconds: float, *, fair: bool, late: list[float]
) -> tuple[float, list[float], int]:
    """Rollouts a second, the waits of the small domains' rollouts, and how many of those were sent."""
    await _publish(bus, [rollout("flood", "bench-f", member) for member in range(flood)])
    if fair:  # every domain is known: its consumer exists
        await _publish(bus, [rollout(f"small.d{index}", "bench-w", index) for index in range(1, domains)])
    born: dict[str, float] = {}
    waits: list[float] = []
    handled, warm = 0, set(range(1, domains))

    async def handler(of: Rollout) -> Sequence[Out]:
        nonlocal handled
        handled += 1
        if of.id in born:
            waits.append(time.perf_counter() - born[of.id])
        if of.group.id == "bench-w":
            warm.discard(of.member)
            return []
        await anyio.sleep(WORK_S)
        return []

    stop, count = anyio.Event(), 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=SLOTS, bury=None, fair=fair).run, stop)
        while (fair and warm) or not handled:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        before, start = handled, time.perf_counter()
        while time.perf_counter() - start < seconds:
            of = rollout(f"small.d{1 + count % (domains - 1)}", "bench-q", count)
            born[of.id] = time.perf_counter()
            await bus.publish(GENERATE, of)
            count += 1
            slept = time.perf_counter()
            await anyio.sleep(0.02)
            late.append(time.perf_counter() - slept - 0.02)
        rate = (handled - before) / (time.perf_counter() - start)
        with anyio.move_on_after(5 if fair else 0):
            while len(waits) < count:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        stop.set()
    return rate, waits, count
