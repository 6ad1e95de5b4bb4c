"""Does the disk of the data directory have room? Pure, with hysteresis.

A nats-server whose stream met a full disk refuses to store on that stream until it is started again, even when there is
room again; so whoever supervises it must know that the disk was full.
"""

from __future__ import annotations

from typing import Literal

FULL_BYTES = 32 << 20
ROOM_BYTES = 64 << 20
SAY_EVERY_S = 60.0


class DiskWatch:
    """What to say and do about free space, look by look."""

    def __init__(self) -> None:
        self.full = False
        self._said = 0.0

    def look(self, free_bytes: int, now: float) -> Literal["full", "room", ""]:
        """'full' when it has run full, and again every minute while it is; 'room' when there is room again."""
        if free_bytes < FULL_BYTES:
            if self.full and now - self._said < SAY_EVERY_S:
                return ""
            self.full, self._said = True, now
            return "full"
        if self.full and free_bytes >= ROOM_BYTES:
            self.full = False
            return "room"
        return ""
