"""Answers to deliveries: nobody waits for them, so they leave with other frames, and by themselves in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.delivery import Delivery
from tiltyard.kit.provision import durable
from tiltyard.kit.pull import MAX_BYTES, Puller, byte_limit
from tiltyard_proto.topology import GENERATE

pytestmark = pytest.mark.anyio


async def taken(bus: Bus, count: int) -> list[Delivery]:
    """So many deliveries in hand, and nothing on its way."""
    for member in range(count):
        await bus.publish(GENERATE, build.rollout(member=member, size=count))
    puller = Puller(bus.js, GENERATE.stream, durable(GENERATE))
    await puller.start()
    found: list[Delivery] = []
    with anyio.fail_after(10):
        while len(found) < count:
            if (delivery := await puller.next(count)) is not None:
                found.append(delivery)
    await puller.stop()
    return found


async def unanswered(bus: Bus) -> int:
    info = await bus.js.api(f"CONSUMER.INFO.{GENERATE.stream}.{durable(GENERATE)}")
    return int(info["num_ack_pending"])


async def all_answered(bus: Bus) -> None:
    with anyio.fail_after(5):
        while await unanswered(bus):  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.01)


async def test_an_answer_leaves_by_itself(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """An acknowledgement that nothing follows reaches the server."""
    watch = await Bus.connect(nats_server.url, BlobStore(tmp_path), "watch")
    (delivery,) = await taken(bus, 1)
    assert await unanswered(watch) == 1
    bus.say(delivery, b"+ACK")
    await all_answered(watch)
    await watch.close()


async def test_answers_leave_with_the_next_request(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and the request after them are one write, the answers first."""
    deliveries = await taken(bus, 3)
    writes: list[bytes] = []
    write = bus.client._transport.write
    monkeypatch.setattr(bus.client._transport, "write", lambda data: (writes.append(data), write(data))[1])
    for delivery in deliveries:
        bus.say(delivery, b"+ACK")
    await unanswered(bus)
    (data,) = [each for each in writes if b"+ACK" in each]
    assert data.count(b"+ACK") == 3
    assert data.rindex(b"+ACK") < data.index(b"CONSUMER.INFO")
    await all_answered(bus)


async def test_an_answer_leaves_before_the_connection_closes(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """Who acknowledges and closes has acknowledged."""
    worker = await Bus.connect(nats_server.url, BlobStore(tmp_path), "worker")
    for delivery in await taken(worker, 2):
        worker.say(delivery, b"+ACK")
    await worker.close()
    await all_answered(bus)


def test_only_pulls_that_may_bring_too_much_are_limited() -> None:
    """A pull names its limit in bytes exactly when its messages could be more."""
    limits = [byte_limit(batch) for batch in (1, 7, 8, 256)]
    assert limits == [b"", b"", limits[3], b',"max_bytes":%d' % MAX_BYTES]
