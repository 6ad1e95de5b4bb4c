"""The sampler on a real bus: killed between a group's record and its rollouts, it opens exactly the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import anyio
import msgspec
import pytest
from support import build
from support.services import context, eventually, running, stored

from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler import app
from tiltyard.sampler.backend import BusRegister, MemoryRegister, Register
from tiltyard.sampler.handler import State, rollouts
from tiltyard.sampler.settings import SamplerSettings
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Policy, Purpose, Rollout, RunStatus

pytestmark = pytest.mark.anyio
SETTINGS = SamplerSettings(settle_s=0.2, tick_s=0.05)
TRAIN, EVAL = "math.train", "math.eval"


def run_settings(evaluate: bool) -> RunSettings:
    return RunSettings(
        name="run",
        steps=3,
        groups_per_step=2,
        group_size=2,
        staleness=1,
        train={TRAIN: TaskShare(tasks=6)},
        evaluate={EVAL: TaskShare(tasks=2, samples=3)} if evaluate else {},
    )


async def publish_world(bus: Bus) -> None:
    for i in range(6):
        await bus.publish(topology.TASK, build.task(TRAIN, text=str(i), template=f"t{i % 2}"))
    for i in range(2):
        await bus.publish(topology.TASK, build.task(EVAL, text=str(i), split="eval"))
    await bus.publish(topology.POLICY, Policy(run="run", version=0, path="/w/0"))


async def records(bus: Bus) -> dict[str, GroupRecord]:
    return {record.id: record for record in await BusRegister(bus).records("run")}


@pytest.mark.parametrize(
    ("evaluate", "killed_at", "expected"), [(True, 0, 6), (True, 1, 6), (False, 0, 8), (False, 2, 8)]
)
async def test_killed_between_record_and_rollouts(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluate: bool, killed_at: int, expected: int
) -> None:
    """A sampler dies when a group's record is written and only one of its rollouts is sent; the next one sends
    exactly what is missing, and a third one beside it adds nothing."""
    run = run_settings(evaluate)
    await publish_world(bus)
    hanging = anyio.Event()

    class Dying(BusRegister):
        sends = 0

        async def send(self, rollouts: Iterable[Rollout]) -> None:
            if self.sends == killed_at:
                await super().send(list(rollouts)[:1])
                hanging.set()
                await anyio.sleep_forever()
            self.sends += 1
            await super().send(rollouts)

    monkeypatch.setattr(app, "BusRegister", Dying)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app.start, context("sampler", bus, run, SETTINGS, tmp_path))
        with anyio.fail_after(15):
            await hanging.wait()
        tasks.cancel_scope.cancel()
    before = await records(bus)
    assert len(before) > killed_at  # several are opened at a time
    assert len(await stored(bus, topology.GENERATE)) < len(before) * (3 if evaluate else 2)

    monkeypatch.setattr(app, "BusRegister", BusRegister)
    contexts = [context("sampler", bus, run, SETTINGS, tmp_path) for _ in range(2)]
    async with running(app.start, *contexts):
        subjects = await eventually(bus, topology.GENERATE, expected)
    assert await stored(bus, topology.GENERATE) == subjects
    assert len(subjects) == expected

    after = await records(bus)
    assert {name: after[name] for name in before} == before
    state = State(run, SETTINGS)
    async for _, task in bus.follow(topology.TASK):
        state.on_task(task)
        if len(state.tasks) == 8:
            break
    wanted = [r for record in after.values() for r in rollouts(record, state.tasks[record.task_id], run)]
    assert sorted(topology.GENERATE.subject(r) for r in wanted) == subjects
    for rollout in wanted:
        assert await bus.get(topology.GENERATE, topology.GENERATE.subject(rollout)) == rollout


async def test_a_finished_run_is_said_and_stays_finished(bus: Bus, tmp_path: Path) -> None:
    """With the final version there and nothing to evaluate the run's status is 'finished', also after a restart."""
    run = run_settings(evaluate=False)
    await publish_world(bus)
    await bus.publish(topology.POLICY, Policy(run="run", version=3, path="/w/3", final=True))
    register = BusRegister(bus)
    first: RunStatus | None = None
    for _ in range(2):
        async with running(app.start, context("sampler", bus, run, SETTINGS, tmp_path)):
            with anyio.fail_after(10):
                while (status := await register.status("run")) is None or status.state != "finished":  # noqa: ASYNC110
                    await anyio.sleep(0.02)
        first = first or status
        assert (status.started, status.finished) == (first.started, first.finished)
    assert await stored(bus, topology.GENERATE) == []


async def test_a_restart_evaluates_the_newest_version_only(bus: Bus, tmp_path: Path) -> None:
    """Versions that passed while no sampler was there are not evaluated afterwards, with weights that are gone."""
    run = msgspec.structs.replace(run_settings(evaluate=True), steps=6, evaluate_every=3)
    await publish_world(bus)
    for version in range(1, 6):
        await bus.publish(topology.POLICY, Policy(run="run", version=version, path=f"/w/{version}"))
    for index in range(2):
        await bus.publish(topology.GROUP, build.group([1.0], index=index, purpose=Purpose.EVAL))
    sampler = app.Sampler(bus, BusRegister(bus), State(run, SETTINGS), SETTINGS)
    await sampler.recover()
    assert sampler.state.policy == Policy(run="run", version=5, path="/w/5")
    async with running(app.start, context("sampler", bus, run, SETTINGS, tmp_path)):
        await eventually(bus, topology.GENERATE, 24)
    assert {(record.purpose, record.version) for record in (await records(bus)).values()} == {(Purpose.TRAIN, 5)}


@pytest.mark.parametrize("kind", ["bus", "memory"])
async def test_the_register_keeps_the_first(bus: Bus, kind: str) -> None:
    """Opening a group again gives the record that is there; runs do not see one another's; a status is replaced."""
    register: Register = BusRegister(bus) if kind == "bus" else MemoryRegister()
    record = GroupRecord(
        id="run-t-0",
        run="run",
        domain=TRAIN,
        task_id="a",
        template="t",
        purpose=Purpose.TRAIN,
        version=0,
        size=2,
        deadline=9.0,
        opened=1.0,
    )
    other = msgspec.structs.replace(record, id="runner-t-0", run="runner")
    assert await register.open(record) == record
    assert await register.open(msgspec.structs.replace(record, task_id="b", opened=2.0)) == record
    assert await register.open(other) == other
    assert await register.records("run") == [record]
    await register.send([build.rollout(member=0), build.rollout(member=0), build.rollout(member=1)])
    sent = len(register.sent) if isinstance(register, MemoryRegister) else len(await stored(bus, topology.GENERATE))
    assert sent == 2
    assert await register.status("run") is None
    for state in ("training", "finished"):
        status = RunStatus(run="run", state=state, started=1.0, updated=2.0)
        await register.write_status(status)
        assert await register.status("run") == status
