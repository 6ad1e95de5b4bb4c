"""Every stage, killed after its k-th publish for every k until the work is done: the next process completes it once.

The first process talks to the server through a proxy that cuts it off right after the k-th frame that changes something
(an output, a record, a lease extension, an acknowledgement), so everything between "published" and "acknowledged" is
hit. A second process then takes over. What lies on the other stages must be exactly what an undisturbed process leaves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from support import build
from support.chat import ByteChat
from support.clusters import set_lease
from support.cutter import cutting
from support.services import context, stored

from tiltyard.aggregator import app as aggregator
from tiltyard.aggregator.backend import BusLedger
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.gateway.app import Gateway
from tiltyard.gateway.backend import HttpEngine
from tiltyard.gateway.fake import FakeEngine
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.gateway.weights import Keeper
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.provision import durable
from tiltyard.kit.serve import serve
from tiltyard.kit.settings import RunSettings
from tiltyard.sandbox.app import Service
from tiltyard.sandbox.null import NullBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard.verifier.app import Verifier
from tiltyard.verifier.backend import System
from tiltyard.verifier.kinds.registry import installed
from tiltyard_proto import keys, topology
from tiltyard_proto.messages import (
    Command,
    Environment,
    Graded,
    GroupRecord,
    Job,
    Message,
    Policy,
    Purpose,
    Verification,
)
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import EXECUTE, GENERATE, VERDICT, VERIFY, Stage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
MOST = 40
"""Cuts tried at most; a stage must be done long before."""
Run = Callable[[Bus, anyio.Event], Awaitable[None]]


class Case(ABC):
    """One stage: its service, and the messages it is given."""

    stage: Stage[Any]

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path

    async def prepare(self, bus: Bus, group: str) -> None:
        """What must be there before the messages: nothing, for most stages."""
        await anyio.lowlevel.checkpoint()

    @abstractmethod
    def messages(self, group: str) -> Sequence[Message]:
        """What the stage is given."""

    @abstractmethod
    async def serve(self, bus: Bus, stop: anyio.Event) -> None:
        """The service, until `stop`."""


class Generate(Case):
    """The gateway over a fake engine."""

    stage = GENERATE

    def messages(self, group: str) -> Sequence[Message]:
        return [build.rollout(member=0, group=group), build.rollout(self._shell(), member=1, group=group)]

    def _shell(self) -> Any:
        return build.task(environment=Environment(interface="shell"), turns=2)

    async def serve(self, bus: Bus, stop: anyio.Event) -> None:
        engine = FakeEngine()
        settings = GatewaySettings(engines=(await engine.start(),), probe_s=0.05, poll_s=0.2)
        try:
            async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
                client = HttpEngine(settings.engines[0], session, settings)
                gateway = Gateway("run", bus, [client], settings, lambda _: ByteChat())
                gateway.wanted.offer(Policy(run="run", version=0, path="/w/0"))
                keeper = Keeper(gateway.pool.engines[0], gateway.pool, gateway.wanted, gateway.refresh, settings)
                tasks.start_soon(keeper.run)
                await serve(bus, GENERATE, gateway.handle, slots=4, stop=stop, bury=gateway.bury)
                tasks.cancel_scope.cancel()
        finally:
            await engine.stop()


class Execute(Case):
    """The sandbox service over the back-end that runs nothing: a turn and a grading job."""

    stage = EXECUTE

    def messages(self, group: str) -> Sequence[Message]:
        command = Command(argv=("sh", "-c", "echo 1"))
        task = build.task(environment=Environment(interface="shell"), turns=3)
        turn = build.rollout(task, member=0, group=group, turns=(build.turn(command=command),))
        ended = build.rollout(task, member=1, group=group, turns=(build.turn(),), outcome=Outcome.FINISHED)
        return [turn, Job(rollout=ended, command=command, profile="python", collect=("command",))]

    async def serve(self, bus: Bus, stop: anyio.Event) -> None:
        settings = SandboxSettings(backend="null", pool={})
        worker = Worker(settings, Pool(NullBackend(settings), settings), bus.blobs)
        await serve(bus, EXECUTE, Service(worker).handle, slots=4, stop=stop)


class Verify(Case):
    """The verifier: a verdict at once, a planned job, a graded job."""

    stage = VERIFY

    def messages(self, group: str) -> Sequence[Message]:
        files = Verification(kind="files", data={"expected": {"command": "echo 1"}})
        task = build.task(verification=files, environment=Environment(interface="shell"))
        workspace = BlobStore(self.tmp_path / "blobs").put(b"")
        made = {"turns": (build.turn(workspace=workspace),), "outcome": Outcome.FINISHED}
        return [
            build.rollout(member=0, group=group, turns=(build.turn(),), outcome=Outcome.FINISHED),
            build.rollout(task, member=1, group=group, **made),
            Graded(rollout=build.rollout(task, member=2, group=group, **made), execution=build.execution()),
        ]

    async def serve(self, bus: Bus, stop: anyio.Event) -> None:
        await serve(bus, VERIFY, Verifier(System(installed())).handle, slots=4, stop=stop)


class Aggregate(Case):
    """The whole aggregator: records, group, archive."""

    stage = VERDICT

    async def prepare(self, bus: Bus, group: str) -> None:
        record = GroupRecord(
            id=group, run="run", domain="math.test", task_id="t", template="one", purpose=Purpose.TRAIN, version=0,
            size=3, deadline=2e9, opened=1.0,
        )  # fmt: skip
        assert await BusLedger(bus).write(record, 0)

    def messages(self, group: str) -> Sequence[Message]:
        ended = {"turns": (build.turn(),), "outcome": Outcome.FINISHED, "size": 3}
        return [build.verdict(build.rollout(member=m, group=group, **ended), float(m % 2)) for m in range(3)]

    async def serve(self, bus: Bus, stop: anyio.Event) -> None:
        of = context("aggregator", bus, RunSettings(name="run"), AggregatorSettings(), self.tmp_path)
        of.stop = stop
        await aggregator.start(of)


@asynccontextmanager
async def started(case: Case, bus: Bus) -> AsyncIterator[None]:
    """A process of the stage, until the block ends; then it is torn down without ceremony."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(case.serve, bus, anyio.Event())
        yield
        tasks.cancel_scope.cancel()


