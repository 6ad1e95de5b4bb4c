"""Pure decisions of the sampler: which groups to open now, and where the run stands.

The sampler's state is a fold over three streams (tasks, closed groups, policies) and the bucket of group records, so
a restart rebuilds it by reading them again; ids of groups are derived from the run and an index, so opening one again
is a no-op. Invariants: a training group is opened only while `StepFold.room` allows it, so sampling runs ahead by the
staleness bound at most; while an evaluation is open no training group is opened; an evaluation of version v is opened
once. A step's groups that nobody answered for in a row mean that a stage is away: then one group at a time is opened,
ever more seldom, until one is answered. Left out: admission of tasks by their reference solution, allotment between
domains by value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard_proto import keys
from tiltyard_proto.flow import UNANSWERED, StepFold
from tiltyard_proto.messages import Group, GroupRecord, GroupRef, Policy, Purpose, Rollout, Sampling, Task
from tiltyard_proto.outcomes import policy_for
from tiltyard_proto.topology import GATE

from .curriculum import Curriculum
from .settings import SamplerSettings


class State:
    """What the sampler knows of one run."""

    def __init__(self, run: RunSettings, settings: SamplerSettings) -> None:
        self.run = run
        self.settings = settings
        self.tasks: dict[str, Task] = {}
        self.curriculum = Curriculum(run.seed, settings.forget, settings.explore)
        self.fold = StepFold(groups_per_step=run.groups_per_step, refill_cap=run.refill_cap)
        self.policy: Policy | None = None
        self.open: dict[str, GroupRecord] = {}
        self._counts: Counter[Purpose] = Counter()
        """Of open groups, by purpose."""
        self._pools: dict[tuple[str, str], list[Task]] = {}
        """What `pool` found, until another task comes."""
        self.closed: set[str] = set()
        self.next_index = 0
        self.retired: set[str] = set()
        """Tasks that turned out to be broken themselves."""
        self.paused: dict[str, set[str]] = {}
        """Stages that handle nothing of a domain, by domain."""
        self.silent_at = 0.0
        """When the last training group that nobody answered for closed."""
        self.eval_plan: list[tuple[Task, TaskShare]] | None = None

    # ------------------------------------------------------------ what happened

    def on_task(self, task: Task) -> None:
        self.tasks[task.id] = task
        self._pools.clear()

    def on_record(self, record: GroupRecord) -> None:
        """A group that was opened, by this process or an earlier one."""
        if record.purpose is Purpose.TRAIN:
            self.next_index = max(self.next_index, record.index + 1)
            self.curriculum.use(record.index, record.task_id)
        if record.id not in self.closed:
            self._counts[record.purpose] += record.id not in self.open
            self.open[record.id] = record

    def on_group(self, group: Group) -> None:
        """A group closed."""
        if group.run != self.run.name or group.id in self.closed:
            return
        self.closed.add(group.id)
        if (record := self.open.pop(group.id, None)) is not None:
            self._counts[record.purpose] -= 1
        self.fold = self.fold.add(group)
        if any(policy_for(member.verdict.outcome).retire for member in group.members):
            self.retired.add(group.task_id)
        if group.purpose is Purpose.TRAIN:
            if group.reason == UNANSWERED:
                self.silent_at = group.closed
            else:
                self.curriculum.learn(group)

    def on_policy(self, policy: Policy) -> None:
        if policy.run == self.run.name and (self.policy is None or policy.version >= self.policy.version):
            self.policy = policy

    def on_pause(self, domain: str, stage: str, *, holds: bool) -> None:
        """A stage stopped handling a domain, or goes on with it."""
        stages = self.paused.setdefault(domain, set())
        (stages.add if holds else stages.discard)(stage)

    # ------------------------------------------------------------ what is there

    def open_groups(self, purpose: Purpose) -> int:
        """How many groups of a purpose are open."""
        return self._counts[purpose]

    def pool(self, domain: str, split: str) -> list[Task]:
        """Tasks of a domain, in an order that depends on nothing but their content."""
        found = self._pools.get((domain, split))
        if found is None:
            chosen = [task for task in self.tasks.values() if task.domain == domain and task.split == split]
            found = self._pools[domain, split] = sorted(chosen, key=lambda task: task.id)
        return found

    def missing_tasks(self) -> dict[str, int]:
        """How many tasks each domain of the run still lacks."""
        wanted = [(d, "train", share) for d, share in self.run.train.items()]
        wanted += [(d, "eval", share) for d, share in self.run.evaluate.items()]
        lacks = {f"{d} ({split})": share.tasks - len(self.pool(d, split)) for d, split, share in wanted}
        return {name: lack for name, lack in lacks.items() if lack > 0}

    def train_tasks(self) -> list[Task]:
        """Without the broken ones and the paused domains; all of them when there is no other, so that the run still
        ends. A domain that the entry gate keeps out is never among them."""
        admitted = [domain for domain in self.run.train if GATE not in self.paused.get(domain, ())]
        tasks = [task for domain in admitted for task in self.pool(domain, "train")]
        sound = [task for task in tasks if task.id not in self.retired] or tasks
        return [task for task in sound if not self.paused.get(task.domain)] or sound

    def evaluation(self) -> list[tuple[Task, TaskShare]]:
        """The tasks of every evaluation of the run; fixed when first asked for."""
        if self.eval_plan is None:
            self.eval_plan = [
                (task, share)
                for d, share in self.run.evaluate.items()
                for task in self.pool(d, "eval")[: share.tasks]
                if GATE not in self.paused.get(d, ())
            ]
        return self.eval_plan

    # ------------------------------------------------------------ what to do

    def version_to_evaluate(self) -> int | None:
        """The version whose evaluation should be open or done now; None when none is due."""
        if self.policy is None or not self.run.evaluate:
            return None
        version = self.policy.version
        due = version == 0 or self.policy.final
        if self.run.evaluate_every:
            due = due or version % self.run.evaluate_every == 0
        return version if due else None

    def evaluation_groups(self, version: int) -> list[str]:
        return [keys.group_id(self.run.name, Purpose.EVAL, index, version) for index in range(len(self.evaluation()))]

    def evaluated(self, version: int) -> bool:
        return all(group in self.closed for group in self.evaluation_groups(version))

    def finished(self) -> bool:
        """The last policy is there and its evaluation is complete."""
        final = self.policy is not None and self.policy.final
        return final and (not self.run.evaluate or self.evaluated(self.policy.version))  # type: ignore[union-attr]

    def groups_to_open(self, now: float) -> list[GroupRecord]:
        """Groups that should be opened now, evaluations first."""
        if self.policy is None:
            return []
        version = self.version_to_evaluate()
        if version is not None:
            ids = self.evaluation_groups(version)
            new = [i for i, group in enumerate(ids) if group not in self.closed and group not in self.open]
            if new:
                return [self._eval_record(i, version, now) for i in new]
        if self.policy.final or self.open_groups(Purpose.EVAL):
            return []
        return self._training(now)

    def _training(self, now: float) -> list[GroupRecord]:
        assert self.policy is not None
        room = self.fold.room(
            version=self.policy.version,
            staleness=self.run.staleness,
            in_flight=self.open_groups(Purpose.TRAIN),
            steps=self.run.steps,
        )
        if self.probing():
            room = min(room, 1) if self._probe_due(now) else 0
        tasks = self.train_tasks() if room else []
        if not tasks:
            return []
        indices = range(self.next_index, self.next_index + room)
        return [self._train_record(self.curriculum.choose(tasks, i), i, now) for i in indices]

    def probing(self) -> bool:
        """Has nobody answered for a whole step's groups?"""
        return self.fold.silence >= self.run.groups_per_step

    def _probe_due(self, now: float) -> bool:
        """May one more group ask whether somebody answers again?"""
        if self.open_groups(Purpose.TRAIN):
            return False
        doublings = min(self.fold.silence - self.run.groups_per_step, 64)
        pause = min(self.settings.probe_cap_s, self.settings.probe_first_s * 2.0**doublings)
        return now >= self.silent_at + pause

    def _train_record(self, task: Task, index: int, now: float) -> GroupRecord:
        group = keys.group_id(self.run.name, Purpose.TRAIN, index)
        return self._record(task, group, Purpose.TRAIN, index, self.run.group_size, now)

    def _eval_record(self, index: int, version: int, now: float) -> GroupRecord:
        task, share = self.evaluation()[index]
        group = keys.group_id(self.run.name, Purpose.EVAL, index, version)
        return self._record(task, group, Purpose.EVAL, index, share.samples, now)

    def _record(self, task: Task, group: str, purpose: Purpose, index: int, size: int, now: float) -> GroupRecord:
        assert self.policy is not None
        return GroupRecord(
            id=group,
            run=self.run.name,
            domain=task.domain,
            task_id=task.id,
            template=task.template,
            purpose=purpose,
            version=self.policy.version,
            size=size,
            index=index,
            opened=now,
            deadline=now + self.run.group_deadline_s,
        )


def rollouts(record: GroupRecord, task: Task, run: RunSettings) -> Iterable[Rollout]:
    """The rollouts of an opened group, before their first turn; the same record gives the same rollouts."""
    shares = run.train if record.purpose is Purpose.TRAIN else run.evaluate
    share = shares.get(record.domain, TaskShare())
    sampling: Sampling = task.sampling
    if share.temperature is not None:
        sampling = msgspec.structs.replace(sampling, temperature=share.temperature)
    for member in range(record.size):
        yield Rollout(
            id=keys.rollout_id(record.id, member),
            run=record.run,
            group=GroupRef(
                id=record.id,
                size=record.size,
                deadline=record.deadline,
                purpose=record.purpose,
                version=record.version,
            ),
            member=member,
            task=task,
            sampling=sampling,
            created=record.opened,
            deadline=min(record.deadline, record.opened + task.limits.wall_s),
        )
