"""Edges of the client library's connection: what ends it, what is noticed, what is told."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.errors import Error as NatsError
from support import build
from support.proxy import proxied

from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import CONFIG
from tiltyard.kit.jetstream import BusUnavailable, Forbidden
from tiltyard.kit.provision import provision, stream_config
from tiltyard.kit.pull import Puller
from tiltyard_proto.messages import Policy
from tiltyard_proto.topology import GENERATE, POLICY

pytestmark = pytest.mark.anyio

USERS = """
authorization {{ users = [
  {{ user: admin, password: a }}
  {{ user: limited, password: {password}, permissions: {{
      publish: ["$JS.API.STREAM.INFO.*", "tilt.v1.verify.>"], subscribe: "_INBOX_limited.>" }} }}
] }}
"""


def secure(server: Any, password: str) -> None:
    """Write users into the server's configuration, and restart it or have it read again."""
    store = server.store
    text = CONFIG.format(host="127.0.0.1", port=server.port, store=store / "jetstream", sync="2m")
    (store / "nats-server.conf").write_text(text + USERS.format(password=password))
    server.process.send_signal(signal.SIGHUP)


async def connect(server: Any, user: str, password: str, tmp_path: Path) -> Bus:
    url = f"nats://{user}:{password}@127.0.0.1:{server.port}"
    with anyio.fail_after(5):
        while True:
            try:
                return await Bus.connect(url, BlobStore(tmp_path), user, allow_reconnect=True)
            except (NatsError, OSError):  # the server reads its configuration in its own time
                await anyio.sleep(0.05)


async def drained(puller: Puller) -> None:
    """Pull until it fails."""
    while True:
        await puller.next(1)


async def test_a_forbidden_publish_is_an_error_at_once(nats_server: Any, tmp_path: Path) -> None:
    """16: what the permissions refuse raises Forbidden within a second, for the call that was refused only."""
    secure(nats_server, "p")
    admin = await connect(nats_server, "admin", "a", tmp_path)
    await provision(admin)
    bus = await connect(nats_server, "limited", "p", tmp_path)
    try:
        with anyio.fail_after(1), pytest.raises(Forbidden, match=r"tilt\.v1\.generate\.a\.K"):
            await bus.js.publish("tilt.v1.generate.a.K", b"x", {}, expect=0)
        assert await bus.js.publish("tilt.v1.verify.a.k", b"x", {}, expect=0) == 1
        puller = Puller(bus.js, GENERATE.stream, "generate_work")
        await puller.start()
        with anyio.fail_after(2), pytest.raises(Forbidden, match="pull"):
            await drained(puller)
        await puller.stop()
    finally:
        await bus.close()
        await admin.close()


async def test_a_connection_that_is_refused_for_good_is_told(nats_server: Any, tmp_path: Path) -> None:
    """11: when the server revokes the user, the connection's end is announced, so that the process can end."""
    secure(nats_server, "p")
    bus = await connect(nats_server, "limited", "p", tmp_path)
    secure(nats_server, "another")
    with anyio.fail_after(10):
        await bus.client.closed.wait()
    with pytest.raises(BusUnavailable):
        await bus.js.api("STREAM.INFO.TILT_GENERATE")


async def test_a_first_attempt_that_fails_is_not_the_end(nats_server: Any, tmp_path: Path) -> None:
    """11: a client that was let in at a later attempt isn't told that its connection has ended for good."""
    secure(nats_server, "p")
    await (await connect(nats_server, "admin", "a", tmp_path)).close()
    tried = anyio.Event()

    async def note(_: Exception) -> None:
        if not tried.is_set():
            tried.set()
            secure(nats_server, "later")

    url = f"nats://limited:later@127.0.0.1:{nats_server.port}"
    with anyio.fail_after(10):
        bus = await Bus.connect(url, BlobStore(tmp_path), "limited", error_cb=note)
    assert tried.is_set()
    assert not bus.client.closed.is_set()
    await bus.close()
    assert bus.client.closed.is_set()


