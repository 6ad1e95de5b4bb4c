"""Dead letters on a test's bus: make some, serve a stage until it is idle."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from support import build

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.deadletters import Entry, Filter, Letters
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard.kit.provision import durable
from tiltyard.kit.serve import Reject, serve
from tiltyard_proto import flow
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE, VERDICT, VERIFY, Stage

REFUSED = "not by this release"
Handler = Callable[[Any], Awaitable[Sequence[Out]]]
QUICK: Stage[Rollout] = dataclasses.replace(GENERATE, retry_first_s=0.01, retry_cap_s=0.02)
"""The generate stage with next to no back-off."""


async def idle(bus: Bus, stage: Stage[Any] = GENERATE) -> bool:
    """Is every message of the stage answered? Not, as far as one knows, when a busy server does not say."""
    try:
        info = await bus.js.api(f"CONSUMER.INFO.{stage.stream}.{durable(stage)}")
        state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
    except BusUnavailable:
        return False
    answered = info["num_pending"] == 0 and info["num_ack_pending"] == 0
    return bool(answered and info["ack_floor"]["stream_seq"] >= state["last_seq"])


async def until_idle(bus: Bus, stage: Stage[Any] = GENERATE, within_s: float = 30) -> None:
    with anyio.fail_after(within_s):
        while not await idle(bus, stage):  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.05)


@asynccontextmanager
async def serving(
    bus: Bus, handler: Handler, stage: Stage[Any] = QUICK, *, bury: Any = None, slots: int = 16
) -> AsyncIterator[None]:
    """A stage served until the block ends."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def go() -> None:
            await serve(bus, stage, handler, slots=slots, stop=stop, bury=bury)

        tasks.start_soon(go)
        try:
            yield
        finally:
            stop.set()


async def serve_all(bus: Bus, handler: Handler, stage: Stage[Any] = QUICK, **options: Any) -> None:
    """Serve a stage until everything on it is answered."""
    async with serving(bus, handler, stage, **options):
        await until_idle(bus, stage)


async def refuse(_: Any) -> Sequence[Out]:
    raise Reject("validation", REFUSED)


def done(rollout: Rollout) -> Rollout:
    """The rollout with one turn, finished."""
    return flow.finish(flow.add_turn(rollout, build.turn()), Outcome.FINISHED)


async def take(rollout: Rollout) -> Sequence[Out]:
    """A handler that works."""
    return [(VERIFY, done(rollout))]


def bury(rollout: Rollout, outcome: Outcome, detail: str) -> Sequence[Out]:
    return [(VERDICT, flow.ungraded(rollout, outcome, detail))]


async def make_letters(bus: Bus, count: int, *, domain: str = "math.test", bury: Any = None) -> list[Entry]:
    """`count` rollouts that a handler refused."""
    of, group = build.task(domain), f"run-l-{len(domain)}"
    async with anyio.create_task_group() as tasks:
        for member in range(count):
            rollout = build.rollout(of, member=member, group=group, size=count)
            tasks.start_soon(bus.publish, GENERATE, rollout)
    await serve_all(bus, refuse, bury=bury)
    return await Letters(bus).all(Filter(domain=domain))
