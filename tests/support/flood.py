"""Good and bad messages mixed on the generate stage, served until all is answered, and what became of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import anyio
import msgspec
from support import build, letters, poison
from support.poison import KINDS, RAISES
from support.services import stored

from tiltyard.kit.bus import SCHEMA, Bus, Out
from tiltyard.kit.deadletters import Letters
from tiltyard_proto import topology
from tiltyard_proto.messages import DeadLetter, Rollout
from tiltyard_proto.topology import DLQ, GENERATE, VERDICT, VERIFY


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a flood."""

    kinds: int
    letters: int
    wrong: list[str]
    """Poison whose letter is missing or has another class than it should."""
    handled: int
    handled_twice: int
    effects: int
    groups_to_tell: int
    groups_told: int
    """Of the poisoned rollouts that could be read: those whose group heard that they ended."""
    seconds: float


async def _publish(bus: Bus, good: int, bad: Sequence[tuple[poison.Poison, poison.Made]], seed: int) -> None:
    rollouts = [build.rollout(group=f"run-t-{n // 8}", member=n % 8, size=8) for n in range(good)]
    sound = [poison.Made(GENERATE.subject(each), topology.encode(each), {SCHEMA: "rollout/1"}) for each in rollouts]
    mixed = [*sound, *(made for _, made in bad)]
    random.Random(seed).shuffle(mixed)
    limit = anyio.CapacityLimiter(64)

    async def one(made: poison.Made) -> None:
        async with limit:
            await bus.js.publish(made.subject, made.body, made.headers, expect=0)

    async with anyio.create_task_group() as tasks:
        for made in mixed:
            tasks.start_soon(one, made)


async def flood(bus: Bus, *, good: int, poisoned: int, seed: int, within_s: float = 150) -> Found:
    """Publish `good` rollouts and `poisoned` bad messages in random order, serve them, count."""
    bad = [(KINDS[n % len(KINDS)], KINDS[n % len(KINDS)].make(n)) for n in range(poisoned)]
    await _publish(bus, good, bad, seed)
    seen: Counter[str] = Counter()

    async def handler(rollout: Rollout) -> Sequence[Out]:
        if rollout.task.template == RAISES:
            raise RuntimeError("this task always fails")
        seen[rollout.id] += 1
        return [(VERIFY, letters.done(rollout))]

    started = anyio.current_time()
    async with letters.serving(bus, handler, bury=letters.bury, slots=64):
        await letters.until_idle(bus, within_s=within_s)
    seconds = anyio.current_time() - started
    by_subject = {entry.letter.subject: entry.letter for entry in await Letters(bus).all()}
    wrong = [f"{kind.name}: {by_subject.get(made.subject)}" for kind, made in bad if not _right(kind, made, by_subject)]
    return Found(
        kinds=len({kind.name for kind, _ in bad}),
        letters=len(await stored(bus, DLQ)),
        wrong=wrong,
        handled=len(seen),
        handled_twice=sum(count > 1 for count in seen.values()),
        effects=len(await stored(bus, VERIFY)),
        groups_to_tell=sum(kind.name in TELLING for kind, _ in bad),
        groups_told=len(await stored(bus, VERDICT)),
        seconds=seconds,
    )


TELLING = ("negative_attempt_limit", "not_a_number", "expired", "failing_handler")
"""Kinds whose rollout can be read and stood on its own subject."""


def _right(kind: poison.Poison, made: poison.Made, by_subject: dict[str, DeadLetter]) -> bool:
    letter = by_subject.get(made.subject)
    return letter is not None and (letter.reason, letter.body) == (kind.reason, made.body)
