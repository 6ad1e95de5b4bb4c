"""Who kills the workers: evidence about messages that come again, and a lane where a suspect is handled alone.

When a worker dies, every message that it had in hand is delivered again, the one that killed it and its neighbours
alike, and the server's count also rises with each orderly hand-back. So the count is no evidence. Instead, whoever
takes a message in hand that somebody may have had before says so in a bucket, and takes the word back when handling has
ended in whatever orderly way: done, tried again, handed back while draining. A word that still stands at the next
delivery is a worker that was never heard of again. From the first one on the message is a suspect: it is handled with
nothing else in hand, so a worker that dies then died of it, and after `Stage.deaths_alone` such deaths it is a dead
letter.

Invariants: a first delivery costs nothing; what waits for the lane has no word standing, so it is never blamed; a
process that finds its own word lives, so nobody has died; nobody is judged while the evidence is out of reach, since
the server's count rises with each hand-back and each round of a pause: the message comes again. Where there is no
bucket, the count stands for the evidence. Left out: what follows from a verdict of guilty (`serve`).
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import anyio
import msgspec
import structlog

from tiltyard_proto import topology
from tiltyard_proto.topology import Stage

from .bus import Bus
from .delivery import Delivery
from .errors import BusError, BusUnavailable

PROCESS = uuid.uuid4().hex
"""This process, among all that work on a stage."""
PATIENCE_S = 3.0
"""How long a bus that is away may hold up a message for the sake of its evidence."""
SUSPECT_AFTER = 1
"""Workers that were never heard of again, until a message is handled alone."""
log = structlog.get_logger()


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of earlier deliveries of a message; kept in the bucket of attempts."""

    failures: int = 0
    """Times a handler ended in an error or asked for another time."""
    deaths: int = 0
    """Times a worker had it in hand and was never heard of again."""
    deaths_alone: int = 0
    """Those in which it had nothing else in hand."""
    holder: str = ""
    """The process that has it in hand now."""
    alone: bool = False
    """Does the holder handle it alone?"""

    @property
    def suspect(self) -> bool:
        return self.deaths >= SUSPECT_AFTER

    def found_by(self, process: str) -> Past:
        """What it means for the process that is given the message next."""
        free = msgspec.structs.replace(self, holder="", alone=False)
        if self.holder in ("", process):
            return free
        return msgspec.structs.replace(free, deaths=self.deaths + 1, deaths_alone=self.deaths_alone + self.alone)

    def failed(self) -> Past:
        return msgspec.structs.replace(self, failures=self.failures + 1)


NOTHING = Past()


def counted(delivery: Delivery, most: int) -> Past:
    """Where there is no evidence, the server's count of deliveries stands for it."""
    before = delivery.deliveries - 1
    guilty = before >= most
    return Past(failures=before, deaths=before * guilty, deaths_alone=before * guilty)


class Evidence:
    """The bucket of attempts, as one stage uses it."""

    def __init__(self, bus: Bus, stage: Stage[Any], process: str = PROCESS) -> None:
        self._bucket = bus.kv(topology.ATTEMPTS_BUCKET)
        self._stage = stage
        self._process = process

    @staticmethod
    def key(delivery: Delivery) -> str:
        return f"{delivery.stream}-{delivery.sequence}"

    async def past(self, delivery: Delivery) -> Past | None:
        """What is known of the message; None when that can't be read now."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                entry = await self._bucket.read(self.key(delivery), Past)
            except BusUnavailable as error:
                if time.monotonic() < deadline:
                    await anyio.sleep(0.1)
                    continue
                return None if await self._is_there() else self._counted(delivery, error)
            except BusError as error:
                return self._counted(delivery, error)
            return NOTHING if entry is None or entry[0] is None else entry[0].found_by(self._process)

    async def _is_there(self) -> bool:
        """Is there a bucket, as far as one knows, though it does not answer?"""
        try:
            return await self._bucket.exists()
        except BusUnavailable:
            return True
        except BusError:  # permissions older than this question
            return False

    def _counted(self, delivery: Delivery, error: BusError) -> Past:
        log.warning("no_evidence", stage=self._stage.name, subject=delivery.subject, error=str(error))
        return counted(delivery, self._stage.max_deliveries)

    async def hold(self, delivery: Delivery, past: Past, *, alone: bool) -> None:
        """From now on this process has it in hand."""
        await self.write(delivery, msgspec.structs.replace(past, holder=self._process, alone=alone))

    async def write(self, delivery: Delivery, past: Past) -> None:
        """Keep `past`; the log says when that can't be."""
        try:
            with anyio.move_on_after(PATIENCE_S):
                await self._bucket.put(self.key(delivery), msgspec.msgpack.encode(past))
        except BusError as error:
            log.warning("evidence_lost", stage=self._stage.name, subject=delivery.subject, error=str(error))


class Lane:
    """Many pass together, a suspect passes alone."""

    def __init__(self) -> None:
        self._inside = 0
        self._suspects = 0
        """Suspects inside or waiting."""
        self._changed = anyio.Event()

    @property
    def closed(self) -> bool:
        """Is there a suspect? Then nothing else shall be pulled."""
        return self._suspects > 0

    async def enter(self, *, alone: bool) -> None:
        """Go in, with others or alone; who is not cancelled must leave."""
        self._suspects += alone
        try:
            while self._inside if alone else self._suspects:
                await self._changed.wait()
            self._inside += 1
        except anyio.get_cancelled_exc_class():
            self._suspects -= alone
            self._tell()
            raise

    def leave(self, *, alone: bool) -> None:
        self._inside -= 1
        if self._suspects:
            self._suspects -= alone
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