async def test_a_server_that_is_away_for_long(bus: Bus, nats_server: Any) -> None:
    """12: reconnecting is never given up, waits differ between clients, and calls fail at once meanwhile."""
    assert bus.client.options["max_reconnect_attempts"] == -1
    nats_server.kill()
    with anyio.fail_after(5):
        while bus.client.is_connected:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        with pytest.raises(BusUnavailable):
            await bus.js.api("STREAM.INFO.TILT_GENERATE")
        await anyio.sleep(0.1)
    assert not bus.client.closed.is_set()
    nats_server.start()
    with anyio.fail_after(5):
        assert await bus.publish(GENERATE, build.rollout())


@pytest.mark.parametrize("where", ["error_callback", "lost_listener", "tap"])
async def test_a_callback_that_raises_does_not_end_the_connection(nats_server: Any, tmp_path: Path, where: str) -> None:
    """14: whichever callback raises, calls are answered again within a second or two."""

    async def broken(_: Exception) -> None:
        raise RuntimeError("a callback's mistake")

    def broken_listener(*_: object) -> None:
        raise RuntimeError("a callback's mistake")

    async with proxied(nats_server.port) as proxy:
        options = {"error_cb": broken} if where == "error_callback" else {}
        bus = await Bus.connect(proxy.url, BlobStore(tmp_path), "test", **options)
        try:
            await bus.js.api("STREAM.CREATE.TILT_GENERATE", stream_config(GENERATE))
            if where == "error_callback":
                proxy.inject(b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n")
            elif where == "lost_listener":
                bus.client.lost.insert(0, broken_listener)
                proxy.cut()
            else:
                await bus.client.tap("noise", broken_listener)
                await bus.client.publish("noise", b"x")
            with anyio.fail_after(5):
                assert await bus.publish(GENERATE, build.rollout())
            assert bus.client._reading_task is not None
            assert not bus.client._reading_task.done()
        finally:
            await bus.close()


async def test_a_corrupt_frame_costs_one_reconnect(nats_server: Any, tmp_path: Path) -> None:
    """14: bytes that are no protocol lead to a new connection, not to a deaf client that believes it is connected."""
    async with proxied(nats_server.port) as proxy:
        bus = await Bus.connect(proxy.url, BlobStore(tmp_path), "test")
        try:
            await bus.js.api("STREAM.CREATE.TILT_GENERATE", stream_config(GENERATE))
            proxy.inject(b"MSG nonsense\r\n")
            with anyio.fail_after(5):
                assert await bus.publish(GENERATE, build.rollout())
            assert bus.client.stats["reconnects"] == 1
        finally:
            await bus.close()


async def test_news_after_a_restart_arrive_in_time(bus: Bus, nats_server: Any) -> None:
    """19: a follower hears of a new version within six seconds of a restart, and asking says the same."""
    heard = anyio.Event()

    async def follow() -> None:
        async for _, policy in bus.follow(POLICY):
            if policy.version == 1:
                heard.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await bus.publish(POLICY, Policy(run="run", version=0, path="/w"))
        nats_server.kill()
        nats_server.start()
        await bus.publish(POLICY, Policy(run="run", version=1, path="/w"))
        with anyio.fail_after(6):
            await heard.wait()
        tasks.cancel_scope.cancel()
    latest = await bus.latest_policy("run")
    assert latest.version == 1


async def test_followers_leave_no_consumers_behind(nats_server: Any, tmp_path: Path) -> None:
    """A follower whose connection is cut again and again has one consumer in the end, and has missed nothing."""
    async with proxied(nats_server.port) as proxy:
        direct = await Bus.connect(nats_server.url, BlobStore(tmp_path), "direct")
        bus = await Bus.connect(proxy.url, BlobStore(tmp_path), "test", reconnect_time_wait=0.01)
        await provision(direct)
        seen: list[int] = []

        async def follow() -> None:
            async for _, policy in bus.follow(POLICY):
                seen.append(policy.version)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            for version in range(15):
                await direct.publish(POLICY, Policy(run="run", version=version, path="/w"))
                with anyio.fail_after(10):
                    while len(seen) <= version:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
                proxy.cut()
            assert seen == list(range(15))
            with anyio.fail_after(20):
                while (await direct.js.api(f"CONSUMER.NAMES.{POLICY.stream}"))["total"] > 1:  # noqa: ASYNC110
                    await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        await bus.close()
        await direct.close()
