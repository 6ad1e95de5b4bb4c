"""A domain whose messages die is paused before its queue has drained into the dead letters; others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from prometheus_client import REGISTRY
from support import build, letters
from support.services import context, eventually, running, stored
from support.waiting import until

from tiltyard.cli import connection
from tiltyard.cli.main import main
from tiltyard.kit import breaker
from tiltyard.kit.breaker import Breaker, Pause
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.deadletters import Letters
from tiltyard.kit.serve import Reject, Server
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler import app as sampler
from tiltyard.sampler.settings import SamplerSettings
from tiltyard_proto import topology
from tiltyard_proto.messages import Policy, Rollout
from tiltyard_proto.topology import GENERATE, PAUSES_BUCKET, VERIFY

pytestmark = pytest.mark.anyio
BAD, GOOD = "math.bad", "math.good"
WINDOW = 10


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back comes again soon."""
    monkeypatch.setattr(breaker, "AGAIN_S", 0.2)


class Release:
    """A release that can't handle one domain until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    async def handle(self, rollout: Rollout) -> Sequence[Out]:
        if rollout.task.domain == BAD and not self.mended:
            raise Reject("validation", "no such profile")
        return await letters.take(rollout)


@asynccontextmanager
async def serving(bus: Bus, handler: Any, *, share: float = 0.8, slots: int = 1) -> AsyncIterator[Server[Rollout]]:
    stop = anyio.Event()
    made = Breaker(bus, GENERATE, share=share, window=WINDOW)
    server = Server(bus, letters.QUICK, handler, slots=slots, bury=None, breaker=made)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, stop)
        yield server
        stop.set()


async def publish(bus: Bus, domain: str, count: int, group: str) -> None:
    of = build.task(domain)
    for member in range(count):
        await bus.publish(GENERATE, build.rollout(of, member=member, group=group, size=count))


async def call(capsys: Any, url: str, *arguments: str) -> str:
    """Call the command off the test's event loop; what it said."""
    capsys.readouterr()
    status = await anyio.to_thread.run_sync(main, [*arguments, "--set", f'bus.servers=["{url}"]'])
    said = capsys.readouterr()
    assert status == 0, said.err
    return str(said.out)


async def test_a_domain_that_dies_is_paused_until_it_is_resumed(
    bus: Bus, nats_server: Any, capsys: Any, monkeypatch: Any
) -> None:
    """After a window of deaths the rest of the domain's messages wait, another domain is served, a restarted worker
    keeps to it, commands and the metric say so; after `dlq resume` what waited is handled."""
    monkeypatch.setattr(connection.log_setup, "setup", lambda *_, **__: None)
    release = Release()
    await publish(bus, BAD, 40, "run-t-0")
    async with serving(bus, release.handle) as server:
        await until(lambda: BAD in server.breaker.paused)
        await publish(bus, GOOD, 5, "run-t-1")
        await eventually(bus, VERIFY, 5)
    assert REGISTRY.get_sample_value("tiltyard_paused", {"stage": "generate", "domain": BAD}) == 1
    async with serving(bus, release.handle) as server:
        await until(lambda: BAD in server.breaker.paused)
        died = len(await Letters(bus).all())
        assert WINDOW <= died < 20
        for command in (("dlq", "ls"), ("status",)):
            said = " ".join((await call(capsys, nats_server.url, *command)).split())
            assert f"paused: {BAD} at generate" in said
            assert f"{WINDOW} of {WINDOW} messages died there (validation: no such profile)" in said
        release.mended = True
        said = await call(capsys, nats_server.url, "dlq", "resume", "--domain", BAD)
        assert said.endswith(f"resumed: {BAD} at generate\n")
        await letters.until_idle(bus)
    assert len(await Letters(bus).all()) == died
    assert len(await stored(bus, VERIFY)) == 5 + 40 - died
    assert REGISTRY.get_sample_value("tiltyard_paused", {"stage": "generate", "domain": BAD}) == 0
    assert await call(capsys, nats_server.url, "dlq", "resume", "--all") == "nothing like that is paused\n"


