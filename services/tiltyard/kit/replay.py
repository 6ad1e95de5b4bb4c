"""Send dead letters again, and find out what became of it.

A replay is a new message on `<original subject>.replay.<n>`: the stage's filter matches it, the keys of its effects
are unchanged, so replaying what had succeeded is a no-op. The letter is never deleted by it; its state goes
open -> replaying -> resolved, or superseded when the replay became a letter of its own, or open again when the
replay was lost (`settle`). Invariants: the state is written before the message and names its subject, so that after a
crash the same replay is finished, never a second one begun; a letter that is not open is left alone, so that
repeating a replay changes nothing. Left out: choosing letters (`deadletters.Filter`).
"""

from __future__ import annotations

import difflib
import random
import time
from typing import Any

import anyio
import msgspec

from tiltyard_proto import topology
from tiltyard_proto.messages import MAJOR, Message
from tiltyard_proto.topology import Stage

from . import intake
from .blobs import BlobMissing
from .bus import INLINE_LIMIT, Bus
from .deadletters import OPEN, REPLAYING, Entry, Letters
from .delivery import Delivery, Told
from .intake import CLAIM, REPLAY_OF, SCHEMA, Reject
from .jetstream import BusUnavailable, Conflict, StreamFull
from .render import rendering, rendering_of_bytes

PATIENCE_S = 30.0
NEVER = "letters of stages group and policy are never sent again, since their readers count positions"


def stage_of(entry: Entry) -> Stage[Any]:
    """The stage of a letter; ValueError when this release has none of that name."""
    stage = topology.BY_NAME.get(entry.letter.stage)
    if stage is None:
        raise ValueError(f"{entry.id}: this release has no stage {entry.letter.stage!r}")
    return stage


def may_replay(entry: Entry) -> bool:
    """Not where the position counts: a group that came later would train in another step than the sampler reckons."""
    return entry.letter.stage in topology.BY_NAME and stage_of(entry) not in (topology.GROUP, topology.POLICY)


def as_delivery(entry: Entry) -> Delivery:
    """The letter as it was delivered."""
    letter = entry.letter
    told = Told(
        stream=letter.stream,
        consumer="",
        deliveries=letter.deliveries,
        sequence=letter.sequence,
        stored=letter.first_seen,
    )
    return Delivery.of(letter.subject, dict(letter.headers), letter.body, told)


async def body_of(bus: Bus, entry: Entry) -> bytes:
    """The bytes of a letter's message, those that its claim check refers to when they are there."""
    if entry.letter.headers.get(CLAIM):
        try:
            return await anyio.to_thread.run_sync(bus.blobs.get, intake.claim(entry.letter.body))
        except (Reject, BlobMissing):
            pass  # the claim check is all there is
    return entry.letter.body


async def verdict_now(letters: Letters, entry: Entry) -> str:
    """What this release says of the letter's message: '' when it would be handled, else why not."""
    try:
        await letters.bus.receive(stage_of(entry), as_delivery(entry))
    except (Reject, BlobMissing, ValueError) as error:
        return str(error)
    return ""


