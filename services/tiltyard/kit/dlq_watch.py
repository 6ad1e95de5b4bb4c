"""The gauges that alerts stand on: how many dead letters wait for a person, and since when the oldest does.

Follows the dead letters and their states, so nothing is polled and a restart counts anew. Invariants: a letter waits
while it is open; one that aged out of its stream no longer counts. Left out: the counter of new letters, which
belongs to whoever stores them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import anyio
import msgspec
import structlog

from tiltyard_proto import topology
from tiltyard_proto.messages import LetterState

from . import metrics
from .bus import Bus
from .deadletters import OPEN, letter_id

PUBLISH_EVERY_S = 2.0
log = structlog.get_logger()


class Waiting(msgspec.Struct, frozen=True):
    """What a gauge needs of a letter."""

    stage: str
    reason: str
    failed: float


class DlqWatch:
    """Letters and states as far as the streams were read."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._letters: dict[str, Waiting] = {}
        self._states: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_letters)
            tasks.start_soon(self._follow_states)
            while True:
                self.publish(time.time())
                await anyio.sleep(PUBLISH_EVERY_S)

    async def _follow_letters(self) -> None:
        async for _, letter in self._bus.follow(topology.DLQ):
            self._letters[letter_id(letter)] = Waiting(letter.stage, letter.reason, letter.failed)

    async def _follow_states(self) -> None:
        bucket = self._bus.kv(topology.LETTERS_BUCKET)
        async for delivery in self._bus.follow_raw(bucket.stream, bucket.subject(">")):
            try:
                state = msgspec.msgpack.decode(delivery.body, type=LetterState)
            except msgspec.MsgspecError as error:
                log.error("letter_state_unreadable", subject=delivery.subject, error=str(error))
                continue
            self._states[state.letter] = state.state

    def waiting(self, now: float) -> Mapping[str, Waiting]:
        """Open letters by id."""
        youngest = now - topology.DLQ.max_age_s
        self._letters = {key: letter for key, letter in self._letters.items() if letter.failed >= youngest}
        return {key: each for key, each in self._letters.items() if self._states.get(key, OPEN) == OPEN}

    def publish(self, now: float) -> None:
        """Set the gauges."""
        waiting = self.waiting(now).values()
        metrics.DLQ_DEPTH.clear()
        metrics.DLQ_OLDEST.clear()
        for (stage, reason), count in Counter((each.stage, each.reason) for each in waiting).items():
            metrics.DLQ_DEPTH.labels(stage, reason).set(count)
        for stage in {each.stage for each in waiting}:
            oldest = min(each.failed for each in waiting if each.stage == stage)
            metrics.DLQ_OLDEST.labels(stage).set(max(0.0, now - oldest))
