"""The conservation audit: what was opened, judged, closed and trained, compared key by key.

Every rollout of every opened group must have exactly one verdict and be in its group once; every group must be closed
once; every step must have trained exactly the groups that the stream gives it, once: the audit trains them again in
order and compares the hash of every published version. Nothing may wait and nothing may be a dead letter.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from rig.queues import repeated, waiting

from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import RunSettings
from tiltyard.trainer import batch, handler
from tiltyard.trainer.backend import FakeLearner
from tiltyard.trainer.settings import TrainerSettings
from tiltyard_proto import keys, topology
from tiltyard_proto.flow import StepFold
from tiltyard_proto.messages import Group, GroupRecord, Policy
from tiltyard_proto.topology import Stage


@dataclass
class Account:
    """What the audit found."""

    opened: int = 0
    """Groups."""
    rollouts: int = 0
    verdicts: int = 0
    closed: int = 0
    trained: int = 0
    """Groups that were trained or dropped by a step."""
    steps: int = 0
    redelivered: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """What is wrong: kind to how often; empty when everything is accounted for."""


async def read(bus: Bus, stage: Stage[Any]) -> list[tuple[int, Any]]:
    """Everything that a stage's stream holds now, in order."""
    info = await bus.js.api(f"STREAM.INFO.{stage.stream}")
    left, found = int(info["state"]["messages"]), []
    if not left:
        return found
    with anyio.fail_after(300):
        async for entry in bus.follow(stage):
            found.append(entry)
            if len(found) == left:
                break
    return found


async def read_records(bus: Bus) -> list[GroupRecord]:
    """Every group record."""
    bucket = bus.kv(topology.GROUPS_BUCKET)
    entries = [await bucket.get(key) for key in await bucket.keys()]
    return [msgspec.msgpack.decode(entry[0], type=GroupRecord) for entry in entries if entry is not None]


async def audit(bus: Bus, run: RunSettings, trainer: TrainerSettings, vocab_size: int) -> Account:
    """The account of a run that has come to rest."""
    account = Account()
    records = await read_records(bus)
    verdicts = [verdict for _, verdict in await read(bus, topology.VERDICT)]
    groups = await read(bus, topology.GROUP)
    _conserved(account, records, [verdict.rollout.id for verdict in verdicts], [group for _, group in groups])
    policies = {policy.version: policy for _, policy in await read(bus, topology.POLICY)}
    _trained_once(account, groups, policies, run, trainer, vocab_size)
    account.problems["dead letter"] += len(await read(bus, topology.DLQ))
    for stage in topology.STAGES:
        if stage.work:
            account.problems[f"{stage.name} left waiting"] += await waiting(bus, stage)
            account.redelivered += await repeated(bus, stage)
    account.problems = +account.problems
    return account


def _conserved(
    account: Account, records: Iterable[GroupRecord], verdicts: Iterable[str], groups: Iterable[Group]
) -> None:
    expected = {keys.rollout_id(record.id, member) for record in records for member in range(record.size)}
    judged, closed = Counter(verdicts), Counter(group.id for group in groups)
    opened = {record.id: record for record in records}
    account.opened, account.rollouts = len(opened), len(expected)
    account.verdicts, account.closed = sum(judged.values()), sum(closed.values())
    problems = account.problems
    problems["rollout without verdict"] += len(expected - judged.keys())
    problems["verdict of no rollout"] += len(judged.keys() - expected)
    problems["rollout with two verdicts"] += sum(count > 1 for count in judged.values())
    problems["group not closed"] += len(opened.keys() - closed.keys())
    problems["group of no record"] += len(closed.keys() - opened.keys())
    problems["group closed twice"] += sum(count > 1 for count in closed.values())
    problems["record left open"] += sum(not record.closed for record in opened.values())
    for group in groups:
        members = [member.verdict.rollout.id for member in group.members]
        wanted = [keys.rollout_id(group.id, member) for member in range(opened[group.id].size)]
        problems["group with other members"] += members != wanted


def _trained_once(
    account: Account,
    groups: Iterable[tuple[int, Group]],
    policies: dict[int, Policy],
    run: RunSettings,
    settings: TrainerSettings,
    vocab_size: int,
) -> None:
    """Train every step again, once each, in order: the same weights must come out."""
    learner = FakeLearner(vocab_size)
    limits = batch.Limits(
        max_staleness=settings.max_staleness,
        row_cap=settings.micro_batch_tokens,
        vocab_size=vocab_size,
        full_groups=settings.full_step_share * run.groups_per_step,
    )
    fold = StepFold(groups_per_step=run.groups_per_step, refill_cap=run.refill_cap)
    intake = handler.Intake(fold=fold, position=0)
    for position, group in groups:
        intake, full = handler.take(intake, position, group, run.name)
        if full is None or full.fold.step > run.steps:
            continue
        version = full.fold.step
        made = batch.build(full.groups, version - 1, limits)
        learner.step(made, handler.learning_rate(settings, version, run.steps), lambda: False)
        account.trained += len(full.groups)
        account.steps += 1
        published = policies.get(version)
        if published is None:
            account.problems["version not published"] += 1
            continue
        account.problems["version at another position"] += published.position != full.position
        account.problems["version with other weights"] += published.sha256 != _hash(learner)
    account.problems["version of no step"] += len(policies) - 1 - account.steps


def _hash(learner: FakeLearner) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        learner.export(Path(scratch))
        return hashlib.sha256((Path(scratch) / "model.safetensors").read_bytes()).hexdigest()
