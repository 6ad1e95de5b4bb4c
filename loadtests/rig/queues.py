"""What waits at a stage and what was delivered twice, over whichever consumers share its work out."""

from __future__ import annotations

from typing import Any

from tiltyard.kit.bus import Bus
from tiltyard.kit.depth import consumers, depth
from tiltyard_proto.topology import Stage


async def waiting(bus: Bus, stage: Stage[Any]) -> int:
    """Messages that wait or were delivered and not answered."""
    found = await depth(bus, stage)
    return found.waiting + found.in_flight


async def repeated(bus: Bus, stage: Stage[Any]) -> int:
    """Deliveries beyond the first."""
    found = await consumers(bus, stage)
    state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
    return max(0, sum(info["delivered"]["consumer_seq"] for info in found) - int(state["last_seq"]))
