"""Health pages tell the truth."""

from __future__ import annotations

from typing import Any

import aiohttp
import anyio
import pytest
from support.waiting import until

from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port, port_taken
from tiltyard.kit.health import HealthServer

pytestmark = pytest.mark.anyio


async def test_problems_are_named(bus: Bus, nats_server: Any) -> None:
    """A failing check and a bus that is away are both reported; a check that passes is not."""
    health = HealthServer(0, bus)
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
    health = HealthServer(port, bus)
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
        await HealthServer(0, bus).serve()


async def test_a_taken_port_does_not_stop_the_service(bus: Bus) -> None:
    """A second process on the same port goes on without its pages."""
    port = free_port()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(HealthServer(port, bus).serve)
        await until(lambda: port_taken("127.0.0.1", port))
        with anyio.fail_after(5):
            await HealthServer(port, bus).serve()
        tasks.cancel_scope.cancel()
