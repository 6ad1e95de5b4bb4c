"""Whatever the order, the duplicates, the losses and the interleaving of two aggregators: the same groups.

Hypothesis drives coroutines of the real `Groups` over the real `MemoryLedger` one ledger call at a time: verdicts are
stored in any order, delivered any number of times to either aggregator, handlers are dropped half way and their
messages delivered again, deadlines pass, records are seen late.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any
from unittest import mock

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from support import build

from tiltyard.aggregator import groups as module
from tiltyard.aggregator import handler
from tiltyard.aggregator.backend import MemoryLedger, encode
from tiltyard.aggregator.groups import Groups
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.kit.serve import Retry
from tiltyard_proto import keys
from tiltyard_proto.messages import Group, GroupRecord, Purpose, Verdict
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import VERDICT

SIZE, DEADLINE = 3, 100.0
NAMES = tuple(keys.group_id("run", Purpose.TRAIN, index) for index in range(2))
SETTINGS = AggregatorSettings()
members = st.integers(0, SIZE - 1)


@types.coroutine
def pause() -> Generator[None, None, None]:
    """A point at which hypothesis may let somebody else go on."""
    yield


class PausingLedger(MemoryLedger):
    """Every call is a point of interleaving."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[GroupRecord] = []
        """Every record that was ever written, as a watcher may still have it."""

    async def read(self, group: str) -> tuple[GroupRecord, int] | None:
        await pause()
        return await super().read(group)

    async def write(self, record: GroupRecord, revision: int) -> int:
        await pause()
        won = await super().write(record, revision)
        if won:
            self.seen.append(record)
        return won

    async def verdict(self, subject: str) -> Verdict | None:
        await pause()
        return await super().verdict(subject)


class Work:
    """A handler on its way; `name` is the verdict it must answer, None for other work."""

    def __init__(self, machine: Aggregation, name: str | None, coroutine: Coroutine[Any, Any, None]) -> None:
        self.machine = machine
        self.name = name
        self.coroutine: Coroutine[Any, Any, None] | None = coroutine

    def step(self) -> None:
        """Go on to the next point of interleaving."""
        if self.coroutine is None:
            return
        try:
            self.coroutine.send(None)
        except StopIteration:
            self.coroutine = None

    def drop(self) -> None:
        """Its process dies."""
        if self.coroutine is not None:
            self.coroutine.close()
            self.coroutine = None

    def finish(self) -> None:
        while self.coroutine is not None:
            self.step()


