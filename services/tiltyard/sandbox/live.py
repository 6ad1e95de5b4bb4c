"""The sandboxes that have been handed out, and for whom: what people are shown, and what is killed when it stays.

Invariants: a sandbox is entered when it is claimed and leaves when it is gone, whoever killed it, so counts can't
drift; one that is past its lease or its lifetime is killed by `overdue` whatever its user does. Left out: idle
sandboxes of the pool, which are nobody's yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import msgspec

from .admission import Owner
from .backend import Sandbox

REST_AFTER_S = 1.0
"""A session that waits for so long rests until its next turn."""
BUSY, GRADING, SESSION, DEBUG = "busy", "grading", "session", "debug"


class Entry(msgspec.Struct, kw_only=True):
    """One sandbox that was handed out."""

    sandbox: Sandbox
    owner: Owner
    rollout: str
    state: str = BUSY
    claimed: float = 0.0
    used: float = 0.0
    lease: float = 0.0
    """It must have answered by then; 0 while nothing runs in it."""
    look: float = math.inf
    """When to see whether it can rest. All four: monotonic seconds."""


class Live:
    """Sandboxes by id."""

    def __init__(self, gone: Callable[[Owner], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.gone, self.clock = gone, clock
        """`gone` is told once for each sandbox that was entered."""
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        self.prune()
        return iter(list(self._entries.values()))

    def enter(self, sandbox: Sandbox, owner: Owner, rollout: str) -> None:
        """A sandbox was claimed."""
        now = self.clock()
        self._entries[sandbox.id] = Entry(sandbox=sandbox, owner=owner, rollout=rollout, claimed=now, used=now)

    def find(self, sandbox_id: str) -> Entry | None:
        self.prune()
        return self._entries.get(sandbox_id)

    def begin(self, sandbox_id: str, state: str, lease_s: float) -> None:
        """Something runs in it now, for at most `lease_s` seconds."""
        entry = self._entries.get(sandbox_id)
        if entry is not None:
            entry.state, entry.used, entry.lease = state, self.clock(), self.clock() + lease_s
            entry.look = math.inf

    def end(self, sandbox_id: str) -> None:
        """Nothing runs in it any more; it is still in use, since its files are to be fetched."""
        entry = self._entries.get(sandbox_id)
        if entry is not None:
            entry.used, entry.lease = self.clock(), 0.0

    def rest(self, sandbox_id: str) -> None:
        """It waits for its rollout's next turn, and may be ended for want of room."""
        entry = self._entries.get(sandbox_id)
        if entry is not None and not entry.lease:
            entry.state, entry.used = SESSION, self.clock()
            entry.look = entry.used + REST_AFTER_S

    def waiting(self) -> list[Entry]:
        """Sessions of which it is time to see whether they can rest; each is looked at again after twice its wait."""
        now = self.clock()
        found = [entry for entry in self if entry.look <= now]
        for entry in found:
            entry.look = now + (now - entry.used)
        return found

    def prune(self) -> None:
        """Let those go that are gone."""
        for sandbox_id in [name for name, entry in self._entries.items() if entry.sandbox.gone]:
            self.gone(self._entries.pop(sandbox_id).owner)

    def longest_idle(self, kind: str, name: str) -> Entry | None:
        """The session, of that tenant or domain, which was used longest ago."""
        found = [entry for entry in self if entry.state == SESSION and getattr(entry.owner, kind) == name]
        return min(found, key=lambda entry: entry.used, default=None)

    def overdue(self, lifetime_s: float) -> list[tuple[Entry, str]]:
        """Those past their lease or their lifetime, with which of the two."""
        now = self.clock()
        late = [(entry, "lease") for entry in self if entry.lease and entry.lease < now]
        old = [(entry, "lifetime") for entry in self if entry.claimed + lifetime_s < now]
        return late + [(entry, why) for entry, why in old if all(entry is not other for other, _ in late)]
