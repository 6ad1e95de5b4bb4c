"""The bus over a real server: keys, claims, following, key-value."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from support import build

from tiltyard.kit.bus import INLINE_LIMIT, Bus
from tiltyard.kit.jetstream import BusUnavailable
from tiltyard_proto.topology import GENERATE, GROUPS_BUCKET, TASK

pytestmark = pytest.mark.anyio


async def test_first_writer_wins(bus: Bus) -> None:
    """Publishing a key twice stores the first message and reports the second as lost."""
    first = build.task(text="one")
    second = msgspec.structs.replace(build.task(text="two"), id=first.id)
    assert await bus.publish(TASK, first)
    assert not await bus.publish(TASK, second)
    assert await bus.get(TASK, TASK.subject(first)) == first


async def test_large_message_travels_by_reference(bus: Bus) -> None:
    """A body over the inline limit is stored as a blob and comes back equal."""
    big = build.task(text="x" * (3 * INLINE_LIMIT))
    assert await bus.publish(TASK, big)
    stored = await bus.js.last(TASK.stream, TASK.subject(big))
    assert stored is not None
    assert len(stored.body) < 1000
    assert await bus.get(TASK, TASK.subject(big)) == big


async def test_get_of_nothing(bus: Bus) -> None:
    """A key that was never written reads as None."""
    assert await bus.get(TASK, TASK.subject(build.task())) is None


async def test_follow_is_ordered_and_goes_on_live(bus: Bus) -> None:
    """Following from a position gives the rest in order, then what arrives later."""
    tasks = [build.task(text=str(i)) for i in range(6)]
    for task in tasks[:4]:
        await bus.publish(TASK, task)
    seen = []
    async with anyio.create_task_group() as tg:

        async def follow() -> None:
            async for sequence, task in bus.follow(TASK, after=1):
                seen.append((sequence, task.prompt[0].content))
                if len(seen) == 3:
                    tg.start_soon(bus.publish, TASK, tasks[4])
                    tg.start_soon(bus.publish, TASK, tasks[4])
                if len(seen) == 4:
                    tg.cancel_scope.cancel()

        tg.start_soon(follow)
    assert seen == [(2, "1"), (3, "2"), (4, "3"), (5, "4")]


async def test_follow_survives_a_killed_server(bus: Bus, nats_server) -> None:  # type: ignore[no-untyped-def]
    """A follower sees every message once though the server is killed in between."""
    got: list[str] = []
    enough = anyio.Event()

    async def follow() -> None:
        async for _, task in bus.follow(TASK):
            got.append(task.prompt[0].content)
            if len(got) == 4:
                enough.set()

    async with anyio.create_task_group() as tg:
        tg.start_soon(follow)
        await bus.publish(TASK, build.task(text="0"))
        await bus.publish(TASK, build.task(text="1"))
        nats_server.kill()
        with pytest.raises(BusUnavailable):
            await bus.publish(TASK, build.task(text="2"), patience_s=0.0)
        nats_server.start()
        assert await bus.publish(TASK, build.task(text="2")) in (True, False)
        await bus.publish(TASK, build.task(text="3"))
        with anyio.fail_after(20):
            await enough.wait()
        tg.cancel_scope.cancel()
    assert got == ["0", "1", "2", "3"]


async def test_key_value_compare_and_set(bus: Bus) -> None:
    """Create and update succeed once per revision."""
    kv = bus.kv(GROUPS_BUCKET)
    assert await kv.get("a") is None
    assert await kv.create("a", b"1")
    assert not await kv.create("a", b"2")
    entry = await kv.get("a")
    assert entry is not None
    value, revision = entry
    assert value == b"1"
    assert await kv.update("a", b"2", revision)
    assert not await kv.update("a", b"3", revision)
    await kv.put("b", b"x")
    assert sorted(await kv.keys()) == ["a", "b"]


async def test_latest_policy(bus: Bus) -> None:
    """The highest version of the run is the latest, whatever the order of publishing."""
    from tiltyard_proto.messages import Policy
    from tiltyard_proto.topology import POLICY

    assert await bus.latest_policy("run") is None
    for version in (0, 10, 9):
        await bus.publish(POLICY, Policy(run="run", version=version, path="/w"))
    await bus.publish(POLICY, Policy(run="other", version=11, path="/w"))
    latest = await bus.latest_policy("run")
    assert latest.version == 10


async def test_wrong_type_is_our_mistake(bus: Bus) -> None:
    """Publishing a message on a stage of another type is an assertion."""
    with pytest.raises(AssertionError):
        await bus.publish(GENERATE, build.task())  # type: ignore[arg-type]
