"""Who is served next when domains share a scarce resource: lanes in strict order, domains by deficit round robin.

A flow is a domain's messages in one lane. Each time the round comes to a flow with work it earns its weight, and takes
as many messages as it has earned; a flow without work keeps nothing. So a domain with a million messages waiting delays
another's single message by one round, and shares follow the weights while several have work.
Invariants: pure state, no clock, no bus; a flow with work and a positive weight is served within a bounded number of
rounds, unless a lane before it takes everything. Left out: where work comes from (`flows`).
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping

from tiltyard_proto.topology import EVAL_LANE, LANE_MARK

LANES = (EVAL_LANE, "")
"""First served first."""
LEAST_WEIGHT = 0.01


@functools.lru_cache(maxsize=4096)
def split(flow: str) -> tuple[str, str]:
    """Domain token and lane of a flow's token."""
    domain, _, lane = flow.partition(LANE_MARK)
    return domain, lane


class Round:
    """The flows of one lane that have work, and what each has earned."""

    def __init__(self) -> None:
        self.work: dict[str, int] = {}
        """Messages believed to wait, by flow; more than zero."""
        self.total = 0
        self._turn: deque[str] = deque()
        self._earned: dict[str, float] = {}

    def set(self, flow: str, work: int) -> None:
        """So many messages of the flow wait. With none left, what it had earned is forfeit."""
        before = self.work.pop(flow, 0)
        work = max(0, work)
        self.total += work - before
        if work:
            self.work[flow] = work
            if not before:
                self._earned[flow] = 0.0
                self._turn.append(flow)
        elif before:
            del self._earned[flow]
            self._turn.remove(flow)

    def share(self, free: int, weights: Mapping[str, float]) -> dict[str, int]:
        """How many messages each flow may take of `free`; never more than wait."""
        taken: dict[str, int] = {}
        free = min(free, self.total)
        while free > 0:
            flow = self._turn[0]
            left = self.work[flow] - taken.get(flow, 0)
            weight = max(LEAST_WEIGHT, weights.get(split(flow)[0], 1.0))
            self._earned[flow] = min(self._earned[flow], weight + 1.0)  # by a weight that it had before, perhaps
            if left > 0 and self._earned[flow] < 1.0:
                self._earned[flow] += weight
            take = min(free, left, int(self._earned[flow]))
            if take > 0:
                taken[flow] = taken.get(flow, 0) + take
                self._earned[flow] -= take
                free -= take
            if free > 0 or self._earned[flow] < 1.0:
                self._turn.rotate(-1)  # else its turn goes on when there is room again
        return taken


class Scheduler:
    """All lanes."""

    def __init__(self) -> None:
        self._rounds = {lane: Round() for lane in LANES}
        self.weights: dict[str, float] = {}
        """By domain token; 1 where it is not named."""

    def _round(self, flow: str) -> Round:
        return self._rounds.get(split(flow)[1]) or self._rounds[""]

    def work(self, flow: str) -> int:
        """Messages of the flow that are believed to wait."""
        return self._round(flow).work.get(flow, 0)

    def set(self, flow: str, work: int) -> None:
        """So many messages of the flow wait."""
        self._round(flow).set(flow, work)

    def share(self, free: int) -> dict[str, int]:
        """How many messages of which flow to take now."""
        chosen: dict[str, int] = {}
        for part in self._rounds.values():
            if free <= 0:
                break
            taken = part.share(free, self.weights)
            free -= sum(taken.values())
            chosen |= taken
        return chosen
