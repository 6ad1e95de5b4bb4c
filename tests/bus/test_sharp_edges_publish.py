"""Edges of the client library that publishing must not have: each was seen in nats-py's own publisher."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support import build
from support.proxy import proxied

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.jetstream import BusUnavailable, StreamFull, TooLarge
from tiltyard.kit.provision import stream_config
from tiltyard_proto.topology import GENERATE

pytestmark = pytest.mark.anyio


def subject(key: object) -> str:
    return f"tilt.v1.generate.math__test.{key}"


async def limit_messages(bus: Bus, count: int) -> None:
    config = stream_config(GENERATE) | {"max_msgs": count}
    await bus.js.api(f"STREAM.UPDATE.{GENERATE.stream}", config)


async def stored(bus: Bus) -> int:
    info = await bus.js.api(f"STREAM.INFO.{GENERATE.stream}")
    return int(info["state"]["messages"])


async def freeze(server: Any) -> None:
    """Stop the server's process, and wait until all its threads stand: from here on nothing is answered."""
    server.process.send_signal(signal.SIGSTOP)
    tasks = list(Path(f"/proc/{server.process.pid}/task").glob("*/stat"))  # noqa: ASYNC240
    with anyio.fail_after(5):
        while any(task.read_text().rpartition(")")[2].split()[0] != "T" for task in tasks):  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def test_a_full_stream_refuses_at_once(bus: Bus) -> None:
    """1: a publish that the server refuses raises a typed error within a second and leaves nothing in flight."""
    await limit_messages(bus, 2)
    for key in range(2):
        await bus.js.publish(subject(key), b"x", {}, expect=0)
    with anyio.fail_after(1), pytest.raises(StreamFull):
        await bus.js.publish(subject("more"), b"x", {}, expect=0)
    assert bus.js.replies.in_flight == 0


