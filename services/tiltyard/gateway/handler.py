"""What a turn is made of: input ids before sampling, a `Turn` after it. Pure decisions, no I/O, no clock.

Invariants: the input of a later turn is exactly the ids of the turns before it plus the rendered observation, nothing
is decoded and encoded again; ids, lengths and budgets are checked before anything is sent; a resumed sample keeps
ids, log-probabilities and version spans in step and never asks for more than what is left of its budget.
Left out: which engine serves the turn is `engines`, tries and resumption are `generate`, the HTTP shapes are `wire`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

from tiltyard.domains.interfaces import BadFormat
from tiltyard_proto import flow
from tiltyard_proto.messages import Command, Purpose, Rollout, Sampling, Task, Turn, VersionSpan
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.tokens import pack_floats, pack_ids, unpack_ids

from .wire import Finish, Sample

ParseAction = Callable[[Task, str], Command | None]
MAX_STOP_STRINGS = 32


class Chat(Protocol):
    """The model's chat template and tokenizer, as `tiltyard.policy.chat.ChatRenderer` has them."""

    @property
    def eos_ids(self) -> Collection[int]: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_length(self) -> int: ...

    def render(self, messages: Sequence[tuple[str, str]]) -> list[int]: ...

    def continuation(self, action_ids: Sequence[int], role: str, content: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that can be sampled."""

    context_ids: list[int]
    """Ids this turn puts before its action."""
    input_ids: list[int]
    """Everything the engine sees: all turns so far, then `context_ids`."""
    max_new: int


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The rollout ends without another turn."""

    outcome: Outcome
    detail: str = ""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An action as far as it has been sampled, over one or more generate calls."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    spans: tuple[VersionSpan, ...] = ()


def check_sampling(sampling: Sampling) -> None:
    """ValueError when no engine would take these parameters."""
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise ValueError(f"sampling.temperature {sampling.temperature}: expected a number of 0 or more")
    if not 0 < sampling.top_p <= 1:
        raise ValueError(f"sampling.top_p {sampling.top_p}: expected more than 0, at most 1")
    if sampling.top_k != -1 and sampling.top_k < 1:
        raise ValueError(f"sampling.top_k {sampling.top_k}: expected -1 (off) or 1 and more")
    if sampling.max_new_tokens < 1:
        raise ValueError(f"sampling.max_new_tokens {sampling.max_new_tokens}: expected 1 or more")
    if len(sampling.stop) > MAX_STOP_STRINGS or not all(sampling.stop):
        raise ValueError(f"sampling.stop: expected at most {MAX_STOP_STRINGS} strings, none empty")


def context_of(rollout: Rollout, chat: Chat) -> list[int]:
    """The ids before the next action: the rendered prompt, or what the last observation adds."""
    if not rollout.turns:
        return chat.render([(message.role, message.content) for message in rollout.task.prompt])
    last = rollout.turns[-1]
    return chat.continuation(unpack_ids(last.action_ids), "user", last.observation)


def plan_turn(rollout: Rollout, chat: Chat, context_length: int) -> Plan | Ending:
    """The next turn's input, or why there is none. ValueError when the rollout itself is wrong."""
    check_sampling(rollout.sampling)
    before: list[int] = []
    for turn in rollout.turns:
        before += unpack_ids(turn.context_ids)
        before += unpack_ids(turn.action_ids)
    context = context_of(rollout, chat)
    ids = before + context
    if not ids:
        raise ValueError(f"rollout {rollout.id}: the prompt has no token")
    check_ids(ids, chat.vocab_size, rollout.id)
    room = min(context_length, rollout.task.limits.tokens) - len(ids)
    if room < 1:
        limit = min(context_length, rollout.task.limits.tokens)
        return Ending(outcome=Outcome.TOKEN_LIMIT, detail=f"{len(ids)} tokens before the turn, the limit is {limit}")
    return Plan(context_ids=context, input_ids=ids, max_new=min(rollout.sampling.max_new_tokens, room))


def check_ids(ids: Sequence[int], vocab_size: int, where: str) -> None:
    """ValueError when an id is outside the vocabulary: engines don't check and die of it."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    position, token = next((at, token) for at, token in enumerate(ids) if not 0 <= token < vocab_size)
    raise ValueError(f"rollout {where}: id {token} at position {position} is outside 0..{vocab_size - 1}")


def min_version(rollout: Rollout) -> int:
    """The oldest policy version that may sample this turn: an evaluation names the version under test."""
    return rollout.group.version if rollout.group.purpose is Purpose.EVAL else 0


def deadline_ending(rollout: Rollout, why: str) -> Ending:
    """What a passed deadline means: the policy used its time up, or we never let it begin."""
    outcome = Outcome.WALL_LIMIT if rollout.turns else Outcome.LATE
    return Ending(outcome=outcome, detail=why)


def extend(action: Action, sample: Sample) -> Action:
    """The action with one more sample appended; its spans move along, equal neighbours become one."""
    offset = len(action.ids)
    spans = list(action.spans)
    for span in sample.spans:
        moved = VersionSpan(version=span.version, start=span.start + offset, end=span.end + offset)
        if spans and spans[-1].version == moved.version and spans[-1].end == moved.start:
            moved = VersionSpan(version=moved.version, start=spans.pop().start, end=moved.end)
        spans.append(moved)
    return Action(ids=(*action.ids, *sample.ids), logprobs=(*action.logprobs, *sample.logprobs), spans=tuple(spans))


def first(action: Action, tokens: int) -> Action:
    """The first `tokens` tokens of an action."""
    spans = tuple(
        VersionSpan(version=span.version, start=span.start, end=min(span.end, tokens))
        for span in action.spans
        if span.start < tokens
    )
    return Action(ids=action.ids[:tokens], logprobs=action.logprobs[:tokens], spans=spans)


def action_text(ids: Sequence[int], chat: Chat) -> str:
    """The action as interfaces read it: without the end-of-turn token."""
    end = len(ids)
    while end and ids[end - 1] in chat.eos_ids:
        end -= 1
    return chat.decode(list(ids[:end]))


def cut_at_stop(action: Action, stops: Sequence[str], chat: Chat) -> Action | None:
    """The action up to where a stop ends it; None when nothing ends it.

    Needed only for an action that was cut short and resumed: an engine sees no stop string that began before it.
    """
    for position, token in enumerate(action.ids):
        if token in chat.eos_ids:
            return first(action, position + 1)
    if not stops or not any(stop in chat.decode(list(action.ids)) for stop in stops):
        return None
    low, high = 1, len(action.ids)  # smallest prefix whose text holds a stop string: the text only grows
    while low < high:
        middle = (low + high) // 2
        text = chat.decode(list(action.ids[:middle]))
        low, high = (low, middle) if any(stop in text for stop in stops) else (middle + 1, high)
    return first(action, low)


def settle(
    action: Action, sample_finish: Finish, *, left: int, stops: Sequence[str], chat: Chat, resumed: bool
) -> tuple[Action, str] | None:
    """The whole action and how it finished ('stop' or 'length'); None when it must be resumed.

    `left` is what remains of the budget, `resumed` says that more than one call went into the action.
    """
    if resumed or sample_finish == "abort":
        cut = cut_at_stop(action, stops, chat)
        if cut is not None:
            return cut, "stop"
    if sample_finish != "abort":
        return action, sample_finish
    return (action, "length") if left < 1 else None


def make_turn(plan: Plan, action: Action, finish: str, text: str, *, started: float, seconds: float) -> Turn:
    """The turn without its command."""
    assert len(action.ids) == len(action.logprobs), "ids and log-probabilities out of step"
    assert [span.end for span in action.spans][-1:] == [len(action.ids)], "version spans don't cover the action"
    return Turn(
        context_ids=pack_ids(plan.context_ids),
        action_ids=pack_ids(action.ids),
        logprobs=pack_floats(action.logprobs),
        versions=action.spans,
        text=text,
        finish=finish,
        started=started,
        seconds=seconds,
    )


def conclude(rollout: Rollout, turn: Turn, parse: ParseAction) -> Rollout:
    """The rollout with its new turn and what the turn asks for; ended when the action can't be read."""
    try:
        command = parse(rollout.task, turn.text)
    except BadFormat as error:
        return flow.finish(flow.add_turn(rollout, turn), Outcome.BAD_FORMAT, str(error)[:500])
    return flow.add_turn(rollout, msgspec.structs.replace(turn, command=command))
