"""Messages whose subject no consumer of a flow can be named after: dead letters straight from the index of arrivals.

The second token of a subject names a flow, and a flow has a consumer that is named after it. Whoever may publish to a
stage may publish on any bytes, though, and a name takes only some. Such a message can't be one of ours, so nobody needs
to be handed it. Invariants: a letter's key is the position, so several processes store one letter; a stream of letters
that is full holds up strangers only. Left out: messages on a sound subject that is not theirs (`intake`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import Any

from tiltyard_proto import keys
from tiltyard_proto.topology import Stage

from .bus import Bus
from .deadletters import report
from .intake import Reject, printable
from .provision import durable


def is_stranger(token: str) -> bool:
    """Can no flow have this token?"""
    try:
        keys.check_token(token, "flow")
    except ValueError:
        return True
    return False


class Strangers:
    """Positions of a stage's stream that hold such messages, until they are letters."""

    def __init__(self, bus: Bus, stage: Stage[Any]) -> None:
        self._bus = bus
        self._stage = stage
        self._positions: deque[int] = deque()
        self._come = asyncio.Event()

    def add(self, position: int) -> None:
        self._positions.append(position)
        self._come.set()

    async def run(self) -> None:
        """Make letters of them, until cancelled."""
        while True:
            await self._come.wait()
            self._come.clear()
            while self._positions:
                await self._report(self._positions[0])
                self._positions.popleft()

    async def _report(self, position: int) -> None:
        found = self._bus.follow_raw(self._stage.stream, self._stage.subjects, position - 1)
        async with aclosing(found) as deliveries:
            async for delivery in deliveries:
                if delivery.sequence == position:  # else it has aged out meanwhile
                    error = Reject("subject", printable(f"{delivery.subject!r}: no domain can have this name", 500))
                    await report(self._bus, self._stage, delivery, error, durable(self._stage))
                return
