"""Messages that kill their workers, and messages that only look as if they did: who is blamed, and who is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build, letters
from support.clusters import set_lease
from support.services import stored

from tiltyard.kit import suspects
from tiltyard.kit.bus import Bus, KeyValue, Out
from tiltyard.kit.deadletters import Letters
from tiltyard.kit.errors import BusUnavailable
from tiltyard.kit.provision import durable
from tiltyard.kit.pull import Delivery, Puller
from tiltyard.kit.serve import Server, serve
from tiltyard.kit.suspects import NOTHING, Evidence, Past
from tiltyard_proto import topology
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE, VERDICT, VERIFY

pytestmark = pytest.mark.anyio
HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]


def ids(subjects: Sequence[str]) -> list[str]:
    return [subject.rsplit(".", 1)[1] for subject in subjects]


async def lives(bus: Bus, url: str, blobs: Path, deadly: str) -> list[int]:
    """Start workers one after the other until all is answered; how many messages each dead one had in hand."""
    held: list[int] = []
    command = [sys.executable, "-m", "support.deadly", url, str(blobs), deadly]
    paths = os.pathsep.join(str(ROOT / part) for part in ("services", "proto", "tests"))
    while not await letters.idle(bus):
        async with await anyio.open_process(
            command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=None
        ) as worker:
            while worker.returncode is None and not await letters.idle(bus):
                with anyio.move_on_after(0.1):
                    await worker.wait()
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
            assert worker.stdout is not None
            said = b"".join([part async for part in worker.stdout]).decode()
            held += [int(line.removeprefix("held ")) for line in said.splitlines() if line.startswith("held ")]
    return held


@pytest.mark.timeout(120)
async def test_only_the_message_that_kills_is_blamed(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """A worker with four messages in hand is killed by one of them, again and again: that one becomes a dead letter
    after two workers died of it alone, and the other three are handled."""
    await set_lease(bus, GENERATE, 1.0)
    rollouts = [build.rollout(member=member, size=4) for member in range(4)]
    for rollout in rollouts:
        await bus.publish(GENERATE, rollout)
    with anyio.fail_after(100):
        held = await lives(bus, nats_server.url, tmp_path / "blobs", rollouts[1].id)
    (entry,) = await Letters(bus).all()
    assert (entry.letter.reason, entry.letter.subject) == ("crash", GENERATE.subject(rollouts[1]))
    assert entry.letter.detail == (
        "3 workers had it in hand and were never heard of again, 2 of them with nothing else in hand"
    )
    assert held == [4, 4, 1, 1]
    assert ids(await stored(bus, VERDICT)) == [rollouts[1].id]
    assert ids(await stored(bus, VERIFY)) == [f"{r.id}-a0" for r in rollouts if r is not rollouts[1]]


async def test_a_hand_back_is_no_death(bus: Bus) -> None:
    """Work that more drains hand back than a handler may fail is still work: it is handled, alone with nobody."""
    rollout = build.rollout()
    await bus.publish(GENERATE, rollout)
    for _ in range(GENERATE.max_deliveries + 2):
        stop, started = anyio.Event(), anyio.Event()

        async def hang(_: Rollout, begun: anyio.Event = started) -> Sequence[Out]:
            begun.set()
            await anyio.sleep_forever()
            return []

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Server(bus, GENERATE, hang, slots=4, bury=None).run, stop, 0.01)
            with anyio.fail_after(10):
                await started.wait()
            stop.set()
    assert await kept(bus, 1) == NOTHING
    await letters.serve_all(bus, letters.take)
    assert await Letters(bus).all() == []
    assert len(await stored(bus, VERIFY)) == 1


async def test_what_lay_in_a_dead_workers_buffer_is_not_blamed(bus: Bus) -> None:
    """Messages that were delivered more often than a handler may fail, and that nobody ever took in hand, are
    handled."""
    await set_lease(bus, GENERATE, 0.2)
    await bus.publish(GENERATE, build.rollout())
    await deliver(bus, GENERATE.max_deliveries + 1)
    await letters.serve_all(bus, letters.take)
    assert await Letters(bus).all() == []
    assert len(await stored(bus, VERIFY)) == 1


async def deliver(bus: Bus, times: int) -> Delivery:
    """Let the message be delivered so often, without an answer."""
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    with anyio.fail_after(20):
        while (delivery := await puller.next(1)) is None or delivery.deliveries < times:
            pass
    await puller.stop()
    return delivery


async def kept(bus: Bus, sequence: int) -> Past | None:
    entry = await bus.kv(topology.ATTEMPTS_BUCKET).read(f"{GENERATE.stream}-{sequence}", Past)
    return None if entry is None else entry[0]


async def test_a_suspect_has_the_worker_to_itself(bus: Bus) -> None:
    """While a suspect is handled nothing else is in hand, what comes meanwhile waits, and all of it is handled."""
    await set_lease(bus, GENERATE, 0.5)
    suspect = build.rollout(member=0, size=9)
    await bus.publish(GENERATE, suspect)
    delivery = await deliver(bus, 1)
    await Evidence(bus, GENERATE, "a dead one").hold(delivery, NOTHING, alone=False)
    for member in range(1, 9):
        await bus.publish(GENERATE, build.rollout(member=member, size=9))
    in_hand: set[str] = set()
    beside: list[set[str]] = []

    async def handler(rollout: Rollout) -> Sequence[Out]:
        in_hand.add(rollout.id)
        if rollout.id == suspect.id:
            beside.append(in_hand - {rollout.id})
        await anyio.sleep(0.05)
        if rollout.id == suspect.id:
            beside.append(in_hand - {rollout.id})
        in_hand.remove(rollout.id)
        return await letters.take(rollout)

    await letters.serve_all(bus, handler, slots=4)
    assert beside == [set(), set()]
    assert len(await stored(bus, VERIFY)) == 9
    assert await kept(bus, 1) == Past(deaths=1)


async def test_an_outage_is_no_evidence(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that was handed back many times, as in a pause, and comes while its evidence can't be read is blamed
    for nothing: it comes again, and is handled when the evidence can be read."""
    await set_lease(bus, GENERATE, 0.2)
    await bus.publish(GENERATE, build.rollout())
    await deliver(bus, GENERATE.max_deliveries + 1)
    monkeypatch.setattr(suspects, "PATIENCE_S", 0.05)
    read, refused = KeyValue.read, 0

    async def away(bucket: KeyValue, key: str, kind: Any) -> Any:
        nonlocal refused
        if bucket.bucket == topology.ATTEMPTS_BUCKET and refused < 2:
            await anyio.sleep(0.06)
            refused += 1
            raise BusUnavailable("no leader")
        return await read(bucket, key, kind)

    monkeypatch.setattr(KeyValue, "read", away)
    await letters.serve_all(bus, letters.take)
    assert refused == 2
    assert await Letters(bus).all() == []
    assert len(await stored(bus, VERIFY)) == 1


