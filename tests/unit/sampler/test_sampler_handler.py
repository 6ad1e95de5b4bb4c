"""The sampler's decisions: evaluations first, pacing, recovery, the end of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from support import build

from tiltyard.kit.settings import RunSettings, TaskShare
from tiltyard.sampler.handler import State, rollouts
from tiltyard.sampler.settings import SamplerSettings
from tiltyard_proto import keys
from tiltyard_proto.flow import UNANSWERED
from tiltyard_proto.messages import Group, GroupRecord, Member, Policy, Purpose, Task
from tiltyard_proto.outcomes import Outcome

NOW = 1000.0
TRAIN, EVAL = "math.train", "math.eval"
TASKS = [build.task(TRAIN, text=str(i), template=f"t{i % 3}") for i in range(9)]
EVAL_TASKS = [build.task(EVAL, text=str(i), split="eval") for i in range(3)]


def run_settings(**fields: Any) -> RunSettings:
    base: dict[str, Any] = {
        "name": "run",
        "steps": 4,
        "groups_per_step": 2,
        "group_size": 2,
        "staleness": 1,
        "train": {TRAIN: TaskShare(tasks=9)},
        "evaluate": {EVAL: TaskShare(tasks=2, samples=3)},
    }
    return RunSettings(**(base | fields))


def state(tasks: Iterable[Task] = (*TASKS, *EVAL_TASKS), version: int | None = 0, **fields: Any) -> State:
    made = State(run_settings(**fields), SamplerSettings())
    for task in tasks:
        made.on_task(task)
    if version is not None:
        made.on_policy(policy(version))
    return made


def policy(version: int, *, final: bool = False, run: str = "run") -> Policy:
    return Policy(run=run, version=version, path=f"/w/{version}", final=final)


def open_all(of: State, now: float = NOW) -> list[GroupRecord]:
    """Open what the state asks for, as the service does."""
    records = of.groups_to_open(now)
    for record in records:
        of.on_record(record)
    return records


def closed(record: GroupRecord, scores: Iterable[float] = (0.0, 1.0), *, trainable: bool = True) -> Group:
    """The record's group with these scores."""
    task = next(t for t in (*TASKS, *EVAL_TASKS) if t.id == record.task_id)
    members = []
    for index, score in enumerate(scores):
        of = build.rollout(task, member=index, group=record.id, turns=(build.turn(),), outcome=Outcome.FINISHED)
        members.append(Member(verdict=build.verdict(of, score), reward=score, advantage=0.0, trains=trainable))
    return Group(
        id=record.id,
        run=record.run,
        domain=record.domain,
        task_id=record.task_id,
        template=record.template,
        purpose=record.purpose,
        version=record.version,
        members=tuple(members),
        missing=0,
        trainable=trainable and record.purpose is Purpose.TRAIN,
    )


def after_first_evaluation(**fields: Any) -> State:
    made = state(**fields)
    for record in open_all(made):
        made.on_group(closed(record))
    return made


# ---------------------------------------------------------------- opening


def test_nothing_before_the_first_policy() -> None:
    """Without weights nothing is opened."""
    assert state(version=None).groups_to_open(NOW) == []


def test_the_first_evaluation_comes_first() -> None:
    """Version 0 is evaluated on the share's tasks and samples before anything is trained."""
    made = state()
    records = open_all(made)
    assert [record.id for record in records] == ["run-e0-0", "run-e0-1"]
    assert {(record.purpose, record.size, record.version) for record in records} == {(Purpose.EVAL, 3, 0)}
    assert {record.task_id for record in records} <= {task.id for task in EVAL_TASKS}
    assert made.groups_to_open(NOW) == []


def test_no_training_while_an_evaluation_is_open() -> None:
    """The last open evaluation group holds training back; its close lets it go."""
    made = state()
    first, second = open_all(made)
    made.on_group(closed(first))
    assert made.groups_to_open(NOW) == []
    made.on_group(closed(second))
    records = made.groups_to_open(NOW)
    assert {record.purpose for record in records} == {Purpose.TRAIN}


