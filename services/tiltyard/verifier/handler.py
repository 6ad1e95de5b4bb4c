"""What follows from one message of stage verify: a verdict, a grading job, or a new attempt.

Invariants: a pure function of the message and the world's kinds and clocks; a rollout or a grading job that ended in a
fault of the infrastructure, and a kind that fails, are retried or left without a score, never scored 0; a task whose
verification data is broken is retired. Left out: the bus.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tiltyard_proto import flow, topology
from tiltyard_proto.messages import Graded, Job, Message, Rollout, Verdict
from tiltyard_proto.outcomes import Grade, Outcome, policy_for
from tiltyard_proto.topology import Stage

from .backend import World
from .kinds.base import Quarantine
from .kinds.registry import AnyKind

Sent = list[tuple[Stage[Message], Message]]
MAX_DETAIL = 500


class NotReady(ValueError):
    """The message doesn't belong on stage verify: its rollout hasn't ended."""


def handle(message: Rollout | Graded, world: World) -> Sent:
    """The messages that follow. NotReady: the rollout hasn't ended."""
    rollout = message.rollout if isinstance(message, Graded) else message
    if rollout.outcome is None:
        raise NotReady(f"rollout {rollout.id} hasn't ended")
    overrides = rollout.task.overrides
    if policy_for(rollout.outcome, overrides).grade is not Grade.YES:
        return _ended(rollout, rollout.outcome, rollout.detail, world)
    kind = world.kinds.get(rollout.task.verification.kind)
    if kind is None:
        have = ", ".join(world.kinds)
        detail = f"no verifier kind {rollout.task.verification.kind!r} is installed; there are {have}"
        return _ended(rollout, Outcome.TASK_BROKEN, detail, world)
    if isinstance(message, Rollout):
        return _judged(message, None, world, kind, lambda: kind.plan(message.task, message))
    if policy_for(message.execution.outcome, overrides).grade is not Grade.YES:
        detail = f"grading: {message.execution.detail}"
        return _ended(rollout, message.execution.outcome, detail, world)
    return _judged(rollout, message, world, kind, lambda: kind.judge(rollout.task, message))


def bury(message: Rollout | Graded, outcome: Outcome, detail: str) -> Sent:
    """The verdict of a rollout whose message was dead-lettered, so that its group still closes."""
    rollout = message.rollout if isinstance(message, Graded) else message
    return [(topology.VERDICT, flow.ungraded(rollout, outcome, detail))]


def waits(message: Rollout | Graded, world: World) -> bool:
    """Must `handle` be called in a thread, since the kind waits for others?"""
    task = message.rollout.task if isinstance(message, Graded) else message.task
    kind = world.kinds.get(task.verification.kind)
    return kind is not None and kind.blocking


def _judged(
    rollout: Rollout, graded: Graded | None, world: World, kind: AnyKind, decide: Callable[[], Verdict | Job]
) -> Sent:
    before = world.cpu()
    try:
        result = decide()
        evidence = b"" if isinstance(result, Job) else kind.evidence(graded)
    except Quarantine as err:
        return _ended(rollout, err.outcome, str(err), world)
    except Exception as err:  # a kind may come from another package and fail in any way: that is never a score
        return _ended(rollout, Outcome.VERIFIER_FAILED, f"{type(err).__name__}: {err}", world)
    if isinstance(result, Job):
        return [(topology.EXECUTE, result)]
    ref = world.keep(evidence) if evidence else None
    return [(topology.VERDICT, msgspec.structs.replace(result, evidence=ref, cpu_s=world.cpu() - before))]


def _ended(rollout: Rollout, outcome: Outcome, detail: str, world: World) -> Sent:
    """A new attempt or a verdict without a score, as the table of outcomes says."""
    hop = flow.next_hop(flow.finish(rollout, outcome, detail[:MAX_DETAIL]), world.now())
    return [(topology.BY_NAME[hop.stage], hop.message)]
