"""The door in front of the scheduler: holds new requests during a pause or a weight update, and counts those inside.

As in SGLang, a request that arrives during a pause waits in the HTTP process, where neither loads nor aborts see it;
an update that is not under a pause waits until every request inside has ended. Runs on the event loop; needs no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """See the module."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self.paused = False
        self._updating = False
        self.inside = 0

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Waits while paused or updating, then counts as inside."""
        async with self._changed:
            await self._changed.wait_for(lambda: not (self.paused or self._updating))
            self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            await self._notify()

    @asynccontextmanager
    async def update(self) -> AsyncIterator[None]:
        """Lets nobody in; entered at once while paused, else when everybody has left. One update at a time."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._updating)
            self._updating = True
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self.paused or not self.inside)
            yield
        finally:
            self._updating = False
            await self._notify()

    async def set_paused(self, paused: bool) -> None:
        """Opens or closes the door."""
        self.paused = paused
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
