"""Messages that nobody answers, that a handler never takes, that hit a group's own records: each with its letter."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from support import build, letters
from support.services import stored

from tiltyard.aggregator.backend import BusLedger
from tiltyard.aggregator.groups import Groups
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.deadletters import Letters, read_sound
from tiltyard.kit.replay import Replayer
from tiltyard.kit.serve import Retry
from tiltyard.kit.settle import Settler
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Purpose, Rollout
from tiltyard_proto.topology import GENERATE, GROUP, GROUPS_BUCKET, VERDICT

pytestmark = pytest.mark.anyio


async def test_what_a_handler_never_takes_ends(bus: Bus) -> None:
    """`Retry` at the last allowed delivery is a letter of class 'handler', not a suspected crash."""
    times = 0

    async def handler(_: Rollout) -> Sequence[Out]:
        nonlocal times
        times += 1
        raise Retry(0.01, "still busy")

    await bus.publish(GENERATE, build.rollout())
    await letters.serve_all(bus, handler)
    (entry,) = await Letters(bus).all()
    assert times == entry.letter.deliveries == GENERATE.max_deliveries
    assert (entry.letter.reason, entry.letter.detail) == ("handler", "tried 6 times: still busy")


async def test_a_poisoned_verdict_does_not_keep_its_group_open(bus: Bus) -> None:
    """Bytes where a member's verdict should be: a letter, and the group closes with the others at its deadline."""
    await bus.kv(GROUPS_BUCKET).create("run-t-0", msgspec.msgpack.encode(record(deadline=1.0)))
    await bus.js.publish("tilt.v1.verdict.math__test.run-t-0-0", b"\xff\xff", {})
    for member in (1, 2):
        await bus.publish(VERDICT, build.verdict(build.rollout(member=member, size=3), member / 2))
    groups = Groups(BusLedger(bus), AggregatorSettings())
    await letters.serve_all(bus, groups.on_verdict, VERDICT)
    group = await bus.get(GROUP, "tilt.v1.group.math__test.run-t-0")
    assert group is not None
    assert [member.verdict.rollout.member for member in group.members] == [1, 2]
    assert group.missing == 1
    (entry,) = await Letters(bus).all()
    assert (entry.letter.stage, entry.letter.reason) == ("verdict", "decode")


async def test_a_corrected_verdict_joins_its_group(bus: Bus) -> None:
    """While the group is open, the corrected verdict counts like any other."""
    await bus.kv(GROUPS_BUCKET).create("run-t-0", msgspec.msgpack.encode(record(deadline=2e9)))
    wrong = build.verdict(build.rollout(member=0, size=3), 7.0)
    await bus.js.publish(VERDICT.subject(wrong), topology.encode(wrong), {})
    for member in (1, 2):
        await bus.publish(VERDICT, build.verdict(build.rollout(member=member, size=3), 0.0))
    groups = Groups(BusLedger(bus), AggregatorSettings())
    async with letters.serving(bus, groups.on_verdict, VERDICT):
        await letters.until_idle(bus, VERDICT)
        assert await stored(bus, GROUP) == []
        (entry,) = await Letters(bus).all()
        assert (entry.letter.reason, entry.letter.detail) == ("validation", "score 7: expected 0 to 1, or none")
        right = msgspec.structs.replace(wrong, score=1.0)
        await Replayer(Letters(bus)).edit(entry, msgspec.json.encode(right))
        await letters.until_idle(bus, VERDICT)
    assert await read_sound(bus, VERDICT, VERDICT.subject(wrong)) == right
    group = await bus.get(GROUP, "tilt.v1.group.math__test.run-t-0")
    assert group is not None
    assert [member.reward for member in group.members] == [1.0, 0.0, 0.0]
    assert group.trainable
    (ended,) = await Settler(Letters(bus)).settle()
    assert ended.state.result == "processed"


def record(deadline: float) -> GroupRecord:
    return GroupRecord(
        id="run-t-0",
        run="run",
        domain="math.test",
        task_id=build.task().id,
        template="one",
        purpose=Purpose.TRAIN,
        version=0,
        size=3,
        deadline=deadline,
        opened=1.0,
    )
