"""The bus's errors, named after conditions."""

from __future__ import annotations

UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError, MemoryError)
"""What a stranger's bytes raise on being decoded, or on being encoded again: bytes that are no message and texts that
are no UTF-8, keys that are no text, integers over 64 bits, nesting without end, lengths without end."""


class BusError(RuntimeError):
    """Base of the bus's errors."""


class BusUnavailable(BusError):
    """No answer from JetStream: disconnected, no leader, or the stream does not exist yet. Worth trying again."""


class InFlight(BusUnavailable):
    """Another write of this key is on its way and may yet be lost (a leader cut off from the others holds such writes
    for ever), so the key is neither free nor taken. Never to be read as a conflict; worth trying again."""


class NotFound(BusError):
    """The stream, consumer or message does not exist."""


class StreamLost(BusError):
    """The stream ends before a position that was reached: its server has lost what it had acknowledged, or serves
    another store. What comes next would get positions that count as seen, so going on would lose it silently."""


class Conflict(BusError):
    """Somebody else wrote this key first (compare-and-set failed)."""


class StreamFull(BusError):
    """The stream refuses new messages: its limits are reached (back-pressure)."""


class Forbidden(BusError):
    """The server's permissions refuse this subject to this user."""


class TooLarge(BusError, ValueError):
    """Headers and body together exceed what the server accepts."""


class ApiError(BusError):
    """Any other refusal of the JetStream API."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} (code {code}, {err_code})")
        self.code = code
        self.err_code = err_code
