"""Problems with what is stored that users of NATS reported, and that this bus must not have.

Which report is which test: docs/reported-problems.md.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from support import build, letters
from support.clusters import answered
from support.services import context, eventually, running

from tiltyard.aggregator import app as aggregator
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import INLINE_LIMIT, Bus, Out
from tiltyard.kit.deadletters import Letters
from tiltyard.kit.depth import depth
from tiltyard.kit.errors import BusUnavailable, StreamLost
from tiltyard.kit.jetstream import Stored
from tiltyard.kit.provision import provision
from tiltyard.kit.serve import Server
from tiltyard.kit.settings import RunSettings
from tiltyard_proto.messages import Group, GroupRecord, Purpose, Rollout
from tiltyard_proto.topology import GENERATE, GROUP, GROUPS_BUCKET, VERDICT

pytestmark = pytest.mark.anyio
MIB = 1 << 20


def cpu_of(call: Callable[[], Any]) -> float:
    """CPU seconds of this process that a call takes, the least of three."""
    taken = []
    for _ in range(3):
        before = time.process_time()
        call()
        taken.append(time.process_time() - before)
    return min(taken)


def test_large_objects_are_read_as_fast_as_they_are_written(tmp_path: Path) -> None:
    """A blob of 64 MiB is read and checked at 200 MB/s of CPU time or more, about as fast as it is written."""
    store, data = BlobStore(tmp_path), os.urandom(64 * MIB)
    ref = store.put(data)

    def write() -> None:
        store.sweep((), time.time() + 1)
        store.put(data)

    written, read = cpu_of(write), cpu_of(lambda: store.get(ref))
    assert len(data) / 1e6 / read >= 200
    assert read < 2.5 * written


def flip(path: Path, near: bytes) -> bool:
    """Flip one bit of the first `near` in a file; False when it isn't there."""
    data = bytearray(path.read_bytes())
    at = data.find(near)
    if at >= 0:
        data[at] ^= 1
        path.write_bytes(data)
    return at >= 0


async def test_a_flipped_bit_in_a_blob_is_a_letter(bus: Bus) -> None:
    """A claim check whose blob has one bit flipped is never handled: it is a letter of class 'blob'."""
    rollout = build.rollout(build.task(text="x" * 2 * INLINE_LIMIT))
    await bus.publish(GENERATE, rollout)
    assert sum(flip(path, b"xxxx") for path in bus.blobs.root.glob("??/*")) == 1
    seen: list[str] = []

    async def handler(found: Rollout) -> Sequence[Out]:
        seen.append(found.id)
        return []

    await letters.serve_all(bus, handler)
    (entry,) = await Letters(bus).all()
    assert (entry.letter.reason, seen) == ("blob", [])


