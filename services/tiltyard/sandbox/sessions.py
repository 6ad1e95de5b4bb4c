"""Sandboxes kept between the turns of a rollout.

Invariants: a session is taken out while it is used, so nobody else has it; it fits only the turn it has come to (a
message that comes again finds none and starts from the carried workspace); at most `limit` are kept, the least
recently used goes first; none outlives `life_s`. Left out: rebuilding a session that is gone (`work`).
"""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakKeyDictionary

import anyio
import msgspec

from . import metrics
from .backend import Sandbox
from .handler import Key


class Session(msgspec.Struct, kw_only=True):
    """A sandbox in which `turns` turns of one attempt have run."""

    sandbox: Sandbox
    turns: int
    used: float
    """Clock time of its last use, seconds."""
    begun: float
    """Clock time of the end of its first turn."""


class Sessions:
    """Sessions by rollout and attempt."""

    def __init__(self, limit: int, life_s: float = float("inf")) -> None:
        self.limit, self.life_s = limit, life_s
        self._begun: WeakKeyDictionary[Sandbox, float] = WeakKeyDictionary()
        self._kept: OrderedDict[Key, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    async def take(self, key: Key, turns: int) -> Sandbox | None:
        """The live sandbox in which exactly `turns` turns have run; one that does not fit is killed."""
        session = self._kept.pop(key, None)
        metrics.SESSIONS.set(len(self._kept))
        if session is None:
            return None
        if session.sandbox.alive and session.turns == turns:
            return session.sandbox
        await session.sandbox.kill()
        return None

    async def keep(self, key: Key, sandbox: Sandbox, turns: int, now: float) -> None:
        """Keep a sandbox for the next turn, unless it has lived too long."""
        begun = self._begun.setdefault(sandbox, now)
        if now - begun > self.life_s:
            await sandbox.kill()
            return
        old = self._kept.pop(key, None)
        self._kept[key] = Session(sandbox=sandbox, turns=turns, used=now, begun=begun)
        if old is not None:
            await old.sandbox.kill()
        while len(self._kept) > self.limit:
            _, session = self._kept.popitem(last=False)
            await session.sandbox.kill()
        metrics.SESSIONS.set(len(self._kept))

    def remove(self, sandbox_id: str) -> Sandbox | None:
        """Take a session out for good, by its sandbox; its rollout goes on from the workspace that is stored."""
        for key, session in self._kept.items():
            if session.sandbox.id == sandbox_id:
                del self._kept[key]
                metrics.SESSIONS.set(len(self._kept))
                return session.sandbox
        return None

    async def expire(self, before: float, begun_before: float = 0.0) -> int:
        """Kill sessions last used, or begun, before those times; how many."""
        found = self._kept.items()
        stale = [key for key, session in found if session.used < before or session.begun < begun_before]
        for key in stale:
            session = self._kept.pop(key, None)
            if session is not None:
                await session.sandbox.kill()
        metrics.SESSIONS.set(len(self._kept))
        return len(stale)

    async def close(self) -> None:
        """Kill them all."""
        with anyio.CancelScope(shield=True):
            await self.expire(float("inf"))
