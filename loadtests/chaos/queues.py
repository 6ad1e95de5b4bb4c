"""What waits at a stage, over whichever consumers share its work out: one for the stage, or one per flow."""

from __future__ import annotations

from typing import Any

from tiltyard.kit.bus import Bus
from tiltyard_proto.topology import Stage


async def consumers(bus: Bus, stage: Stage[Any]) -> list[dict[str, Any]]:
    """The consumers that work is taken from."""
    found: list[dict[str, Any]] = []
    while True:
        page = await bus.js.api(f"CONSUMER.LIST.{stage.stream}", {"offset": len(found)})
        found += page.get("consumers") or []
        if not page.get("consumers") or len(found) >= int(page["total"]):
            break
    flows = [info for info in found if info["name"].startswith(f"{stage.name}_d_")]
    return flows or [info for info in found if info["name"] == f"{stage.name}_work"]


async def waiting(bus: Bus, stage: Stage[Any]) -> int:
    """Messages that wait or were delivered and not answered."""
    return sum(info["num_pending"] + info["num_ack_pending"] for info in await consumers(bus, stage))


async def repeated(bus: Bus, stage: Stage[Any]) -> int:
    """Deliveries beyond the first."""
    found = await consumers(bus, stage)
    state = (await bus.js.api(f"STREAM.INFO.{stage.stream}"))["state"]
    return max(0, sum(info["delivered"]["consumer_seq"] for info in found) - int(state["messages"]))
