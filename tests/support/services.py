"""Run a service's `start` in this process, against the test's bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import structlog

from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import Depth, depth
from tiltyard.kit.health import HealthServer
from tiltyard.kit.service import Context
from tiltyard.kit.settings import BusSettings, DataSettings, RunSettings, ServiceSettings
from tiltyard_proto.topology import Stage


def context(name: str, bus: Bus, run: RunSettings, settings: Any, data: Path) -> Context:
    """What `run_service` would hand to the service."""
    return Context(
        name=name,
        settings=settings,
        run=run,
        bus_settings=BusSettings(),
        data_settings=DataSettings(root=str(data)),
        service=ServiceSettings(drain_s=5.0),
        bus=bus,
        blobs=bus.blobs,
        data=data / "runs" / run.name,
        stop=anyio.Event(),
        log=structlog.get_logger(),
        health=HealthServer(0, bus),
    )


@asynccontextmanager
async def running(start: Any, *contexts: Context) -> AsyncIterator[None]:
    """The services, until the block ends; then they drain."""
    async with anyio.create_task_group() as tasks:
        for each in contexts:
            tasks.start_soon(start, each)
        yield
        for each in contexts:
            each.stop.set()


async def stored(bus: Bus, stage: Stage[Any]) -> list[str]:
    """Subjects of all messages of a stage, in order; asserts that each has one only."""
    info = await bus.js.api(f"STREAM.INFO.{stage.stream}", {"subjects_filter": ">"})
    subjects: dict[str, int] = info["state"].get("subjects") or {}
    assert set(subjects.values()) <= {1}, "a key has two messages"
    assert info.get("total", 0) <= len(subjects), "the answer has more pages"
    return sorted(subjects)


async def eventually(bus: Bus, stage: Stage[Any], count: int, within_s: float = 15) -> list[str]:
    """Subjects of a stage once there are `count`; TimeoutError after `within_s` seconds."""
    with anyio.fail_after(within_s):
        while len(found := await stored(bus, stage)) < count:  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.02)
    return found


async def settled(bus: Bus, stage: Stage[Any], within_s: float = 10) -> Depth:
    """The work of a stage once the server has taken in every answer, which it does in its own time."""
    with anyio.fail_after(within_s):
        while (work := await depth(bus, stage)).in_flight:  # noqa: ASYNC110  (nobody announces it)
            await anyio.sleep(0.01)
    return work
