"""Dead letters: made from a delivery, stored, read back, and the account of what was done about each.

A letter lies on the DLQ stream under `<class>-<stream>-<sequence>`, which is its id; how it stands is an entry of a
key-value bucket under the same id, written by compare-and-set (no entry: it is open). Invariants: the original bytes
and headers are kept untouched, bar the headers that would act on another stream (`Nats-*`); storing a letter twice is
a no-op; two people who act on one letter at a time never both win. Left out: sending letters again (`replay`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
import structlog

from tiltyard_proto import keys, topology
from tiltyard_proto.messages import DeadLetter, LetterAction, LetterState
from tiltyard_proto.topology import Stage

from . import intake, metrics
from .blobs import BlobMissing
from .bus import Bus
from .delivery import Delivery, Told
from .intake import Reject, printable
from .jetstream import Conflict, NotFound

M = TypeVar("M")
KEPT_ACTIONS = 50
OPEN, REPLAYING, RESOLVED = "open", "replaying", "resolved"
SUPERSEDED, DISCARDED = "superseded", "discarded"
STATES = (OPEN, REPLAYING, RESOLVED, SUPERSEDED, DISCARDED)
log = structlog.get_logger()

letter_id: Callable[[DeadLetter], str] = topology.DLQ.key


def letter_of(stage: Stage[Any], delivery: Delivery, error: Reject, consumer: str) -> DeadLetter:
    """The dead letter of a delivery."""
    return DeadLetter(
        stage=stage.name,
        subject=printable(delivery.subject),
        stream=delivery.stream,
        sequence=delivery.sequence,
        reason=error.reason if error.reason in intake.CLASSES else "handler",
        detail=printable(error.detail),
        deliveries=delivery.deliveries,
        body=delivery.body,
        headers={printable(k): printable(v) for k, v in delivery.headers.items() if not k.startswith("Nats-")},
        first_seen=delivery.stored,
        failed=time.time(),
        consumer=consumer,
    )


async def read_sound(bus: Bus, stage: Stage[M], subject: str) -> M | None:
    """The message on `subject`, or its first sound replay when it can't be worked on; None when there is none."""
    replay = 0
    place = subject
    while (stored := await bus.js.last(stage.stream, place)) is not None:
        told = Told(stage.stream, "", deliveries=1, sequence=stored.sequence, stored=0.0)
        delivery = Delivery.of(stored.subject, stored.headers, stored.body, told)
        try:
            return await bus.receive(stage, delivery)
        except (Reject, BlobMissing) as error:
            log.warning("unsound_message", subject=place, error=str(error))
        place, replay = f"{subject}.replay.{replay}", replay + 1
    return None


class Followed(msgspec.Struct, frozen=True):
    """One position of a stream that is followed."""

    sequence: int
    message: Any
    """None: it was no message of the stage, and is a dead letter now."""
    pending: int
    """Positions that the stream holds after this one."""


async def follow_checked(bus: Bus, stage: Stage[M], reader: str, after: int = 0) -> AsyncIterator[Followed]:
    """Every position of a stage in order, then live, for ever; what can't be worked on becomes a dead letter.

    Following again stores no second letter, since a letter's key is the position.
    """
    async for delivery in bus.follow_raw(stage.stream, stage.subjects, after):
        message: M | None = None
        try:
            message = await bus.receive(stage, delivery)
        except BlobMissing as error:
            await report(bus, stage, delivery, Reject("blob", str(error)), reader)
        except Reject as error:
            await report(bus, stage, delivery, error, reader)
        yield Followed(delivery.sequence, message, delivery.pending)


async def report(bus: Bus, stage: Stage[Any], delivery: Delivery, error: Reject, reader: str) -> None:
    """Store the letter of a delivery that `reader` can't work on, once."""
    letter = letter_of(stage, delivery, error, reader)
    if await bus.publish(topology.DLQ, letter):
        metrics.DEAD_LETTERS.labels(letter.stage, letter.reason).inc()
        log.error("dead_letter", stage=stage.name, subject=letter.subject, reason=letter.reason, detail=letter.detail)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are meant; a field at its default excludes none."""

    stage: str = ""
    reason: str = ""
    domain: str = ""
    since: float = 0.0
    """Failed at this time or later."""
    until: float = 0.0
    """Failed before this time."""
    state: str = ""
    ids: frozenset[str] = frozenset()

    def takes(self, entry: Entry) -> bool:
        letter = entry.letter
        return (
            (not self.ids or entry.id in self.ids)
            and self.stage in ("", letter.stage)
            and self.reason in ("", letter.reason)
            and (not self.domain or entry.domain == self.domain or entry.domain.startswith(self.domain + "."))
            and letter.failed >= self.since
            and (not self.until or letter.failed < self.until)
            and self.state in ("", entry.state.state)
        )


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A letter, how it stands, and where it lies."""

    letter: DeadLetter
    state: LetterState
    revision: int
    """Of the state; 0 when nothing was done about the letter yet."""
    position: int
    """In the DLQ stream."""

    @property
    def id(self) -> str:
        return letter_id(self.letter)

    @property
    def domain(self) -> str:
        """As the subject says it, since the message may be unreadable."""
        parts = self.letter.subject.split(".")
        return keys.domain_of(parts[3]) if len(parts) > 3 else "?"