async def settle(bus: Bus, case: Case, group: str) -> None:
    """Until nothing of the stage waits for an answer, and the group's record is closed where there is one."""
    while True:
        info = await bus.js.api(f"CONSUMER.INFO.{case.stage.stream}.{durable(case.stage)}")
        entry = await BusLedger(bus).read(group)
        if info["num_pending"] == info["num_ack_pending"] == 0 and (entry is None or entry[0].closed):
            return
        await anyio.sleep(0.02)


async def effects(bus: Bus, group: str) -> dict[str, list[str]]:
    """What lies on every stage for the group, without the group's name."""
    found: dict[str, list[str]] = {}
    for stage in topology.STAGES:
        name = [subject.rsplit(".", 1)[1] for subject in await stored(bus, stage)]
        ours = [key.removeprefix(group) for key in name if key == group or key.startswith(f"{group}-")]
        if ours:
            found[stage.name] = sorted(ours)
    found["dlq"] = await stored(bus, topology.DLQ)
    return found


async def one_life(bus: Bus, case: Case, port: int, group: str, k: int | None) -> bool:
    """Give a process the messages of a group and cut it off after its k-th publish; was it cut before it was done?"""
    await case.prepare(bus, group)
    for message in case.messages(group):
        assert await bus.publish(case.stage, message)
    async with cutting(port, k) as cutter:
        victim = await Bus.connect(cutter.url, bus.blobs, "victim")
        try:
            async with started(case, victim), anyio.create_task_group() as race:

                async def watch() -> None:
                    await settle(bus, case, group)
                    race.cancel_scope.cancel()

                race.start_soon(watch)
                with anyio.fail_after(30):
                    await cutter.cut.wait()
                race.cancel_scope.cancel()
        finally:
            with suppress(OSError, RuntimeError):  # its connection is dead: nothing to hand back
                await victim.close()
        return cutter.cut.is_set()


@pytest.mark.parametrize("kind", [Generate, Execute, Verify, Aggregate], ids=lambda kind: str(kind.stage.name))
async def test_killed_after_every_publish(kind: type[Case], bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """Whatever the stage had published when it was killed, its messages have the effects of an undisturbed run."""
    case = kind(tmp_path)
    await set_lease(bus, case.stage, 0.5)
    await one_life(bus, case, nats_server.port, "run-t-0", None)
    wanted = await effects(bus, "run-t-0")
    assert len(wanted) > 2, "the stage did nothing"
    cuts = 0
    for k in range(1, MOST):
        group = keys.group_id("run", Purpose.TRAIN, k)
        cut = await one_life(bus, case, nats_server.port, group, k)
        async with started(case, bus):
            with anyio.fail_after(30):
                await settle(bus, case, group)
        assert await effects(bus, group) == wanted, f"killed after publish {k}"
        if not cut:
            break
        cuts += 1
    assert cuts >= 3