async def test_an_outage_is_no_failure(bus: Bus) -> None:
    """A message whose handling needs a stream that is away, more often than a handler may fail, is handled when it is
    back."""
    await bus.publish(GENERATE, build.rollout())
    refused = 0

    async def handler(rollout: Rollout) -> Sequence[Out]:
        nonlocal refused
        if refused <= GENERATE.max_deliveries:
            refused += 1
            raise BusUnavailable("no leader")
        return await letters.take(rollout)

    await letters.serve_all(bus, handler)
    assert await Letters(bus).all() == []
    assert len(await stored(bus, VERIFY)) == 1
    assert await kept(bus, 1) == NOTHING


async def test_without_a_bucket_the_count_stands_for_the_evidence(bus: Bus) -> None:
    """On a bus that has no bucket of attempts yet, work goes on, and what was delivered too often is a dead letter."""
    await bus.js.api(f"STREAM.DELETE.KV_{topology.ATTEMPTS_BUCKET}")
    await set_lease(bus, GENERATE, 0.2)
    await bus.publish(GENERATE, build.rollout(member=0))
    await deliver(bus, GENERATE.max_deliveries)
    await bus.publish(GENERATE, build.rollout(member=1))
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(bus, GENERATE, letters.take, slots=4, stop=stop, bury=letters.bury))
        await letters.until_idle(bus)
        stop.set()
    (entry,) = await Letters(bus).all()
    assert (entry.letter.reason, entry.letter.subject) == ("crash", GENERATE.subject(build.rollout(member=0)))
    assert ids(await stored(bus, VERIFY)) == ["run-t-0-1-a0"]
