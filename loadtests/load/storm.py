"""After a storm of dead letters: mend the engine, send all letters again, and find out what became of them."""

from __future__ import annotations

import time

import aiohttp
import anyio
from load.meter import Meter
from rig.world import World

from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import REPLAYING, RESOLVED, Entry, Letters
from tiltyard.kit.replay import Replayer
from tiltyard.kit.settle import Settler

SENDERS = 16
BY = "load test"


async def replay(bus: Bus, world: World, meter: Meter) -> dict[str, float]:
    """Counts of letters, of those sent again, and of those whose replay ended; and the rate of both together."""
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{world.engine_port}/simulate"
        async with session.post(url, json={"refuse": 0}) as answer:
            answer.raise_for_status()
    letters = Letters(bus, BY)
    entries = await letters.all()
    begun, sent = time.monotonic(), 0
    replayer = Replayer(letters)

    async def send(some: list[Entry]) -> None:
        nonlocal sent
        for entry in some:
            done = await replayer.replay(entry)
            sent += done

    async with anyio.create_task_group() as tasks:
        for start in range(SENDERS):
            tasks.start_soon(send, entries[start::SENDERS])
    while any((await meter.look()).waiting.values()):  # noqa: ASYNC110  (nobody announces it)
        await anyio.sleep(0.2)
    seconds = time.monotonic() - begun
    settled = [entry.state for entry in await Settler(Letters(bus, BY)).settle()]
    while any(state.state == REPLAYING for state in settled):
        await anyio.sleep(0.5)
        settled = [entry.state for entry in await Settler(Letters(bus, BY)).settle()]
    ended = sum(state.state == RESOLVED for state in settled)
    return {"letters": len(entries), "sent": sent, "ended": ended, "rate": len(entries) / max(1e-9, seconds)}
