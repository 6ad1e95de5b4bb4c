"""Sampler, group stream and trainer, whatever dies when: every group is in exactly one step, none is too stale.

Hypothesis drives the real decisions (`sampler.handler.State`, `trainer.handler`) over a modelled bus: groups close in
any order, streams are read late, the sampler and the trainer restart at any point, checkpoints are made now and then.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support import build

from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler.handler import State
from tiltyard.sampler.settings import SamplerSettings
from tiltyard.trainer import handler
from tiltyard.trainer.handler import Full, Intake, Progress
from tiltyard_proto.flow import UNANSWERED, StepFold
from tiltyard_proto.messages import Group, GroupRecord, Policy, Purpose

DOMAIN = "math.test"
LATER = 1000.0
"""Long after any group closed, so that a pause between probes is over."""
TASKS = [build.task(text=str(index), template=f"t{index % 2}") for index in range(4)]


class Training(RuleBasedStateMachine):
    """One run."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, GroupRecord] = {}
        self.stream: list[Group] = []
        self.policies: dict[int, Policy] = {}
        self.steps: dict[int, tuple[str, ...]] = {}
        """Groups that each version was first trained on."""

    @initialize(
        groups=st.integers(1, 3), staleness=st.integers(0, 3), steps=st.integers(1, 4), cap=st.sampled_from([1, 1.5, 2])
    )
    def begin(self, groups: int, staleness: int, steps: int, cap: float) -> None:
        self.run = RunSettings(
            name="run", steps=steps, groups_per_step=groups, group_size=2, staleness=staleness, refill_cap=cap,
            train={DOMAIN: TaskShare(tasks=len(TASKS))},
        )  # fmt: skip
        self.policies[0] = Policy(run="run", version=0, path="/w/0")
        fresh = StepFold(groups_per_step=groups, refill_cap=cap)
        self.checkpoint = Progress(run="run", fold=fresh, started=0.0), tuple[str, ...]()
        self.restart_trainer()
        self.restart_sampler()

    # ------------------------------------------------------------ sampler

    @rule()
    def restart_sampler(self) -> None:
        """A new process reads everything, and then follows the streams from their beginning."""
        self.state = State(self.run, SamplerSettings())
        for task in TASKS:
            self.state.on_task(task)
        self.groups_known, self.groups_read, self.policies_read = 0, 0, 0
        while self._sampler_reads():
            pass
        for record in self.records.values():
            self.state.on_record(record)
        self.groups_known, self.groups_read, self.policies_read = len(self.stream), 0, 0

    def _sampler_reads(self) -> bool:
        if self.groups_read < len(self.stream):
            self.state.on_group(self.stream[self.groups_read])
            self.groups_read += 1
        elif self.policies_read < len(self.policies):
            self.state.on_policy(self.policies[sorted(self.policies)[self.policies_read]])
            self.policies_read += 1
        else:
            return False
        return True

    @rule(policies=st.booleans())
    def sampler_reads(self, policies: bool) -> None:
        """One message of either stream arrives."""
        if policies and self.policies_read < len(self.policies):
            self.state.on_policy(self.policies[sorted(self.policies)[self.policies_read]])
            self.policies_read += 1
        elif self.groups_read < len(self.stream):
            self.state.on_group(self.stream[self.groups_read])
            self.groups_read += 1

    @rule(most=st.integers(0, 9))
    def open_groups(self, most: int) -> None:
        """It opens what it may, or dies after some; ids are derived, so what is there is adopted."""
        wanted = self.state.groups_to_open(LATER)
        for record in wanted[:most]:
            self.state.on_record(self.records.setdefault(record.id, record))
        if len(wanted) > most:
            self.restart_sampler()

    # ------------------------------------------------------------ groups

    def _open(self) -> list[str]:
        closed = {group.id for group in self.stream}
        return [name for name in self.records if name not in closed]

    def _close(self, name: str, trainable: bool, reason: str = "") -> None:
        record = self.records[name]
        found = build.group([0.0, 1.0], index=record.index, trainable=trainable, purpose=Purpose.TRAIN)
        found = msgspec.structs.replace(found, reason=reason)
        self.stream.append(found)
        assert found.id == name

    @precondition(lambda self: self.records and self._open())
    @rule(data=st.data(), trainable=st.booleans())
    def close_some_group(self, data: st.DataObject, trainable: bool) -> None:
        self._close(data.draw(st.sampled_from(self._open())), trainable)

    @precondition(lambda self: self.records and self._open())
    @rule(trainable=st.booleans())
    def close_oldest_group(self, trainable: bool) -> None:
        self._close(min(self._open(), key=lambda name: self.records[name].index), trainable)

    @precondition(lambda self: self.records and self._open())
    @rule(most=st.integers(1, 12))
    def nobody_answers(self, most: int) -> None:
        """A stage is away: groups close at their deadline without a verdict."""
        for name in self._open()[:most]:
            self._close(name, False, UNANSWERED)

    # ------------------------------------------------------------ trainer

    @rule()
    def restart_trainer(self) -> None:
        """A new process goes on from the checkpoint: progress and weights of the same moment."""
        self.progress, self.weights = self.checkpoint
        self.intake: Intake = handler.begin(self.progress)

    @rule()
    def save(self) -> None:
        self.checkpoint = self.progress, self.weights

    @rule(stale=st.integers(0, 2))
    def train(self, stale: int) -> None:
        """The next group of the stream arrives, or one that has been seen."""
        position = max(1, self.intake.position + 1 - stale)
        if position > len(self.stream) or self.progress.final:
            return
        self.intake, full = handler.take(self.intake, position, self.stream[position - 1], "run")
        if full is not None:
            self._step(full)

    def _step(self, full: Full) -> None:
        version, groups = full.fold.step, tuple(group.id for group in full.groups)
        assert self.steps.setdefault(version, groups) == groups, "a step repeated after a restart had other groups"
        self.weights = (*self.weights, *groups)
        final = handler.is_final(version, self.run.steps, elapsed_s=0, max_wall_s=0)
        policy = Policy(run="run", version=version, path=f"/w/{version}", final=final, position=full.position)
        self.progress = handler.advance(self.progress, full, self.policies.setdefault(version, policy))

    # ------------------------------------------------------------ what must hold

    @invariant()
    def each_group_is_trained_once(self) -> None:
        """The weights have seen the stream's groups up to their position, each once and in order."""
        if not self.policies:
            return
        trained = self.stream[: self.progress.position]
        assert list(self.weights) == [group.id for group in trained]
        assert len(set(self.weights)) == len(self.weights)
        in_steps = [name for groups in self.steps.values() for name in groups]
        assert len(in_steps) == len(set(in_steps)), "a group is in two steps"

    @invariant()
    def nothing_is_too_stale(self) -> None:
        """While groups close in the order they were opened, none is older than the bound allows when it is trained."""
        indices = [self.records[group.id].index for group in self.stream]
        for version, groups in self.steps.items():
            upto = max(indices.index(self.records[name].index) for name in groups) + 1
            if indices[:upto] == sorted(indices[:upto]):
                ages = [version - 1 - self.records[name].version for name in groups]
                assert max(ages) <= self.run.staleness

    @invariant()
    def no_step_is_short_for_want_of_answers(self) -> None:
        """A step has the trainable groups it needs, or as many answered ones as its refills allow."""
        closed = {group.id: group for group in self.stream}
        for groups in self.steps.values():
            answered = [closed[name] for name in groups if closed[name].reason != UNANSWERED]
            cap = self.run.refill_cap * self.run.groups_per_step
            assert sum(group.trainable for group in answered) == self.run.groups_per_step or len(answered) >= cap

    @invariant()
    def sampler_and_trainer_agree(self) -> None:
        """Two folds of the same prefix of the stream are the same account."""
        if self.policies and max(self.groups_known, self.groups_read) == self.intake.position:
            assert self.state.fold == self.intake.fold

    def teardown(self) -> None:
        """Left alone, the run comes to its end."""
        if not self.policies:
            return
        for _ in range(1000):
            if self.progress.final:
                break
            while self._sampler_reads():
                pass
            for record in self.state.groups_to_open(LATER):
                self.state.on_record(self.records.setdefault(record.id, record))
            for name in self._open():
                self._close(name, True)
            while self.intake.position < len(self.stream) and not self.progress.final:
                self.train(0)
        assert self.progress.final
        assert sorted(self.steps) == list(range(1, self.run.steps + 1))
        self.each_group_is_trained_once()


TestTraining: Any = Training.TestCase
TestTraining.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