class Replayer:
    """Replays letters of a bus."""

    def __init__(self, letters: Letters) -> None:
        self.letters = letters
        self.bus = letters.bus

    async def replay(self, entry: Entry) -> bool:
        """Send a letter again; False when it is not open, or somebody else is at it. Finishes one begun earlier."""
        if not may_replay(entry):
            return False
        if entry.state.state == OPEN:
            base, first = intake.base_subject(entry.letter.subject)
            moved = await self._begin(entry, f"{base}.replay.{first + entry.state.replays}", "replay", "")
        else:
            moved = entry if entry.state.state == REPLAYING and not entry.state.sequence else None
        return moved is not None and await self._finish(moved)

    async def edit(self, entry: Entry, text: bytes) -> str:
        """Send a corrected JSON rendering of a letter's message instead; the difference, as a unified diff.

        ValueError when the text is no message of the stage, or the letter is not open.
        """
        if entry.state.state != OPEN:
            raise ValueError(f"{entry.id} is {entry.state.state}, only an open letter can be edited")
        if not may_replay(entry):
            raise ValueError(f"{entry.id}: {NEVER}")
        stage = stage_of(entry)
        body, message = corrected(stage, text)
        base, first = intake.base_subject(entry.letter.subject)
        own = stage.subject(message)
        number = entry.state.replays + (first if own == base else 0)
        difference = await self.difference(entry, message)
        ref = await anyio.to_thread.run_sync(self.bus.blobs.put, body)
        moved = await self._begin(entry, f"{own}.replay.{number}", "edit", difference, edited=ref)
        if moved is None or not await self._finish(moved):
            raise ValueError(f"{entry.id}: somebody else acted on this letter in the meantime; look at it again")
        return difference

    async def difference(self, entry: Entry, message: Message) -> str:
        """The change from the letter's message to `message`, both as JSON."""
        try:
            before = rendering(await self.bus.receive(stage_of(entry), as_delivery(entry)))
        except (Reject, BlobMissing):
            before = rendering_of_bytes(await body_of(self.bus, entry))
        lines = difflib.unified_diff(
            before.splitlines(), rendering(message).splitlines(), entry.id, "edited", lineterm="", n=2
        )
        return "\n".join(lines)

    async def _begin(self, entry: Entry, subject: str, action: str, detail: str, **changes: Any) -> Entry | None:
        return await self.letters.move(
            entry,
            self.letters.action(action, detail or subject),
            state=REPLAYING,
            replays=entry.state.replays + 1,
            subject=subject,
            sequence=0,
            result="",
            **changes,
        )

    async def _finish(self, entry: Entry) -> bool:
        body, headers = await self._content(entry)
        sequence = await self._publish(stage_of(entry), entry.state.subject, body, headers)
        return await self.letters.move(entry, None, sequence=sequence) is not None

    async def _content(self, entry: Entry) -> tuple[bytes, dict[str, str]]:
        headers = {**entry.letter.headers, REPLAY_OF: entry.id}
        if entry.state.edited is None:
            return entry.letter.body, headers
        ref = entry.state.edited
        body = await anyio.to_thread.run_sync(self.bus.blobs.get, ref)
        headers.pop(CLAIM, None)
        raw = msgspec.msgpack.decode(body)
        headers[SCHEMA] = f"{raw['type']}/{MAJOR}"
        if len(body) > INLINE_LIMIT:
            body, headers[CLAIM] = msgspec.msgpack.encode(ref), "1"
        return body, headers

    async def _publish(self, stage: Stage[Any], subject: str, body: bytes, headers: dict[str, str]) -> int:
        """Store a replay under its subject; the position, also when an earlier try had stored it."""
        deadline, delay = time.monotonic() + PATIENCE_S, 0.05
        while True:
            try:
                return await self.bus.js.publish(subject, body, headers, expect=0)
            except Conflict:
                stored = await self.bus.js.last(stage.stream, subject)
                if stored is not None:
                    return stored.sequence
            except (BusUnavailable, StreamFull):
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(delay * (0.5 + random.random()))
                delay = min(2.0, delay * 2)


def corrected(stage: Stage[Any], text: bytes) -> tuple[bytes, Message]:
    """The message that a JSON text is, and its bytes; ValueError says what is wrong with the text."""
    text = text.strip()
    if not text.startswith(b"{"):
        raise ValueError("expected a JSON object, as `tiltyard dlq show ID --message` prints it")
    try:
        message = intake.decode(stage, text)
    except Reject as error:
        raise ValueError(f"no message of stage {stage.name}: {error}") from error
    body = topology.encode(message)
    try:
        intake.accept(stage, stage.subject(message), body, {}, 0.0)
    except Reject as error:
        raise ValueError(str(error)) from error
    return body, message
