"""Small builders of messages for tests."""

from __future__ import annotations

import msgspec

from tiltyard_proto import keys
from tiltyard_proto.messages import (
    ChatMessage,
    Command,
    Execution,
    Group,
    GroupRef,
    Member,
    Purpose,
    Rollout,
    RolloutLimits,
    Sampling,
    Task,
    Turn,
    Verdict,
    Verification,
    VersionSpan,
)
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.tokens import pack_floats, pack_ids


def task(domain: str = "math.test", *, text: str = "What is 1 + 1?", turns: int = 1, **fields: object) -> Task:
    base = Task(
        id="",
        domain=domain,
        prompt=(ChatMessage(role="user", content=text),),
        verification=Verification(kind="last_number", data={"answer": "2"}),
        limits=RolloutLimits(turns=turns),
        template="one",
    )
    return keys.with_id(msgspec.structs.replace(base, **fields))


def turn(ids: list[int] | None = None, *, version: int = 0, command: Command | None = None, **fields: object) -> Turn:
    ids = [5, 6, 7] if ids is None else ids
    base = Turn(
        context_ids=pack_ids([1, 2, 3, 4]),
        action_ids=pack_ids(ids),
        logprobs=pack_floats([-0.5] * len(ids)),
        versions=(VersionSpan(version=version, start=0, end=len(ids)),),
        text="2",
        finish="stop",
        command=command,
    )
    return msgspec.structs.replace(base, **fields)


def rollout(
    of: Task | None = None, *, member: int = 0, group: str = "run-t-0", size: int = 0, **fields: object
) -> Rollout:
    of, size = of or task(), size or max(2, member + 1)
    base = Rollout(
        id=keys.rollout_id(group, member),
        run="run",
        group=GroupRef(id=group, size=size, deadline=2e9, purpose=Purpose.TRAIN),
        member=member,
        task=of,
        sampling=Sampling(),
        created=1.0,
        deadline=2e9,
    )
    return msgspec.structs.replace(base, **fields)


def verdict(of: Rollout | None = None, score: float | None = 1.0, **fields: object) -> Verdict:
    of = of or rollout(turns=(turn(),), outcome=Outcome.FINISHED)
    base = Verdict(
        rollout=of, outcome=of.outcome or Outcome.FINISHED, score=score, passed=score == 1.0, verifier="test/1"
    )
    return msgspec.structs.replace(base, **fields)


def group(scores: list[float], *, index: int = 0, trainable: bool = True, purpose: Purpose = Purpose.TRAIN) -> Group:
    of = task()
    group_id = keys.group_id("run", purpose, index)
    mean = sum(scores) / len(scores)
    members = tuple(
        Member(
            verdict=verdict(
                rollout(of, member=i, group=group_id, size=len(scores), turns=(turn(),), outcome=Outcome.FINISHED),
                score,
            ),
            reward=score,
            advantage=score - mean,
            trains=True,
        )
        for i, score in enumerate(scores)
    )
    return Group(
        id=group_id,
        run="run",
        domain=of.domain,
        task_id=of.id,
        template=of.template,
        purpose=purpose,
        version=0,
        members=members,
        missing=0,
        trainable=trainable,
    )


def execution(outcome: Outcome = Outcome.FINISHED, **fields: object) -> Execution:
    return msgspec.structs.replace(Execution(outcome=outcome, exit_code=0), **fields)
