"""How many sandboxes to keep ready: arithmetic on claims and times.

A group of rollouts comes all at once, and a claim that finds nothing ready waits for a start. So the pool holds what
is claimed while one refill runs, and room for the largest burst of the last minutes. Invariants: pure, the caller
brings the time; a target is within its bounds and never falls when claims or refills become more or slower; what is
not claimed is forgotten, down to the least; all targets together fit the memory. Left out: starting anything.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import msgspec

RATE_S = 30.0
"""Claims are averaged over about so long."""
BURST_WINDOW_S = 1.0
"""Claims within so long are one burst."""
BURST_HALF_S = 300.0
"""After so long a burst counts half."""
MARGIN = 1.25
"""Of the largest burst."""


class Meter:
    """The claims of one kind of sandbox. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self.claims = 0
        self._recent: deque[float] = deque()
        self._weight, self._weighed = 0.0, 0.0
        self._peak, self._peaked = 0.0, 0.0

    def claim(self, now: float) -> None:
        """Note one claim."""
        self.claims += 1
        self._weight, self._weighed = self._faded(now) + 1.0, now
        self._recent.append(now)
        while self._recent[0] <= now - BURST_WINDOW_S:
            self._recent.popleft()
        if len(self._recent) >= self.burst(now):
            self._peak, self._peaked = float(len(self._recent)), now

    def _faded(self, now: float) -> float:
        return self._weight * math.exp((self._weighed - now) / RATE_S)

    def rate(self, now: float) -> float:
        """Claims a second, lately."""
        return self._faded(now) / RATE_S

    def burst(self, now: float) -> float:
        """Claims that came at once at most; half after each `BURST_HALF_S`, nothing below one half."""
        left = self._peak * 0.5 ** ((now - self._peaked) / BURST_HALF_S)
        return left if left >= 0.5 else 0.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one pool."""

    least: int
    most: int


def target(rate: float, burst: float, refill_s: float, at_once: int, bounds: Bounds) -> int:
    """Sandboxes to keep ready. `rate` claims a second, `refill_s` seconds for one start, `at_once` starts run."""
    needed = math.ceil(rate * refill_s / at_once + MARGIN * burst - 1e-9)
    return min(max(needed, bounds.least), max(bounds.most, bounds.least))


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool would like to hold, and what each costs."""

    least: int
    target: int
    bytes: int


def allot(needs: Sequence[Need], budget: int) -> list[int]:
    """How many each may hold within `budget` bytes: all their least first, then evenly by share of their targets."""
    given = [0] * len(needs)
    for goal in ("least", "target"):
        while True:
            short = [
                (given[index] / getattr(need, goal), index)
                for index, need in enumerate(needs)
                if given[index] < getattr(need, goal) and need.bytes <= budget
            ]
            if not short:
                break
            _, index = min(short)
            given[index] += 1
            budget -= needs[index].bytes
    return given