@pytest.mark.parametrize("sound", [20, 0])
async def test_endings_of_a_burst_are_judged_together(bus: Bus, sound: int) -> None:
    """Quick refusals of a burst end before what is handled beside them: a third that dies pauses nobody, all does."""
    refused = anyio.Event()
    deaths = 0

    async def handle(rollout: Rollout) -> Sequence[Out]:
        nonlocal deaths
        if rollout.member < sound:
            await refused.wait()
            return await letters.take(rollout)
        deaths += 1
        raise Reject("validation", "refused at once")

    await publish(bus, BAD, 30, "run-t-0")
    async with serving(bus, handle, slots=30) as server:
        if sound:
            await until(lambda: deaths == 30 - sound)
            await eventually(bus, topology.DLQ, 30 - sound)
            refused.set()
            await letters.until_idle(bus)
            assert not server.breaker.paused
        else:
            await until(lambda: BAD in server.breaker.paused)
    assert len(await Letters(bus).all()) == 30 - sound


async def test_garbage_pauses_nobody(bus: Bus) -> None:
    """A flood of bytes that are no message on a domain's subjects is its sender's doing: the domain is served."""
    for index in range(3 * WINDOW):
        await bus.js.publish(f"tilt.v1.generate.math__good.bad{index}", b"\xff\xff", {})
    await publish(bus, GOOD, 3, "run-t-0")
    async with serving(bus, Release().handle) as server:
        await letters.until_idle(bus)
        assert not server.breaker.paused
    assert len(await stored(bus, VERIFY)) == 3
    assert len(await Letters(bus).all()) == 3 * WINDOW


@pytest.mark.parametrize(("every", "share"), [(2, 0.8), (1, 0.0)])
async def test_what_dies_now_and_then_pauses_nobody(bus: Bus, every: int, share: float) -> None:
    """Below the share nothing is paused, and with a share of 0 nothing ever is."""

    async def handler(rollout: Rollout) -> Sequence[Out]:
        if rollout.member % every == 0:
            raise Reject("validation", "now and then")
        return await letters.take(rollout)

    await publish(bus, GOOD, 3 * WINDOW, "run-t-0")
    async with serving(bus, handler, share=share) as server:
        await letters.until_idle(bus)
        assert not server.breaker.paused
    assert await breaker.standing(bus) == []
    assert len(await Letters(bus).all()) == 3 * WINDOW // every


async def test_the_sampler_opens_no_group_of_a_paused_domain(bus: Bus, tmp_path: Path) -> None:
    """While a stage has paused a domain, groups are opened for the other one alone."""
    run = RunSettings(
        name="run", steps=1, groups_per_step=6, group_size=2, staleness=0,
        train={BAD: TaskShare(tasks=2), GOOD: TaskShare(tasks=2)},
    )  # fmt: skip
    pause = Pause(stage="verify", domain=BAD, since=1.0, died=9, of=10, detail="handler: KeyError")
    await bus.kv(PAUSES_BUCKET).put(pause.key, msgspec.msgpack.encode(pause))
    for domain in (BAD, GOOD):
        for index in range(2):
            await bus.publish(topology.TASK, build.task(domain, text=str(index), template=str(index)))
    settings = SamplerSettings(settle_s=0.2, tick_s=0.05)
    async with running(sampler.start, context("sampler", bus, run, settings, tmp_path)):
        await bus.publish(topology.POLICY, Policy(run="run", version=0, path="/w/0"))
        subjects = await eventually(bus, GENERATE, 12)
    assert {subject.split(".")[3] for subject in subjects} == {"math__good"}


def test_the_window_begins_anew_when_a_domain_goes_on() -> None:
    """A pause that is over is no pause, and its key is the same."""
    pause = Pause(stage="verify", domain=BAD, since=1.0, died=9, of=10, detail="")
    over = msgspec.structs.replace(pause, resumed=2.0, by="somebody")
    assert (pause.holds, over.holds) == (True, False)
    assert pause.key == over.key == "verify-math__bad"
