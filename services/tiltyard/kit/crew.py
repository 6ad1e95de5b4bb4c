"""Workers: tasks that handle one piece of work after another, for work that comes a thousand times a second.

A task and a cancel scope for every message cost more than its decoding. Here whoever is idle is handed the next piece,
and a new task begins only when nobody is. Invariants: what is handed over is begun, also when the crew is called off at
that moment; the last who became idle is the first who is asked, so that few serve where little is to be done; an error
of the work ends the task group, as any task's does. Left out: how many may work at a time (`serve`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from anyio.abc import TaskGroup

W = TypeVar("W")


class Crew(Generic[W]):
    """Tasks of one task group that all do `work`."""

    def __init__(self, tasks: TaskGroup, work: Callable[[W], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._work = work
        self._idle: list[asyncio.Future[W]] = []

    def hand(self, piece: W) -> None:
        """Have somebody begin with `piece` in the next turn of the event loop."""
        while self._idle:
            turn = self._idle.pop()
            if not turn.done():  # else called off while it was idle
                turn.set_result(piece)
                return
        self._tasks.start_soon(self._serve, piece)

    async def _serve(self, piece: W) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._work(piece)
            del piece  # it may be large, and this task may be idle for long
            turn: asyncio.Future[W] = loop.create_future()
            self._idle.append(turn)
            piece = await turn
