"""Groups over both ledgers, and the aggregator service on a real bus: duplicates, late verdicts, deadlines, two at
once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from prometheus_client import REGISTRY
from support import build
from support.services import context, eventually, running, stored

from tiltyard.aggregator import app
from tiltyard.aggregator.backend import BusLedger, Ledger, MemoryLedger, encode
from tiltyard.aggregator.groups import Groups
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.cli.archive import Archive
from tiltyard.kit.bus import Bus
from tiltyard.kit.serve import Retry
from tiltyard.kit.settings import RunSettings
from tiltyard_proto import keys
from tiltyard_proto.messages import Group, GroupRecord, Purpose, Verdict
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GROUP, GROUPS_BUCKET, VERDICT

pytestmark = pytest.mark.anyio
SETTINGS = AggregatorSettings(deadline_check_s=0.05, archive_every_s=0.1)


def record(index: int = 0, size: int = 3, deadline: float = 2e9) -> GroupRecord:
    return GroupRecord(
        id=keys.group_id("run", Purpose.TRAIN, index),
        run="run",
        domain="math.test",
        task_id="t",
        template="one",
        purpose=Purpose.TRAIN,
        version=0,
        size=size,
        deadline=deadline,
        opened=1.0,
        index=index,
    )


def verdict(member: int, score: float | None = None, index: int = 0, **fields: Any) -> Verdict:
    of = build.rollout(
        member=member,
        group=keys.group_id("run", Purpose.TRAIN, index),
        turns=(build.turn(),),
        outcome=Outcome.FINISHED,
        **fields,
    )
    return build.verdict(of, float(member % 2) if score is None else score)


class World:
    """A ledger with records and verdicts in it."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self.bus = bus
        self.ledger = ledger
        self.groups = Groups(ledger, SETTINGS)

    async def open(self, of: GroupRecord) -> None:
        if isinstance(self.ledger, MemoryLedger):
            self.ledger.records[of.id] = (encode(of), 1)
        else:
            assert await self.bus.kv(GROUPS_BUCKET).create(of.id, encode(of))

    async def arrive(self, of: Verdict) -> list[Group]:
        """The verdict is stored, then handled; the groups that this closed."""
        if isinstance(self.ledger, MemoryLedger):
            self.ledger.verdicts.setdefault(VERDICT.subject(of), of)
        else:
            await self.bus.publish(VERDICT, of)
        outs = await self.groups.on_verdict(of)
        assert all(stage is GROUP for stage, _ in outs)
        return [group for _, group in outs if isinstance(group, Group)]

    async def members(self, of: GroupRecord) -> tuple[int, ...]:
        entry = await self.ledger.read(of.id)
        assert entry is not None
        return entry[0].members


@pytest.fixture(params=["memory", "bus"])
async def world(request: pytest.FixtureRequest, bus: Bus) -> World:
    return World(bus, MemoryLedger() if request.param == "memory" else BusLedger(bus))


def late_count() -> float:
    return REGISTRY.get_sample_value("tiltyard_late_verdicts_total", {"domain": "math.test"}) or 0.0


# ---------------------------------------------------------------- both ledgers


async def test_writes_are_compare_and_set(world: World) -> None:
    """Only a writer who has seen the newest revision writes."""
    of = record()
    assert await world.ledger.read(of.id) is None
    await world.open(of)
    entry = await world.ledger.read(of.id)
    assert entry is not None
    assert entry[0] == of
    newer = msgspec.structs.replace(of, members=(1,))
    assert await world.ledger.write(newer, entry[1])
    assert not await world.ledger.write(of, entry[1])
    assert await world.members(of) == (1,)
    assert await world.ledger.verdict(VERDICT.subject(verdict(0))) is None


async def test_the_last_verdict_closes_the_group(world: World) -> None:
    """Members in any order; the group comes with the last one and has them by number."""
    await world.open(record())
    assert await world.arrive(verdict(2)) == []
    assert await world.arrive(verdict(0)) == []
    (group,) = await world.arrive(verdict(1))
    assert [m.verdict.rollout.member for m in group.members] == [0, 1, 2]
    assert [m.reward for m in group.members] == [0.0, 1.0, 0.0]
    assert (group.missing, group.trainable) == (0, True)


async def test_a_verdict_twice_is_one_member(world: World) -> None:
    """A second delivery does not count as another member, and the first stored verdict is the one that counts."""
    await world.open(record(size=2))
    await world.arrive(verdict(1, 1.0))
    assert await world.arrive(verdict(1, 0.5, attempt=1)) == []
    assert await world.members(record()) == (1,)
    (group,) = await world.arrive(verdict(0, 0.0))
    assert [m.reward for m in group.members] == [0.0, 1.0]


async def test_closing_again_gives_the_same_group(world: World) -> None:
    """The last verdict delivered again, before the record says closed, closes the same group under the same key."""
    await world.open(record(size=2))
    await world.arrive(verdict(0))
    (first,) = await world.arrive(verdict(1))
    (second,) = await world.arrive(verdict(1))
    assert msgspec.structs.replace(second, closed=first.closed) == first
    assert GROUP.subject(first) == GROUP.subject(second)


async def test_a_late_verdict_is_counted_and_not_trained(world: World) -> None:
    """After the close a missing member's verdict changes nothing but the count; a member that was in time is not
    late when it is delivered again."""
    await world.open(record(size=3))
    await world.arrive(verdict(0))
    await world.groups.mark_closed(record().id)
    before = late_count()
    assert await world.arrive(verdict(1)) == []
    assert late_count() == before + 1
    assert await world.arrive(verdict(0)) == []
    assert late_count() == before + 1
    assert await world.members(record()) == (0,)