def test_training_opens_what_there_is_room_for() -> None:
    """(staleness + 1) steps of groups at first, then one step's groups with each version."""
    made = after_first_evaluation()
    records = open_all(made)
    assert [record.id for record in records] == [f"run-t-{i}" for i in range(4)]
    assert all((r.size, r.version, r.deadline) == (2, 0, NOW + 300.0) for r in records)
    assert made.groups_to_open(NOW) == []
    for record in records[:2]:
        made.on_group(closed(record))
    assert made.groups_to_open(NOW) == []
    made.on_policy(policy(1))
    assert [record.id for record in open_all(made)] == ["run-t-4", "run-t-5"]


def test_dropped_groups_are_refilled() -> None:
    """A group without signal makes room for another, under the next index."""
    made = after_first_evaluation()
    records = open_all(made)
    made.on_group(closed(records[0], (1.0, 1.0), trainable=False))
    assert [record.id for record in open_all(made)] == ["run-t-4"]


def test_training_tasks_are_of_the_training_split() -> None:
    """A task of the evaluation split is never trained on, even in a domain that is trained."""
    made = after_first_evaluation(
        tasks=(*TASKS[:2], *EVAL_TASKS, build.task(TRAIN, text="held out", split="eval")),
        groups_per_step=20,
    )
    assert {record.task_id for record in open_all(made)} == {task.id for task in TASKS[:2]}


def test_a_broken_task_is_retired() -> None:
    """A task that its verifier calls broken is not tried again; when all are, all are tried, so that the run ends."""
    made = after_first_evaluation(steps=50)
    record = open_all(made)[0]
    group = closed(record, trainable=False)
    member = group.members[0]
    broken = msgspec.structs.replace(member.verdict, outcome=Outcome.TASK_BROKEN, score=None)
    group = msgspec.structs.replace(group, members=(msgspec.structs.replace(member, verdict=broken),))
    made.on_group(group)
    assert record.task_id not in {task.id for task in made.train_tasks()}
    assert len(made.train_tasks()) == len(TASKS) - 1
    made.retired = {task.id for task in TASKS}
    assert len(made.train_tasks()) == len(TASKS)


def test_nothing_to_train_on() -> None:
    """A run without training tasks opens no training group."""
    assert after_first_evaluation(tasks=EVAL_TASKS).groups_to_open(NOW) == []


def test_evaluation_every_so_many_versions() -> None:
    """With evaluate_every = 2 versions 2 and 4 are evaluated, each once, and version 1 is not."""
    made = after_first_evaluation(evaluate_every=2)
    opened = [record.id for record in open_all(made)]
    made.on_policy(policy(1))
    assert all(name.startswith("run-t-") for name in [*opened, *(record.id for record in open_all(made))])
    made.on_policy(policy(2))
    evaluation = open_all(made)
    assert [record.id for record in evaluation] == ["run-e2-0", "run-e2-1"]
    assert made.groups_to_open(NOW) == []
    for record in evaluation:
        made.on_group(closed(record))
    assert all(record.purpose is Purpose.TRAIN for record in open_all(made))


def test_without_evaluate_every_only_first_and_last() -> None:
    """Versions between the first and the final one are not evaluated."""
    made = after_first_evaluation()
    for version in (1, 2, 3):
        made.on_policy(policy(version))
        assert made.version_to_evaluate() is None
    made.on_policy(policy(4, final=True))
    assert made.version_to_evaluate() == 4


# ---------------------------------------------------------------- the end


def test_the_final_evaluation_ends_the_run() -> None:
    """The final version is evaluated, nothing more is trained, and then the run has finished."""
    made = after_first_evaluation()
    open_all(made)
    made.on_policy(policy(4, final=True))
    evaluation = open_all(made)
    assert [record.id for record in evaluation] == ["run-e4-0", "run-e4-1"]
    assert not made.finished()
    for record in evaluation:
        made.on_group(closed(record))
    assert made.finished()
    assert made.groups_to_open(NOW) == []


def test_no_steps_is_one_evaluation() -> None:
    """With steps = 0 version 0 is final: it is evaluated once, nothing is trained, the run has finished."""
    made = state(version=None, steps=0)
    made.on_policy(policy(0, final=True))
    records = open_all(made)
    assert {record.purpose for record in records} == {Purpose.EVAL}
    for record in records:
        made.on_group(closed(record))
    assert made.finished()
    assert made.groups_to_open(NOW) == []


def test_without_evaluation_the_final_policy_ends_the_run() -> None:
    """A run that evaluates nothing finishes with its last version."""
    made = state(evaluate={})
    assert not made.finished()
    made.on_policy(policy(4, final=True))
    assert made.finished()


