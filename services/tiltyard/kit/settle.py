"""What became of replayed dead letters: processed, late, dead again, or lost on the way.

A replay of a work stage is over when a worker that takes its subject has answered it. Invariants: the positions of
workers are read before the letters, and a letter is stored before its message is answered, so a replay that failed is
never taken for a success. Followed stages have no answers: their replay is over when it is stored, and a follower
that can't work on it stores a letter of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import anyio
import msgspec

from tiltyard_proto import keys, topology
from tiltyard_proto.messages import GroupRecord, Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import Stage

from .blobs import BlobMissing
from .deadletters import OPEN, REPLAYING, RESOLVED, SUPERSEDED, Entry, Letters, read_sound
from .jetstream import NotFound

AT_A_TIME = 32
Floors = list[tuple[Sequence[str], int]]
"""Of every worker of a stage: which subjects it takes, and up to where it has answered."""


class End(msgspec.Struct, frozen=True):
    """How a replay ended."""

    action: str
    state: str
    result: str
    detail: str


class Settler:
    """Brings the state of replaying letters up to date."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self._bus = letters.bus

    async def settle(self) -> list[Entry]:
        """Bring the state of replaying letters up to date; all letters."""
        floors = {stage.name: await self._floors(stage) for stage in topology.STAGES if stage.work}
        entries = await self._letters.all()  # read after the floors: a letter is stored before its message is answered
        failed = {(entry.letter.stream, entry.letter.sequence): entry.id for entry in entries}
        settled = list(entries)
        limit = anyio.CapacityLimiter(AT_A_TIME)

        async def one(index: int, entry: Entry) -> None:
            async with limit:
                end = await self._end(entry, floors, failed)
                if end is not None:
                    action = self._letters.action(end.action, end.detail)
                    moved = await self._letters.move(entry, action, state=end.state, result=end.result)
                    settled[index] = moved or entry

        async with anyio.create_task_group() as tasks:
            for index, entry in enumerate(entries):
                if entry.state.state == REPLAYING and entry.state.sequence and entry.letter.stage in topology.BY_NAME:
                    tasks.start_soon(one, index, entry)
        return settled

    async def _end(self, entry: Entry, floors: dict[str, Floors], failed: dict[tuple[str, int], str]) -> End | None:
        """How a replay ended; None while it is under way."""
        stage, sequence = topology.BY_NAME[entry.letter.stage], entry.state.sequence
        if (again := failed.get((stage.stream, sequence))) is not None:
            return End("supersede", SUPERSEDED, again, again)
        if not stage.work or passed(floors[stage.name], entry.state.subject, sequence):
            result = await self._result(stage, entry)
            return End("resolve", RESOLVED, result, result)
        if await self._bus.js.by_sequence(stage.stream, sequence) is None:
            return End("reopen", OPEN, "", "the replay was trimmed before anybody took it")
        return None

    async def _floors(self, stage: Stage[Any]) -> Floors:
        found: Floors = []
        total = 1
        while len(found) < total:
            try:
                page = await self._bus.js.api(f"CONSUMER.LIST.{stage.stream}", {"offset": len(found)})
            except NotFound:
                return found
            total = int(page["total"])
            for info in page.get("consumers") or ():
                config = info["config"]
                filters = config.get("filter_subjects") or [config.get("filter_subject") or ">"]
                answers = config.get("durable_name") and config.get("ack_policy") == "explicit"
                floor = int(info["ack_floor"]["stream_seq"])
                found.append((filters if answers else [], floor))
            if not page.get("consumers"):
                break
        return found

    async def _result(self, stage: Stage[Any], entry: Entry) -> str:
        """'late' when the replay could change nothing any more, else 'processed'."""
        try:
            message = await self._bus.get_sequence(stage, entry.state.sequence)
        except (msgspec.MsgspecError, BlobMissing):
            return "processed"
        rollout = message if isinstance(message, Rollout) else getattr(message, "rollout", None)
        if not isinstance(rollout, Rollout):
            return "processed"
        stored = await self._bus.kv(topology.GROUPS_BUCKET).get(rollout.group.id)
        if stored is not None:
            record = msgspec.msgpack.decode(stored[0], type=GroupRecord)
            if record.closed and rollout.member not in record.members:
                return "late"
        place = f"{topology.PREFIX}.verdict.{keys.domain_token(rollout.task.domain)}.{rollout.id}"
        verdict = await read_sound(self._bus, topology.VERDICT, place)
        return "late" if verdict is not None and verdict.outcome is Outcome.POISON else "processed"


def passed(floors: Iterable[tuple[Sequence[str], int]], subject: str, sequence: int) -> bool:
    """Has a worker that takes `subject` answered up to `sequence`? A stage may have consumers that nobody uses."""
    return any(floor >= sequence and any(matches(each, subject) for each in filters) for filters, floor in floors)


def matches(pattern: str, subject: str) -> bool:
    """Does a subject match a pattern with `*` for one token and a final `>` for one or more?"""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