class Letters:
    """The dead letters of a bus."""

    def __init__(self, bus: Bus, by: str = "") -> None:
        self.bus = bus
        self.by = by
        """Who acts, for the account."""
        self._states = bus.kv(topology.LETTERS_BUCKET)

    async def all(self, which: Filter | None = None) -> list[Entry]:
        """Letters in the order they were stored, those that `which` takes."""
        states = await self._all_states()
        found: list[Entry] = []
        async for position, letter in self._stored():
            state, revision = states.get(letter_id(letter)) or (_new(letter), 0)
            entry = Entry(letter=letter, state=state, revision=revision, position=position)
            if which is None or which.takes(entry):
                found.append(entry)
        return found

    async def one(self, letter: str) -> Entry | None:
        """The letter of an id; None when there is none."""
        found = await self.all(Filter(ids=frozenset({letter})))
        return found[0] if found else None

    async def store(self, letter: DeadLetter) -> bool:
        """Store a letter; False when it was there already."""
        return await self.bus.publish(topology.DLQ, letter)

    async def move(self, entry: Entry, action: LetterAction | None = None, **changes: Any) -> Entry | None:
        """The entry with its state changed and `action` in its account; None when somebody was faster."""
        history = (*entry.state.history, action)[-KEPT_ACTIONS:] if action else entry.state.history
        state = msgspec.structs.replace(entry.state, updated=time.time(), history=history, **changes)
        subject = self._states.subject(state.letter)
        try:
            body = msgspec.msgpack.encode(state)
            revision = await self.bus.js.publish(subject, body, {}, expect=entry.revision)
        except Conflict:
            return None
        return msgspec.structs.replace(entry, state=state, revision=revision)

    def action(self, name: str, detail: str = "") -> LetterAction:
        return LetterAction(at=time.time(), action=name, by=self.by, detail=printable(detail, 16 << 10))

    async def discard(self, entry: Entry) -> bool:
        """Take a letter out for good; its account stays. False when somebody was faster."""
        if entry.state.state != DISCARDED and (
            await self.move(entry, self.action("discard", entry.letter.detail[:200]), state=DISCARDED) is None
        ):
            return False
        try:
            await self.bus.js.api(f"STREAM.MSG.DELETE.{topology.DLQ.stream}", {"seq": entry.position, "no_erase": True})
        except NotFound:
            pass  # whoever came before took it out
        return True

    # ------------------------------------------------------------ reading

    async def _stored(self) -> AsyncIterator[tuple[int, DeadLetter]]:
        async for delivery in _until_now(self.bus, topology.DLQ.stream, topology.DLQ.subjects):
            try:
                yield delivery.sequence, await self.bus.unwrap(topology.DLQ, delivery.body, delivery.headers)
            except (msgspec.MsgspecError, BlobMissing) as error:
                log.error("dead_letter_unreadable", position=delivery.sequence, error=str(error))

    async def _all_states(self) -> dict[str, tuple[LetterState, int]]:
        found: dict[str, tuple[LetterState, int]] = {}
        async for delivery in _until_now(self.bus, self._states.stream, self._states.subject(">")):
            state = msgspec.msgpack.decode(delivery.body, type=LetterState)
            found[state.letter] = state, delivery.sequence
        return found


def _new(letter: DeadLetter) -> LetterState:
    return LetterState(letter=letter_id(letter), state=OPEN, updated=letter.failed)


async def _until_now(bus: Bus, stream: str, subjects: str) -> AsyncIterator[Delivery]:
    """What a stream holds now, in order."""
    if not int((await bus.js.api(f"STREAM.INFO.{stream}"))["state"]["messages"]):
        return
    async for delivery in bus.follow_raw(stream, subjects):
        yield delivery
        if delivery.pending == 0:
            return
