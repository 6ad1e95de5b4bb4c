"""Subjects that no release publishes but who may publish can: nobody falls over them, nobody waits."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from support import build, letters
from support.waiting import until

from tiltyard.kit.bus import Bus, Out
from tiltyard.kit.deadletters import Letters
from tiltyard.kit.serve import Server
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE, TASK

pytestmark = pytest.mark.anyio
STRANGE = (b"\xff\xfe", b"a/b", b"x" * 300, b'\x01"{%s')


async def store(bus: Bus, stage: str, token: bytes) -> None:
    """Store a message of which only the subject is remarkable."""
    before = await bus.js.api(f"STREAM.INFO.TILT_{stage.upper()}")
    bus.client.say(b"tilt.v1.%b.%b.key" % (stage.encode(), token), b"{}")

    async def stored() -> bool:
        now = await bus.js.api(f"STREAM.INFO.TILT_{stage.upper()}")
        return bool(now["state"]["messages"] > before["state"]["messages"])

    with anyio.fail_after(5):
        while not await stored():  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.parametrize("token", STRANGE)
@pytest.mark.parametrize("fair", [False, True])
async def test_a_strange_subject_is_a_dead_letter_and_delays_nobody(bus: Bus, token: bytes, fair: bool) -> None:
    """Whatever bytes a subject is made of, its message is a dead letter and the next message is handled."""
    seen: list[str] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        seen.append(rollout.id)
        return []

    await store(bus, "generate", token)
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=4, bury=letters.bury, fair=fair).run, stop)
        await bus.publish(GENERATE, build.rollout())
        await until(lambda: bool(seen), 8)
        with anyio.fail_after(8):
            while not (found := await Letters(bus).all()):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        stop.set()
    assert len(found) == 1


@pytest.mark.parametrize("token", STRANGE)
async def test_a_follower_passes_over_a_strange_subject(bus: Bus, token: bytes) -> None:
    """Whatever bytes a subject is made of, who follows the stream goes on to the next message."""
    await store(bus, "task", token)
    task = build.task()
    await bus.publish(TASK, task)
    with anyio.fail_after(8):
        async for _, found in bus.follow(TASK):
            assert found == task
            break