def test_no_group_past_the_last_step() -> None:
    """With one step to go the room of staleness is not used."""
    made = after_first_evaluation(steps=1)
    assert len(open_all(made)) == 2


# ---------------------------------------------------------------- what is folded in


def test_other_runs_are_not_ours() -> None:
    """Groups and policies of another run change nothing."""
    made = after_first_evaluation()
    (record, *_) = open_all(made)
    before = made.fold
    made.on_group(msgspec.structs.replace(closed(record), run="other"))
    made.on_policy(policy(3, run="other"))
    assert (made.fold, made.policy) == (before, policy(0))


def test_a_group_is_counted_once() -> None:
    """The same closed group again, and an older policy, change nothing."""
    made = after_first_evaluation()
    (record, *_) = open_all(made)
    made.on_group(closed(record))
    before = made.fold
    made.on_group(closed(record))
    made.on_policy(policy(1))
    made.on_policy(policy(0))
    assert (made.fold, made.policy) == (before, policy(1))


def test_missing_tasks_are_counted_by_domain_and_split() -> None:
    """What each domain of the run lacks; none when all are there."""
    assert state(TASKS[:4]).missing_tasks() == {f"{TRAIN} (train)": 5, f"{EVAL} (eval)": 2}
    assert state().missing_tasks() == {}


def play(made: State, count: int) -> tuple[list[GroupRecord], list[Group], list[Policy]]:
    """Drive a run for `count` closed groups; its records, groups and policies in order."""
    records: list[GroupRecord] = []
    groups: list[Group] = []
    policies = [policy(0)]
    made.on_policy(policies[0])
    while len(groups) < count:
        records += open_all(made)
        record = next(iter(made.open.values()))
        groups.append(closed(record, (0.0, float(len(groups) % 3 != 0)), trainable=len(groups) % 3 != 0))
        made.on_group(groups[-1])
        if made.policy is not None and made.fold.step > made.policy.version:
            policies.append(policy(made.fold.step, final=made.fold.step == made.run.steps))
            made.on_policy(policies[-1])
    return records, groups, policies


@pytest.mark.parametrize("count", [1, 2, 3, 7, 11])
def test_a_restart_rebuilds_the_state(count: int) -> None:
    """Replaying tasks, groups, policies and records gives the same state, the same next choices, and opens nothing
    twice."""
    lived = state(version=None)
    records, groups, policies = play(lived, count)
    restarted = state(reversed((*TASKS, *EVAL_TASKS)), version=None)
    for group in groups:
        restarted.on_group(group)
    for each in policies:
        restarted.on_policy(each)
    for record in records:
        restarted.on_record(record)
    for name in ("fold", "policy", "open", "closed", "next_index", "run"):
        assert getattr(restarted, name) == getattr(lived, name), name
    assert restarted.curriculum.posteriors == lived.curriculum.posteriors
    assert +restarted.curriculum.uses == +lived.curriculum.uses
    next_lived, next_restarted = lived.groups_to_open(NOW), restarted.groups_to_open(NOW)
    assert next_restarted == next_lived
    assert not {record.id for record in records} & {record.id for record in next_restarted}


def test_an_adopted_record_corrects_the_use() -> None:
    """Where an earlier process had opened the group with another task, that task's use is counted instead."""
    made = after_first_evaluation()
    wanted = made.groups_to_open(NOW)
    other = next(task for task in TASKS if task.id not in {record.task_id for record in wanted})
    adopted = msgspec.structs.replace(wanted[0], task_id=other.id)
    made.on_record(adopted)
    made.on_record(adopted)
    assert made.curriculum.uses[other.id] == 1
    assert made.curriculum.uses.total() == len(wanted)


# ---------------------------------------------------------------- rollouts


def test_rollouts_are_the_same_on_repetition() -> None:
    """A record and its task give equal rollouts each time, with ids of their members and the record's times."""
    made = after_first_evaluation()
    (record, *_) = open_all(made)
    task = made.tasks[record.task_id]
    first = list(rollouts(record, task, made.run))
    assert first == list(rollouts(record, task, made.run))
    assert [r.id for r in first] == [keys.rollout_id(record.id, i) for i in range(record.size)]
    assert all((r.created, r.attempt, r.turns, r.outcome) == (record.opened, 0, (), None) for r in first)
    assert {(r.group.id, r.group.size, r.group.purpose, r.group.version) for r in first} == {
        (record.id, 2, Purpose.TRAIN, 0)
    }