async def test_a_flipped_bit_in_a_stream_is_missed(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """When a bit of a stream's file flips, the server drops messages without a word; the verdicts that are left are
    those that were stored, and the group closes at its deadline and counts the members it misses."""
    size, now = 4, time.time()
    record = GroupRecord(
        id="run-t-0", run="run", domain="math.test", task_id=build.task().id, template="one", purpose=Purpose.TRAIN,
        version=0, size=size, deadline=now + 3600, opened=now,
    )  # fmt: skip
    await bus.kv(GROUPS_BUCKET).create(record.id, msgspec.msgpack.encode(record))
    for member in range(size):
        turn = build.turn(text=f"mark-{member}!")
        await bus.publish(VERDICT, build.verdict(build.rollout(member=member, size=size, turns=(turn,)), member / size))
    nats_server.kill()
    files = [path for path in nats_server.store.rglob("*.blk") if VERDICT.stream in path.parts]
    assert sum(flip(path, b"mark-2!") for path in files) == 1
    nats_server.start()
    due = msgspec.structs.replace(record, deadline=time.time() + 2)
    await answered(lambda: bus.kv(GROUPS_BUCKET).put(record.id, msgspec.msgpack.encode(due)))
    settings = AggregatorSettings(deadline_check_s=0.1)
    async with running(aggregator.start, context("aggregator", bus, RunSettings(name="run"), settings, tmp_path)):
        (subject,) = await eventually(bus, GROUP, 1)
    group = await bus.get(GROUP, subject)
    assert group is not None
    there = [member.verdict.rollout.turns[0].text for member in group.members]
    assert "mark-2!" not in there
    assert set(there) <= {f"mark-{member}!" for member in range(size)}
    assert group.missing == size - len(there) >= 1


async def test_a_replica_that_lags_is_asked_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the answer to a publish was lost, and the replica that is asked does not have the message yet, the publisher
    asks again instead of taking another's word for it."""
    publish, last = bus.js.publish, bus.js.last
    asked = 0

    async def lossy(*arguments: Any, **options: Any) -> int:
        sequence = await publish(*arguments, **options)
        monkeypatch.setattr(bus.js, "publish", publish)
        raise BusUnavailable(f"the answer was lost: {sequence}")

    async def lagging(stream: str, subject: str) -> Stored | None:
        nonlocal asked
        asked += 1
        return None if asked == 1 else await last(stream, subject)

    monkeypatch.setattr(bus.js, "publish", lossy)
    monkeypatch.setattr(bus.js, "last", lagging)
    assert await bus.publish(GENERATE, build.rollout())
    assert asked == 2


async def cpu_while(server: psutil.Process, seconds: float) -> float:
    """The server's share of one core over some seconds."""
    before, started = sum(server.cpu_times()[:2]), time.monotonic()
    await anyio.sleep(seconds)
    return (sum(server.cpu_times()[:2]) - before) / (time.monotonic() - started)


async def test_three_hundred_domains_cost_little(bus: Bus, nats_server: Any) -> None:
    """Each of 300 domains has a consumer of its own: the server spends far less than a millisecond of CPU on a message
    from publish to answer (150 us where nothing else runs), and hardly anything while nothing happens."""
    server, domains, each = psutil.Process(nats_server.process.pid), 300, 4
    handled = 0

    async def handler(_: Rollout) -> Sequence[Out]:
        nonlocal handled
        handled += 1
        return []

    async def round_(number: int) -> None:
        async with anyio.create_task_group() as tasks:
            for domain in range(domains):
                task = build.task(f"d{domain}.x")
                for member in range(each):
                    rollout = build.rollout(task, member=member, group=f"run-t-{number}-{domain}", size=each)
                    tasks.start_soon(bus.publish, GENERATE, rollout)
        with anyio.fail_after(40):
            while handled < (number + 1) * domains * each:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=64, bury=None, fair=True).run, stop)
        await round_(0)  # makes the consumers
        before = sum(server.cpu_times()[:2])
        await round_(1)
        loaded = (sum(server.cpu_times()[:2]) - before) / (domains * each)
        stop.set()
    assert (await depth(bus, GENERATE)).consumers == domains
    idle = await cpu_while(server, 2)
    assert loaded <= 300e-6
    assert idle <= 0.05


@pytest.mark.parametrize("gone", ["tail", "all"])
async def test_a_stream_that_ends_before_a_position_is_told(
    bus: Bus, nats_server: Any, tmp_path: Path, gone: str
) -> None:
    """A trainer's position lies behind the end of its stream, because a server lost messages or another store took its
    place: following says so at once, instead of passing over what comes next."""
    for index in range(4):
        await bus.publish(GROUP, build.group([1.0, 0.0], index=index))
    seen = [sequence async for sequence, _ in first(bus, 4)]
    nats_server.kill()
    if gone == "all":
        shutil.rmtree(nats_server.store / "jetstream")
    else:
        assert sum(flip(path, b"run-t-1") for path in nats_server.store.rglob("*.blk") if GROUP.stream in path.parts)
    nats_server.start()
    await answered(lambda: provision(bus))
    with pytest.raises(StreamLost, match=r"TILT_GROUP ends at position \d and was followed up to 4"):
        async for _ in bus.follow(GROUP, after=seen[-1]):
            pass


async def first(bus: Bus, count: int) -> AsyncIterator[tuple[int, Group]]:
    """The first messages of the group stream."""
    found = 0
    async for each in bus.follow(GROUP):
        yield each
        found += 1
        if found == count:
            return
