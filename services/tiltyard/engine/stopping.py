"""When a sequence ends: length, a stop token, or a stop string in the bytes generated so far. Pure.

Order as in SGLang: length first, then stop tokens, then stop strings. Strings are searched in bytes, so that one
split over several tokens, or inside a token, is found in the step that completes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiltyard.engine.handler import Generation

Finish = dict[str, Any]
"""SGLang's finish_reason: its type is stop (with `matched`), length (with `length`) or abort (with `message`)."""


class Stopper:
    """Follows one sequence token by token. `table` is the bytes of every token."""

    __slots__ = ("_count", "_generation", "_longest", "_table", "_tail")

    def __init__(self, generation: Generation, table: Sequence[bytes]) -> None:
        self._generation, self._table = generation, table
        self._longest = max(map(len, generation.stop), default=0)
        self._tail = b""
        self._count = 0

    def push(self, token: int) -> Finish | None:
        """Takes one more token; the reason why the sequence ends with it, or None."""
        asked = self._generation
        self._count += 1
        if self._count >= asked.max_new_tokens:
            return {"type": "length", "length": asked.max_new_tokens}
        may_stop = self._count >= asked.min_new_tokens
        if may_stop and token in asked.stop_ids:
            return {"type": "stop", "matched": token}
        if self._longest:
            searched = self._tail + self._table[token]
            if may_stop:
                for stop in asked.stop:
                    if stop in searched:
                        return {"type": "stop", "matched": stop.decode()}
            self._tail = searched[-(self._longest - 1) :] if self._longest > 1 else b""
        return None


def trimmed(text: bytes, finish: Finish, generation: Generation) -> bytes:
    """The text without the stop string it ended at, unless the request wants it kept."""
    matched = finish.get("matched")
    if generation.no_stop_trim or not isinstance(matched, str):
        return text
    position = text.find(matched.encode())
    return text if position < 0 else text[:position]
