"""Health pages tell the truth."""

from __future__ import annotations

from typing import Any

import aiohttp
import anyio
import pytest
from prometheus_client import REGISTRY
from support import build
from support.waiting import until

from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port, port_taken
from tiltyard.kit.health import HealthServer
from tiltyard.kit.provision import provision
from tiltyard.kit.serve import Retry, serve
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import VERIFY

pytestmark = pytest.mark.anyio


async def test_problems_are_named(bus: Bus, nats_server: Any) -> None:
    """A failing check and a bus that is away are both reported; a check that passes is not."""
    health = HealthServer(0, bus=bus)
    assert await health.problems() == {}
    health.checks = {"engine": lambda: "no weights yet", "disk": lambda: None}
    assert await health.problems() == {"engine": "no weights yet"}
    nats_server.kill()
    problems = await health.problems()
    assert set(problems) == {"engine", "bus"}
    assert problems["bus"].startswith("no answer: ")


async def test_the_three_pages(bus: Bus) -> None:
    """Alive, ready or 503 with the reason, and metrics in Prometheus' format."""
    port = free_port()
    health = HealthServer(port, bus=bus)
    async with anyio.create_task_group() as tasks, aiohttp.ClientSession() as client:
        tasks.start_soon(health.serve)
        await until(lambda: port_taken("127.0.0.1", port))
        base = f"http://127.0.0.1:{port}"
        async with client.get(f"{base}/readyz") as reply:
            assert (reply.status, await reply.json()) == (200, {"ready": True, "problems": {}})
        health.checks["engine"] = lambda: "no weights yet"
        async with client.get(f"{base}/readyz") as reply:
            assert (reply.status, (await reply.json())["problems"]) == (503, {"engine": "no weights yet"})
        async with client.get(f"{base}/healthz") as reply:
            assert reply.status == 200
        async with client.get(f"{base}/metrics") as reply:
            assert "tiltyard_messages_total" in await reply.text()
        tasks.cancel_scope.cancel()
    assert not port_taken("127.0.0.1", port)


async def test_port_zero_serves_nothing(bus: Bus) -> None:
    """Without a port `serve` returns at once."""
    with anyio.fail_after(1):
        await HealthServer(0, bus=bus).serve()


async def test_a_taken_port_does_not_stop_the_service(bus: Bus) -> None:
    """A second process on the same port goes on without its pages."""
    port = free_port()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(HealthServer(port, bus=bus).serve)
        await until(lambda: port_taken("127.0.0.1", port))
        with anyio.fail_after(5):
            await HealthServer(port, bus=bus).serve()
        tasks.cancel_scope.cancel()


async def test_a_missing_consumer_is_not_ready(bus: Bus) -> None:
    """A service is ready while its work consumer is there, and not while it is gone."""
    health = HealthServer(0, "verifier", bus)
    assert await health.problems() == {}
    assert await HealthServer(0, "sampler", bus).problems() == {}
    await bus.js.api("CONSUMER.DELETE.TILT_VERIFY.verify_work")
    assert await health.problems() == {"verify_work": "the consumer is missing: run `tiltyard provision`"}
    assert await HealthServer(0, "aggregator", bus).problems() == {}
    await provision(bus)
    assert await health.problems() == {}


async def test_readiness_follows_the_server(bus: Bus, nats_server: Any) -> None:
    """Not ready while the server is away, and again ready soon after it is back; alive and scraped all the time."""
    port = free_port()
    health = HealthServer(port, "verifier", bus)
    base = f"http://127.0.0.1:{port}"
    async with anyio.create_task_group() as tasks, aiohttp.ClientSession() as client:

        async def status(page: str) -> tuple[int, str]:
            async with client.get(f"{base}/{page}") as reply:
                return reply.status, await reply.text()

        tasks.start_soon(health.serve)
        await until(lambda: port_taken("127.0.0.1", port))
        assert (await status("readyz"))[0] == 200
        nats_server.kill()
        code, body = await status("readyz")
        assert (code, "bus" in body) == (503, True)
        assert (await status("healthz"))[0] == 200
        assert "tiltyard_bus_up 0.0" in (await status("metrics"))[1]
        nats_server.start()
        with anyio.fail_after(10):
            while (await status("readyz"))[0] != 200:  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.05)
        assert "tiltyard_bus_up 1.0" in (await status("metrics"))[1]
        tasks.cancel_scope.cancel()


async def test_metrics_say_how_a_stage_stands(bus: Bus) -> None:
    """Lag and unanswered messages are the server's; waits, redeliveries, endings and times are this process's."""
    tries: list[str] = []
    stop = anyio.Event()
    hold = anyio.Event()

    async def handler(rollout: Rollout) -> list[Any]:
        tries.append(rollout.id)
        if len(tries) == 1:
            raise Retry(0.01, "busy")
        await hold.wait()
        return []

    before = {name: sample(name, stage="verify") for name in COUNTED}
    retries = sample("tiltyard_messages_total", stage="verify", ending="retry")
    for member in range(5):
        await bus.publish(VERIFY, build.rollout(member=member, turns=(build.turn(),), outcome=Outcome.FINISHED))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(bus, VERIFY, handler, slots=2, stop=stop))
        await until(lambda: sample("tiltyard_in_flight", stage="verify") == 2 and len(tries) == 3)
        assert await HealthServer(0, "verifier", bus).problems() == {}
        assert sample("tiltyard_lag", stage="verify") + sample("tiltyard_unacknowledged", stage="verify") == 5
        hold.set()
        await until(lambda: sample("tiltyard_handle_seconds_count", stage="verify") - before[COUNTED[0]] == 6)
        stop.set()
    grown = [sample(name, stage="verify") - before[name] for name in COUNTED]
    assert grown == [6, 5, 1]
    assert sample("tiltyard_messages_total", stage="verify", ending="retry") - retries == 1


COUNTED = ("tiltyard_handle_seconds_count", "tiltyard_wait_seconds_count", "tiltyard_redeliveries_total")


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