async def test_a_full_stream_makes_the_publisher_wait(bus: Bus) -> None:
    """1: a waiting publisher goes on as soon as there is room, and the message is stored once."""
    await limit_messages(bus, 1)
    await bus.js.publish(subject("first"), b"x", {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.publish, GENERATE, build.rollout())
        await anyio.sleep(0.2)
        assert await stored(bus) == 1
        await limit_messages(bus, 10)
    assert await stored(bus) == 2


async def test_outstanding_publishes_fail_at_once_on_a_disconnect(bus: Bus, nats_server: Any) -> None:
    """2: no publish that was in flight when the connection broke stays pending, and none keeps a slot."""
    await bus.js.publish(subject("warm"), b"x", {})
    await freeze(nats_server)
    try:
        calls = [asyncio.ensure_future(bus.js.publish(subject(key), b"x", {}, expect=0)) for key in range(55)]
        await anyio.sleep(0.1)
        assert bus.js.replies.in_flight == 55
    finally:
        nats_server.kill()
    with anyio.fail_after(2):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {BusUnavailable}
    assert bus.js.replies.in_flight == 0
    nats_server.start()


async def test_publishes_cut_off_by_a_kill_are_stored_once(bus: Bus, nats_server: Any) -> None:
    """2: the same key is tried again after the restart, so everything is stored and nothing twice."""
    async with anyio.create_task_group() as tasks:
        for member in range(60):
            tasks.start_soon(bus.publish, GENERATE, build.rollout(member=member))
        await anyio.lowlevel.checkpoint()
        nats_server.kill()
        nats_server.start()
    assert await stored(bus) == 60


async def test_cancellation_stays_cancellation(bus: Bus, nats_server: Any) -> None:
    """3: a cancelled publish ends as cancelled, under asyncio and under anyio, and its place is free again."""
    await bus.js.publish(subject("warm"), b"x", {})
    await freeze(nats_server)
    call = asyncio.ensure_future(bus.js.publish(subject("a"), b"x", {}))
    await anyio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with anyio.move_on_after(0.05) as scope:
        await bus.js.publish(subject("b"), b"x", {})
    assert scope.cancelled_caught
    nats_server.process.send_signal(signal.SIGCONT)
    with anyio.fail_after(5):
        while bus.js.replies.in_flight:  # noqa: ASYNC110  (answers arrive, and nobody waits for them)
            await anyio.sleep(0.01)


async def test_a_publish_refused_while_disconnected_is_not_sent_later(bus: Bus, nats_server: Any) -> None:
    """4, 5: without a connection a publish fails at once, nothing is buffered and nothing appears afterwards."""
    nats_server.kill()
    with anyio.fail_after(5):
        while bus.client.is_connected:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    started = time.monotonic()
    for key in range(20):
        with pytest.raises(BusUnavailable):
            await bus.js.publish(subject(key), b"x" * 100_000, {}, expect=0)
    assert time.monotonic() - started < 0.5
    assert bus.client._pending_data_size < 1000
    nats_server.start()
    assert await bus.publish(GENERATE, build.rollout())
    assert await stored(bus) == 1


@pytest.mark.parametrize("fill", ["body", "headers"])
async def test_an_oversized_message_does_not_close_the_connection(bus: Bus, fill: str) -> None:
    """10: headers count; what is too large is refused here, and the connection lives on."""
    limit = bus.client.max_payload
    body, headers = (b"x" * (limit - 10), {"Tilt-Schema": "rollout/1"})
    if fill == "headers":
        body, headers = b"x", {"Big": "y" * limit}
    with pytest.raises(TooLarge):
        await bus.js.publish(subject("big"), body, headers)
    assert bus.client.is_connected
    assert await bus.js.publish(subject("small"), b"x", {}) == 1


@pytest.mark.parametrize("headers", [{"A": "ü"}, {"A": "x\r\nB: y"}, {"A:B": "x"}, {"": "x"}])
async def test_headers_that_cannot_travel_are_refused_here(bus: Bus, headers: dict[str, str]) -> None:
    """17: a header that isn't one line of ASCII is the caller's mistake, told before anything is sent."""
    with pytest.raises(ValueError, match="header"):
        await bus.js.publish(subject("a"), b"x", headers)
    assert await stored(bus) == 0


async def test_a_foreign_header_can_be_read(bus: Bus) -> None:
    """17: what another client stored with a non-ASCII header is still read back."""
    await bus.client.publish(subject("a"), b"body", headers={"Name": "Zürich"})
    await bus.client.flush()
    with anyio.fail_after(10):  # the server has it, its stream stores it in a moment
        while (found := await bus.js.last(GENERATE.stream, subject("a"))) is None:  # noqa: ASYNC110  (no event)
            await anyio.sleep(0.01)
    assert (found.body, found.headers["Name"]) == (b"body", "Zürich")


async def test_a_header_named_status_is_no_status(bus: Bus) -> None:
    """A message whose publisher named a header `Status` is read back like any other."""
    await bus.js.publish(subject("a"), b"body", {"Status": "404"})
    found = await bus.js.last(GENERATE.stream, subject("a"))
    assert found is not None
    assert found.body == b"body"


async def test_the_callers_headers_are_left_alone(bus: Bus) -> None:
    """18: publishing doesn't write into the dictionary it is given."""
    headers = {"Tilt-Schema": "rollout/1"}
    await bus.js.publish(subject("a"), b"x", headers, expect=0)
    assert headers == {"Tilt-Schema": "rollout/1"}


async def test_subjects_that_would_break_the_protocol_are_refused(bus: Bus) -> None:
    """A subject with blanks never reaches the wire."""
    for bad in ("", "a b", "a\r\nPUB x 0\r\n"):
        with pytest.raises(ValueError, match="subject"):
            await bus.js.publish(bad, b"x", {})
    assert bus.client.is_connected


async def test_a_half_open_connection_is_noticed(nats_server: Any, tmp_path: Path) -> None:
    """13: when the other side goes silent without closing, publishes end, and the connection is made anew."""
    async with proxied(nats_server.port) as proxy:
        bus = await Bus.connect(proxy.url, BlobStore(tmp_path), "test", ping_interval=0.2)
        try:
            await bus.js.api("STREAM.CREATE.TILT_GENERATE", stream_config(GENERATE))
            proxy.flows.clear()
            with anyio.fail_after(4), pytest.raises(BusUnavailable):
                await bus.js.publish(subject("a"), b"x", {}, expect=0)
            proxy.flows.set()
            with anyio.fail_after(5):
                assert await bus.publish(GENERATE, build.rollout())
        finally:
            await bus.close()