def test_a_rollouts_deadline_is_the_earlier_one() -> None:
    """The task's wall limit or the group's deadline, whichever ends first."""
    made = after_first_evaluation(group_deadline_s=30.0)
    (record, *_) = open_all(made)
    task = made.tasks[record.task_id]
    assert {r.deadline for r in rollouts(record, task, made.run)} == {NOW + 30.0}
    quick = msgspec.structs.replace(task, limits=msgspec.structs.replace(task.limits, wall_s=5.0))
    assert {r.deadline for r in rollouts(record, quick, made.run)} == {NOW + 5.0}


def test_a_share_sets_the_temperature() -> None:
    """The run's share overrides the task's temperature, 0 included; evaluation and training each have their own."""
    made = state(
        evaluate={EVAL: TaskShare(tasks=2, temperature=0.0)}, train={TRAIN: TaskShare(tasks=9, temperature=0.7)}
    )
    evaluation = open_all(made)
    for record in evaluation:
        made.on_group(closed(record))
    for record in (*evaluation, *open_all(made)):
        expected = 0.0 if record.purpose is Purpose.EVAL else 0.7
        found = list(rollouts(record, made.tasks[record.task_id], made.run))
        assert {r.sampling.temperature for r in found} == {expected}
        assert {r.sampling.max_new_tokens for r in found} == {64}


# ---------------------------------------------------------------- silence


def silent(record: GroupRecord, at: float) -> Group:
    """The record's group, closed without an answer."""
    return msgspec.structs.replace(closed(record, (), trainable=False), reason=UNANSWERED, missing=2, closed=at)


def test_silence_is_probed_ever_more_seldom() -> None:
    """After a step's worth of groups without an answer one is opened at a time, after 1, 2, 4 ... seconds; an answer
    ends that."""
    made = after_first_evaluation()
    for record in open_all(made):
        made.on_group(silent(record, NOW))
    assert made.probing()
    assert made.groups_to_open(NOW + 3.9) == []
    now = NOW + 4.0
    for pause in (8.0, 16.0, 32.0, 60.0, 60.0):
        (probe,) = open_all(made, now)
        assert open_all(made, now + 1000.0) == []
        made.on_group(silent(probe, now))
        assert open_all(made, now + pause - 0.1) == []
        now += pause
    (probe,) = open_all(made, now)
    made.on_group(closed(probe))
    assert not made.probing()
    assert len(open_all(made, now)) == 3


def test_silence_teaches_nothing() -> None:
    """A group that nobody answered for leaves what is known of its template."""
    made = after_first_evaluation()
    first, second, *_ = open_all(made)
    made.on_group(closed(first))
    known = dict(made.curriculum.posteriors)
    made.on_group(silent(second, NOW))
    assert made.curriculum.posteriors == known


def test_what_the_gate_keeps_out_is_never_sampled() -> None:
    """Neither trained nor evaluated, even when there is no other domain; after it passes it is."""
    made = state()
    made.on_pause(TRAIN, "gate", holds=True)
    made.on_pause(EVAL, "gate", holds=True)
    assert made.evaluation() == []
    assert open_all(made) == []
    made.on_pause(TRAIN, "gate", holds=False)
    assert {record.domain for record in open_all(made)} == {TRAIN}


def test_paused_domains_wait() -> None:
    """No group of a domain that a stage has paused, until every stage goes on; with all of them paused the run still
    asks."""
    both = [*TASKS, *(build.task("math.other", text=str(i)) for i in range(3))]
    share = {TRAIN: TaskShare(tasks=9), "math.other": TaskShare(tasks=3)}
    made = state([*both, *EVAL_TASKS], train=share)

    def domains() -> set[str]:
        return {task.domain for task in made.train_tasks()}

    made.on_pause(TRAIN, "verify", holds=True)
    made.on_pause(TRAIN, "execute", holds=True)
    assert domains() == {"math.other"}
    made.on_pause(TRAIN, "verify", holds=False)
    assert domains() == {"math.other"}
    made.on_pause("math.other", "verify", holds=True)
    assert domains() == {TRAIN, "math.other"}
    made.on_pause(TRAIN, "execute", holds=False)
    assert domains() == {TRAIN}