async def test_a_verdict_without_a_record_waits(world: World) -> None:
    """A verdict that overtook its group's record is asked for again."""
    with pytest.raises(Retry, match="no record yet"):
        await world.arrive(verdict(0))


async def test_members_arriving_together_are_all_kept(world: World) -> None:
    """Sixteen verdicts handled at once leave sixteen members, and at least one of them closes the group."""
    await world.open(record(size=16))
    closed: list[Group] = []

    async def one(member: int) -> None:
        closed.extend(await world.arrive(verdict(member)))

    async with anyio.create_task_group() as tasks:
        for member in range(16):
            tasks.start_soon(one, member)
    assert await world.members(record()) == tuple(range(16))
    assert {len(group.members) for group in closed} == {16}


async def test_past_the_deadline_the_next_verdict_closes(world: World) -> None:
    """What is there makes the group; the missing are counted."""
    await world.open(record(size=4, deadline=time.time() - 1))
    (group,) = await world.arrive(verdict(1))
    assert (len(group.members), group.missing, group.reason) == (1, 3, "too_few")


async def test_marking_closed_is_idempotent(world: World) -> None:
    """Closing a record twice, or one that never was, is fine."""
    await world.open(record())
    for _ in range(2):
        await world.groups.mark_closed(record().id)
        entry = await world.ledger.read(record().id)
        assert entry is not None
        assert entry[0].closed
    await world.groups.mark_closed("run-t-99")


# ---------------------------------------------------------------- the service


async def groups_on(bus: Bus) -> list[Group]:
    found = [await bus.get(GROUP, subject) for subject in await stored(bus, GROUP)]
    return [group for group in found if group is not None]


async def until_settled(bus: Bus, ids: Iterable[str]) -> None:
    """Until the records say closed and every verdict is acknowledged."""
    ledger, waiting = BusLedger(bus), set(ids)
    with anyio.fail_after(15):
        while waiting:
            for name in tuple(waiting):
                entry = await ledger.read(name)
                if entry is not None and entry[0].closed:
                    waiting.discard(name)
            await anyio.sleep(0.02)
        while True:
            info = await bus.js.api(f"CONSUMER.INFO.{VERDICT.stream}.verdict_work")
            if info["num_pending"] == info["num_ack_pending"] == 0:
                return
            await anyio.sleep(0.02)


async def test_two_aggregators_make_one_group(bus: Bus, tmp_path: Path) -> None:
    """Verdicts spread over two services close each group once, and the archive has each rollout once."""
    ledger = BusLedger(bus)
    for index in range(5):
        assert await ledger.write(record(index, size=4), 0)
    contexts = [context("aggregator", bus, RunSettings(name="run"), SETTINGS, tmp_path) for _ in range(2)]
    async with running(app.start, *contexts):
        for member in range(4):
            for index in range(5):
                await bus.publish(VERDICT, verdict(member, index=index))
        await eventually(bus, GROUP, 5)
        await until_settled(bus, [record(index).id for index in range(5)])
    groups = await groups_on(bus)
    assert [group.id for group in groups] == [f"run-t-{index}" for index in range(5)]
    assert all(group.trainable and len(group.members) == 4 for group in groups)
    archive = Archive(contexts[0].data)
    assert archive.rows("SELECT group_id, count(*) FROM rollouts GROUP BY ALL ORDER BY ALL") == [
        (f"run-t-{index}", 4) for index in range(5)
    ]


async def test_the_deadline_closes_with_missing_members(bus: Bus, tmp_path: Path) -> None:
    """Two of four verdicts at the deadline make a group with two missing; a verdict after that is late and leaves the
    group as it is."""
    assert await BusLedger(bus).write(record(size=4, deadline=time.time() + 0.5), 0)
    before = late_count()
    async with running(app.start, context("aggregator", bus, RunSettings(name="run"), SETTINGS, tmp_path)):
        await bus.publish(VERDICT, verdict(0))
        await bus.publish(VERDICT, verdict(3))
        await eventually(bus, GROUP, 1)
        await until_settled(bus, [record().id])
        (group,) = await groups_on(bus)
        await bus.publish(VERDICT, verdict(1))
        with anyio.fail_after(10):
            while late_count() == before:  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.02)
        await until_settled(bus, [record().id])
    assert [m.verdict.rollout.member for m in group.members] == [0, 3]
    assert (group.missing, group.trainable) == (2, True)
    assert await groups_on(bus) == [group]


async def test_a_group_without_any_verdict_closes_too(bus: Bus, tmp_path: Path) -> None:
    """A group that nobody answered for closes empty at its deadline, so that the run goes on."""
    assert await BusLedger(bus).write(record(size=4, deadline=time.time() - 1), 0)
    async with running(app.start, context("aggregator", bus, RunSettings(name="run"), SETTINGS, tmp_path)):
        await eventually(bus, GROUP, 1)
        await until_settled(bus, [record().id])
    (group,) = await groups_on(bus)
    assert (group.members, group.missing, group.reason) == ((), 4, "unanswered")


async def test_a_restart_goes_on_in_the_archive(bus: Bus, tmp_path: Path) -> None:
    """Groups that closed while no aggregator wrote the archive are written by the next one; the run's alone."""
    run = RunSettings(name="run")
    other = msgspec.structs.replace(build.group([1.0], index=8), id="other-t-8", run="other")
    for batch in ([build.group([0.0, 1.0], index=0)], [build.group([1.0, 0.0], index=1), other]):
        for group in batch:
            await bus.publish(GROUP, group)
        async with running(app.start, (last := context("aggregator", bus, run, SETTINGS, tmp_path))):
            pass
    archive = Archive(last.data)
    assert archive.rows("SELECT group_id, count(*) FROM rollouts GROUP BY ALL ORDER BY ALL") == [
        ("run-t-0", 2),
        ("run-t-1", 2),
    ]
