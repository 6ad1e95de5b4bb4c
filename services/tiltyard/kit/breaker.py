"""A stage stops handling a domain most of whose messages die there, until a person lets it go on.

A bad release must not drain a queue into the dead letters: when, of the last `window` messages of a domain that ended
at a stage in one process, more than `share` became dead letters, the domain is paused at that stage for every process.
Its messages stay on the queue and are handed back each time they come. Counted are sound messages that a handler
refused, failed or died of; what is no message of ours is its sender's doing and pauses nobody. What is taken at once
ends sorted by its kind, since refusals are quick: a window of deaths is a suspicion, and it is judged together with as
many endings more as messages of the domain were in hand then.

Invariants: a pause is an entry of a bucket that everybody follows, so it holds for all replicas and outlives restarts;
only `resume` ends it; afterwards the count begins anew. Left out: how a person sees and ends it (`tiltyard dlq`).
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec
import structlog

from tiltyard_proto import keys, topology
from tiltyard_proto.topology import Stage

from . import metrics
from .bus import Bus, decode_value
from .errors import BusError
from .intake import printable

AGAIN_S = 10.0
"""A paused message is handed back for about so long."""
log = structlog.get_logger()


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A domain that a stage does not handle, or handles again."""

    stage: str
    domain: str
    since: float
    """When it was paused, seconds since the epoch."""
    died: int
    of: int
    """Of the last so many messages so many died."""
    detail: str
    """Why the last one did."""
    resumed: float = 0.0
    """When a person let it go on; 0 while it is paused."""
    by: str = ""

    @property
    def holds(self) -> bool:
        return not self.resumed

    @property
    def key(self) -> str:
        return f"{self.stage}-{keys.domain_token(self.domain)}"


async def follow(bus: Bus) -> AsyncIterator[Pause]:
    """Every pause as it is made and ended, from the newest of each on, for ever."""
    bucket = bus.kv(topology.PAUSES_BUCKET)
    async for delivery in bus.follow_raw(bucket.stream, bucket.subject(">")):
        if (pause := decode_value(delivery.subject, delivery.body, Pause)) is not None:
            yield pause


async def standing(bus: Bus) -> list[Pause]:
    """Pauses that hold, oldest first."""
    bucket = bus.kv(topology.PAUSES_BUCKET)
    entries = [await bucket.read(key, Pause) for key in await bucket.keys()]
    found = [entry[0] for entry in entries if entry is not None and entry[0] is not None]
    return sorted((pause for pause in found if pause.holds), key=lambda pause: pause.since)


async def resume(bus: Bus, pause: Pause, by: str) -> None:
    """Let the domain go on at the stage."""
    ended = msgspec.structs.replace(pause, resumed=time.time(), by=by)
    await bus.kv(topology.PAUSES_BUCKET).put(pause.key, msgspec.msgpack.encode(ended))


async def pause(bus: Bus, stage: str, domain: str, detail: str, *, died: int = 0, of: int = 0) -> Pause:
    """Make a stage, or the entry gate in its place, not handle a domain."""
    made = Pause(stage=stage, domain=domain, since=time.time(), died=died, of=of, detail=printable(detail, 300))
    await bus.kv(topology.PAUSES_BUCKET).put(made.key, msgspec.msgpack.encode(made))
    return made


class Breaker:
    """The breaker of one stage in one process. A share of 0 never pauses."""

    def __init__(self, bus: Bus, stage: Stage[Any], *, share: float, window: int) -> None:
        self._bus = bus
        self._stage = stage
        self._share = share
        self._window = window
        self._ended: dict[str, deque[bool]] = {}
        """By domain, whether each of the last messages died."""
        self._suspected: dict[str, int] = {}
        """By domain, how many endings decide: the window, and what was in hand when it was full of deaths."""
        self._paused: dict[str, Pause] = {}

    @property
    def paused(self) -> Mapping[str, Pause]:
        """Pauses of this stage by domain."""
        return self._paused

    def holds_back(self, subject: str) -> bool:
        """Is the domain of this subject paused?"""
        return bool(self._paused) and _domain(subject) in self._paused

    def again_s(self) -> float:
        """Seconds until a message that is held back comes again."""
        return AGAIN_S * (0.5 + random.random())

    def lived(self, subject: str) -> None:
        """A message was handled."""
        if self._share:
            self._of(_domain(subject)).append(False)

    async def died(self, subject: str, detail: str, in_hand: Iterable[str] = ()) -> None:
        """A sound message became a dead letter; pauses its domain when too many do.

        `in_hand`: subjects of the other messages that this process has taken and that have not ended.
        """
        if not self._share:
            return
        domain = _domain(subject)
        self._of(domain).append(True)
        if domain in self._paused or not self._too_many(domain, in_hand):
            return
        ended = self._ended[domain]
        try:
            made = await pause(self._bus, self._stage.name, domain, detail, died=sum(ended), of=len(ended))
        except BusError as error:  # the next death tries again
            log.warning("pause_failed", stage=self._stage.name, domain=domain, error=str(error))
            return
        self._take(made)

    def _too_many(self, domain: str, in_hand: Iterable[str]) -> bool:
        """Did more than the share die, in the window and of what was in hand beside it?"""
        ended = self._ended[domain]
        asked = self._suspected.get(domain, self._window)
        if len(ended) < asked:
            return False
        guilty = sum(ended) > self._share * asked
        if guilty and domain not in self._suspected:
            beside = sum(_domain(other) == domain for other in in_hand)
            self._suspected[domain] = self._window + beside
            self._ended[domain] = deque(ended, maxlen=self._window + beside)
            return not beside
        if not guilty and domain in self._suspected:
            del self._suspected[domain]
            self._ended[domain] = deque(ended, maxlen=self._window)
        return guilty

    def _of(self, domain: str) -> deque[bool]:
        ended = self._ended.get(domain)
        if ended is None:
            ended = self._ended[domain] = deque(maxlen=self._window)
        return ended

    async def follow(self) -> None:
        """Keep the pauses up to date, until cancelled."""
        async for pause in follow(self._bus):
            if pause.stage == self._stage.name:
                self._take(pause)

    def _take(self, pause: Pause) -> None:
        held = pause.domain in self._paused
        if pause.holds:
            self._paused[pause.domain] = pause
        else:
            self._paused.pop(pause.domain, None)
            self._ended.pop(pause.domain, None)
            self._suspected.pop(pause.domain, None)
        metrics.PAUSED.labels(pause.stage, pause.domain).set(pause.holds)
        if held != pause.holds:
            said = {"stage": pause.stage, "domain": pause.domain, "detail": pause.detail}
            if pause.holds:
                log.error("domain_paused", died=pause.died, of=pause.of, **said)
            else:
                log.info("domain_resumed", by=pause.by, **said)


def _domain(subject: str) -> str:
    return keys.domain_of(subject.split(".", 4)[3])
