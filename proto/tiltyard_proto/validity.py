"""What a message must fulfil beyond its types: `problem` says in one line what is wrong with it.

The types of `messages` say what can be decoded; this page says what can be worked on: names that can stand in a
subject, limits above zero, token arrays that agree with one another, numbers that are numbers. Invariants: a pure
function of the message; a message that our own code publishes has no problem; unknown names of a newer producer are
let pass. Left out: what only a service knows (verifier kinds, sandbox profiles, the model's vocabulary).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from . import keys
from .messages import ExecLimits, Graded, Group, Job, Policy, Rollout, Sampling, Task, Turn, Verdict
from .outcomes import CONSEQUENCES, check_override


def problem(message: msgspec.Struct) -> str:
    """What is wrong with `message`, naming the field; '' when nothing is."""
    try:
        return next(_problems(message), "")
    except (ValueError, OverflowError) as error:
        return str(error)


def _problems(message: msgspec.Struct) -> Iterator[str]:
    if isinstance(message, Task):
        yield from _task(message)
    elif isinstance(message, Rollout):
        yield from _rollout(message)
    elif isinstance(message, Job):
        if not message.command.argv:
            yield "command.argv: expected a program and its arguments"
        yield from exec_limits(message.command.limits, "command.limits")
        yield from _rollout(message.rollout)
    elif isinstance(message, Graded):
        yield from _rollout(message.rollout)
    elif isinstance(message, Verdict):
        yield from _verdict(message)
    elif isinstance(message, Group):
        yield from _group(message)
    elif isinstance(message, Policy):
        keys.check_run(message.run)
        if message.version < 0 or not message.path:
            yield "version and path: expected 0 or more, and where the weights lie"


_EXEC, _SAMPLING = ExecLimits(), Sampling()
"""What most messages have; comparing with it is quicker than looking into it."""
_FINE: Sequence[str] = ()


def _above(what: str, value: float, least: float = 0.0, *, strict: bool = True) -> Sequence[str]:
    if math.isfinite(value) and (value > least if strict else value >= least):
        return _FINE
    return (f"{what} {value:g}: expected {'more than' if strict else 'at least'} {least:g}",)


def _task(task: Task) -> Iterator[str]:
    keys.check_token(task.id, "id")
    keys.check_domain(task.domain)
    if not task.prompt:
        yield "prompt: expected at least one message"
    if task.split not in ("train", "eval"):
        yield f"split: expected 'train' or 'eval', got {task.split[:40]!r}"
    limits = task.limits
    if min(limits.turns, limits.tokens, limits.attempts) < 1 or limits.observation_chars < 0:
        yield "limits: turns, tokens and attempts: expected at least 1; observation_chars: at least 0"
    yield from _above("limits.wall_s", limits.wall_s)
    yield from _above("value", task.value, strict=False)
    yield from exec_limits(task.environment.limits, "environment.limits")
    if task.sampling != _SAMPLING:
        yield from _sampling(task.sampling)
    for outcome, row in task.overrides.items():
        if outcome in CONSEQUENCES:
            check_override(outcome, row)


def exec_limits(limits: ExecLimits, where: str) -> Iterator[str]:
    """What is wrong with the limits of one execution, each in a line that begins with `where`."""
    if limits == _EXEC:
        return
    for name in limits.__struct_fields__:
        yield from _above(f"{where}.{name}", getattr(limits, name))
    if limits.open_files < 32:
        yield f"{where}.open_files {limits.open_files}: expected at least 32, which an interpreter needs to start"


def _sampling(sampling: Sampling) -> Iterator[str]:
    yield from _above("sampling.temperature", sampling.temperature, strict=False)
    if not 0 < sampling.top_p <= 1:
        yield f"sampling.top_p {sampling.top_p:g}: expected more than 0, at most 1"
    if sampling.top_k != -1 and sampling.top_k < 1:
        yield f"sampling.top_k {sampling.top_k}: expected -1 (off) or 1 and more"
    yield from _above("sampling.max_new_tokens", sampling.max_new_tokens, 1, strict=False)


def _identity(rollout: Rollout) -> Iterator[str]:
    """What must hold so that the rollout's group can hear of it."""
    keys.check_token(rollout.id, "rollout.id")
    keys.check_domain(rollout.task.domain)
    if not 0 <= rollout.member < rollout.group.size:
        yield f"member {rollout.member}: expected 0 to {rollout.group.size - 1}"
    if rollout.id != keys.rollout_id(rollout.group.id, rollout.member):
        yield f"rollout.id {rollout.id!r}: expected {keys.rollout_id(rollout.group.id, rollout.member)[:140]!r}"
    if rollout.attempt < 0:
        yield f"attempt {rollout.attempt}: expected 0 or more"


def _rollout(rollout: Rollout) -> Iterator[str]:
    yield from _identity(rollout)
    keys.check_run(rollout.run)
    yield from _task(rollout.task)
    if rollout.sampling != rollout.task.sampling:
        yield from _sampling(rollout.sampling)
    yield from _above("deadline", rollout.deadline, strict=False)
    yield from _above("group.deadline", rollout.group.deadline, strict=False)
    for index, turn in enumerate(rollout.turns):
        yield from _turn(turn, f"turns[{index}]")


def _turn(turn: Turn, where: str) -> Iterator[str]:
    if len(turn.context_ids) % 4 or len(turn.action_ids) % 4:
        yield f"{where}: token arrays: expected 4 bytes for each token"
    if len(turn.logprobs) != len(turn.action_ids):
        yield f"{where}.logprobs: expected one for each action token"
    end = 0
    for span in turn.versions:
        if span.start != end or span.end < span.start:
            yield f"{where}.versions: expected spans that follow one another from the first token on"
        end = span.end
    if turn.versions and end != len(turn.action_ids) // 4:
        yield f"{where}.versions: expected spans over all {len(turn.action_ids) // 4} action tokens, got {end}"


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield from _identity(verdict.rollout)
    if verdict.score is None:
        return  # it says only that the rollout ended; what kept it from being graded may lie in its turns
    if not 0 <= verdict.score <= 1:
        yield f"score {verdict.score:g}: expected 0 to 1, or none"
    for index, turn in enumerate(verdict.rollout.turns):
        yield from _turn(turn, f"rollout.turns[{index}]")


def _group(group: Group) -> Iterator[str]:
    keys.check_token(group.id, "id")
    keys.check_domain(group.domain)
    for member in group.members:
        if not (math.isfinite(member.reward) and math.isfinite(member.advantage)):
            yield f"member {member.verdict.rollout.member}: reward and advantage: expected finite numbers"
        if member.trains and member.verdict.score is None:
            yield f"member {member.verdict.rollout.member}: a missing verdict can't train"
        yield from _verdict(member.verdict)