class Aggregation(RuleBasedStateMachine):
    """Two aggregators, one ledger, one group stream."""

    works = Bundle("works")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        clock = types.SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        self._patch = mock.patch.object(module, "time", clock)
        self._patch.start()
        self.ledger = PausingLedger()
        self.aggregators = [Groups(self.ledger, SETTINGS), Groups(self.ledger, SETTINGS)]
        self.unanswered: set[str] = set()
        """Subjects of verdicts that are stored and not acknowledged."""
        self.stream: dict[str, Group] = {}
        self.candidates: dict[str, list[Group]] = {name: [] for name in NAMES}
        self.started: list[Work] = []

    @initialize()
    def open_groups(self) -> None:
        for name in NAMES:
            record = GroupRecord(
                id=name, run="run", domain="math.test", task_id="t", template="one", purpose=Purpose.TRAIN, version=0,
                size=SIZE, deadline=DEADLINE, opened=1.0,
            )  # fmt: skip
            self.ledger.records[name] = (encode(record), 1)
            self.ledger.seen.append(record)

    # ------------------------------------------------------------ what may happen

    @rule(name=st.sampled_from(NAMES), member=members, score=st.sampled_from([0.0, 0.5, 1.0, None]))
    def store(self, name: str, member: int, score: float | None) -> None:
        """A verdict is published; the first of a rollout wins."""
        of = build.rollout(member=member, group=name, size=SIZE, turns=(build.turn(),), outcome=Outcome.FINISHED)
        verdict = build.verdict(of, score)
        subject = VERDICT.subject(verdict)
        if subject not in self.ledger.verdicts:
            self.ledger.verdicts[subject] = verdict
            self.unanswered.add(subject)

    @rule(target=works, which=st.integers(0, 1), data=st.data())
    def deliver(self, which: int, data: st.DataObject) -> Work:
        """A stored verdict is delivered, for the first time or again, answered or not."""
        if not self.ledger.verdicts:
            return self._start(None, self._nothing())
        subject = data.draw(st.sampled_from(sorted(self.ledger.verdicts)))
        return self._start(subject, self._on_verdict(self.aggregators[which], subject))

    @rule(target=works, which=st.integers(0, 1), data=st.data())
    def look_at_deadlines(self, which: int, data: st.DataObject) -> Work:
        """An aggregator looks at a record, as it last saw it."""
        record = data.draw(st.sampled_from(self.ledger.seen))
        return self._start(None, self._on_deadline(self.aggregators[which], record))

    @rule(target=works, which=st.integers(0, 1), name=st.sampled_from(NAMES))
    def hear_of_group(self, which: int, name: str) -> Work:
        """An aggregator follows the group stream."""
        return self._start(None, self._settle(self.aggregators[which], name))

    @rule(work=works)
    def go_on(self, work: Work) -> None:
        work.step()

    @rule(work=consumes(works))
    def finish(self, work: Work) -> None:
        work.finish()

    @rule(work=consumes(works))
    def die(self, work: Work) -> None:
        work.drop()

    @rule(seconds=st.sampled_from([1.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    # ------------------------------------------------------------ the handlers

    def _start(self, name: str | None, coroutine: Coroutine[Any, Any, None]) -> Work:
        work = Work(self, name, coroutine)
        self.started.append(work)
        return work

    async def _nothing(self) -> None:
        return

    async def _on_verdict(self, groups: Groups, subject: str) -> None:
        """What `serve` does: handle, publish, acknowledge."""
        try:
            outputs = await groups.on_verdict(self.ledger.verdicts[subject])
        except Retry:
            return
        await self._publish([message for _, message in outputs])
        await pause()
        self.unanswered.discard(subject)

    async def _on_deadline(self, groups: Groups, record: GroupRecord) -> None:
        if record.deadline <= self.now:
            await self._publish([message for _, message in await groups.close_if_complete(record)])

    async def _settle(self, groups: Groups, name: str) -> None:
        if name in self.stream:
            await groups.mark_closed(name)

    async def _publish(self, messages: list[Any]) -> None:
        for group in messages:
            await pause()
            self.candidates[group.id].append(group)
            self.stream.setdefault(group.id, group)

    # ------------------------------------------------------------ what must hold

    def stored(self, name: str) -> list[Verdict]:
        """Verdicts of a group by member."""
        found = [verdict for verdict in self.ledger.verdicts.values() if verdict.rollout.group.id == name]
        return sorted(found, key=lambda verdict: verdict.rollout.member)

    def record(self, name: str) -> GroupRecord:
        return msgspec.msgpack.decode(self.ledger.records[name][0], type=GroupRecord)

    @invariant()
    def groups_hold_first_verdicts_once(self) -> None:
        """A member is there once and with the verdict that was stored first; the missing are counted."""
        for name, group in self.stream.items():
            by_member = {verdict.rollout.member: verdict for verdict in self.stored(name)}
            found = [member.verdict.rollout.member for member in group.members]
            assert found == sorted(set(found))
            assert all(by_member[member.verdict.rollout.member] is member.verdict for member in group.members)
            assert group.missing == SIZE - len(found)

    @invariant()
    def nothing_closes_early(self) -> None:
        """Before the deadline a group closes only with all members, and all who close it agree."""
        for name, group in self.stream.items():
            if self.now < DEADLINE:
                assert len(group.members) == SIZE
                others = [msgspec.structs.replace(other, closed=group.closed) for other in self.candidates[name]]
                assert all(other == group for other in others)

    @invariant()
    def records_follow_the_stream(self) -> None:
        """A record says closed only when the group is on the stream, and counts only members that are stored."""
        for name in NAMES:
            if name in self.ledger.records:
                record = self.record(name)
                assert not record.closed or name in self.stream
                assert set(record.members) <= {verdict.rollout.member for verdict in self.stored(name)}

    def teardown(self) -> None:
        """Everybody alive: all is delivered until answered, and every group that can be closed is closed, once."""
        try:
            for work in self.started:
                work.drop()
            late = self.now >= DEADLINE
            before = dict(self.stream)
            for subject in sorted(self.unanswered):
                Work(self, subject, self._on_verdict(self.aggregators[0], subject)).finish()
            for name in NAMES if self.ledger.records else ():
                Work(self, None, self._on_deadline(self.aggregators[0], self.record(name))).finish()
                Work(self, None, self._settle(self.aggregators[1], name)).finish()
                full = len(self.stored(name)) == SIZE
                assert (name in self.stream) == (full or late)
                assert self.record(name).closed == (name in self.stream)
                if full and not late:
                    at, kind = self.stream[name].closed, SETTINGS.advantage
                    wanted = handler.close(self.record(name), self.stored(name), at, kind=kind)
                    assert self.stream[name] == wanted
            assert not self.unanswered
            assert {name: self.stream[name] for name in before} == before
        finally:
            self._patch.stop()


TestAggregation = Aggregation.TestCase
TestAggregation.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
