"""How much work waits at a stage and how far its consumers have come, whichever way it is shared out.

A stage is served through its one work consumer, or through a consumer per flow where domains share a scarce resource;
where flows exist they count, and the unused work consumer does not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tiltyard_proto.topology import Stage

from .bus import Bus
from .provision import durable, flow_consumer


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one stage."""

    waiting: int = 0
    in_flight: int = 0
    redelivered: int = 0
    pulls: int = 0
    """Pull requests that wait for messages."""
    consumers: int = 0


async def consumers(bus: Bus, stage: Stage[Any]) -> list[dict[str, Any]]:
    """What the server says of each consumer that shares the stage's work out."""
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        page = await bus.js.api(f"CONSUMER.LIST.{stage.stream}", {"offset": offset})
        found += page.get("consumers") or []
        offset += int(page["limit"])
        if offset >= int(page["total"]):
            break
    flows = [info for info in found if info["name"].startswith(flow_consumer(stage, ""))]
    return flows or [info for info in found if info["name"] == durable(stage)]


def passed(info: dict[str, Any], last: int) -> int:
    """Every message of the consumer up to this position is acknowledged; `last` when it has nothing left."""
    if not info["num_pending"] and not info["num_ack_pending"]:
        return last
    return int(info["ack_floor"]["stream_seq"])


async def depth(bus: Bus, stage: Stage[Any]) -> Depth:
    """The stage's work now. Raises NotFound when the stream does not exist."""
    infos = await consumers(bus, stage)
    return Depth(
        waiting=sum(int(info["num_pending"]) for info in infos),
        in_flight=sum(int(info["num_ack_pending"]) for info in infos),
        redelivered=sum(int(info["num_redelivered"]) for info in infos),
        pulls=sum(int(info.get("num_waiting", 0)) for info in infos),
        consumers=len(infos),
    )
