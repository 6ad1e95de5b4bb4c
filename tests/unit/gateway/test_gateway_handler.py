"""Planning and concluding a turn."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.build import rollout, task, turn
from support.chat import ASSISTANT, END, USER, ByteChat

from tiltyard.domains.interfaces import BadFormat
from tiltyard.gateway.handler import (
    Action,
    Ending,
    Plan,
    action_text,
    check_sampling,
    conclude,
    cut_at_stop,
    deadline_ending,
    extend,
    first,
    make_turn,
    min_version,
    plan_turn,
    settle,
)
from tiltyard.gateway.wire import Sample
from tiltyard_proto import flow
from tiltyard_proto.messages import Command, GroupRef, Purpose, RolloutLimits, Sampling, Task, VersionSpan
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.tokens import pack_ids, unpack_floats, unpack_ids

CHAT = ByteChat()


def sample(ids: list[int], *versions: int, finish: str = "abort") -> Sample:
    """A sample with one span per version, of equal parts."""
    share = math.ceil(len(ids) / max(1, len(versions)))
    spans = tuple(
        VersionSpan(version=v, start=i * share, end=min(len(ids), (i + 1) * share)) for i, v in enumerate(versions)
    )
    return Sample(ids=tuple(ids), logprobs=tuple(-0.1 * i for i in ids), spans=spans, finish=finish)


def test_first_turn_is_the_rendered_prompt() -> None:
    """The first turn's context is the prompt, and the answer may be as long as the sampling says."""
    plan = plan_turn(rollout(task(text="hi")), CHAT, 512)
    assert isinstance(plan, Plan)
    assert plan.context_ids == plan.input_ids == [USER, *b"hi", END, ASSISTANT]
    assert plan.max_new == 64


@given(st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=12), min_size=1, max_size=4), st.text(max_size=10))
def test_later_turns_begin_with_the_exact_ids_before_them(actions: list[list[int]], seen: str) -> None:
    """Whatever ids were sampled, the next input starts with exactly them; only the observation is encoded."""
    turns = tuple(turn(ids, context_ids=pack_ids([USER, 70 + i]), observation=seen) for i, ids in enumerate(actions))
    plan = plan_turn(rollout(task(turns=9), turns=turns), CHAT, 512)
    assert isinstance(plan, Plan)
    before = [token for i, ids in enumerate(actions) for token in [USER, 70 + i, *ids]]
    assert plan.input_ids[: len(before)] == before
    assert plan.input_ids[len(before) :] == plan.context_ids == CHAT.continuation(actions[-1], "user", seen)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 300))
def test_budget_keeps_within_context_and_limits(context: int, tokens: int, max_new: int) -> None:
    """Input and answer together never exceed the engine's context or the rollout's tokens; no room ends the rollout."""
    of = rollout(
        msgspec.structs.replace(task(text="x" * 30), limits=RolloutLimits(tokens=tokens)),
        sampling=Sampling(max_new_tokens=max_new),
    )
    plan = plan_turn(of, CHAT, context)
    limit = min(context, tokens)
    if isinstance(plan, Ending):
        assert plan.outcome is Outcome.TOKEN_LIMIT
        assert limit <= 33
    else:
        assert 1 <= plan.max_new <= max_new
        assert len(plan.input_ids) + plan.max_new <= limit


@pytest.mark.parametrize("bad", [-1, 256, 10_000_000])
def test_ids_outside_the_vocabulary_are_refused_here(bad: int) -> None:
    """An id that would kill an engine never leaves the gateway."""
    with pytest.raises(ValueError, match=f"id {bad} at position 1 is outside"):
        plan_turn(rollout(task(turns=2), turns=(turn(context_ids=pack_ids([4, bad]), observation="x"),)), CHAT, 512)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": 0},
        {"max_new_tokens": 0},
        {"stop": ("",)},
        {"stop": tuple("x" * 33)},
    ],
)
def test_sampling_that_no_engine_takes_is_refused(wrong: dict[str, object]) -> None:
    """Out-of-range sampling is the user's mistake and named as such."""
    with pytest.raises(ValueError, match=rf"sampling\.{next(iter(wrong))}"):
        check_sampling(Sampling(**wrong))


def test_only_evaluations_name_a_version() -> None:
    """An evaluation waits for the version under test, training takes the newest."""
    ref = GroupRef(id="run-e3-0", size=1, deadline=0, purpose=Purpose.EVAL, version=3)
    assert min_version(rollout(group="g")) == 0
    assert min_version(msgspec.structs.replace(rollout(), group=ref)) == 3
    assert (
        min_version(msgspec.structs.replace(rollout(), group=msgspec.structs.replace(ref, purpose=Purpose.TRAIN))) == 0
    )


def test_a_deadline_before_the_first_turn_is_not_the_policys_fault() -> None:
    """Nothing was sampled, so nothing is graded; later the policy's time is up."""
    assert deadline_ending(rollout(), "").outcome is Outcome.LATE
    assert deadline_ending(rollout(turns=(turn(),)), "").outcome is Outcome.WALL_LIMIT


@given(st.lists(st.tuples(st.lists(st.integers(0, 255), max_size=6), st.integers(0, 3)), max_size=6))
def test_resumed_parts_stay_in_step(parts: list[tuple[list[int], int]]) -> None:
    """After any number of resumptions ids, log-probabilities and spans cover the same tokens, each with its version."""
    action, versions = Action(), []
    for ids, version in parts:
        action = extend(action, sample(ids, *([version] if ids else [])))
        versions += [version] * len(ids)
    assert len(action.ids) == len(action.logprobs) == len(versions)
    assert [s.version for s in action.spans for _ in range(s.start, s.end)] == versions
    assert all(
        a.version != b.version and a.end == b.start for a, b in zip(action.spans, action.spans[1:], strict=False)
    )
    for length in range(1, len(versions) + 1):
        part = first(action, length)
        assert [s.version for s in part.spans for _ in range(s.start, s.end)] == versions[:length]


def test_text_has_no_end_of_turn_and_keeps_the_stop_string() -> None:
    """Interfaces read the action as the policy wrote it, closing fence included."""
    assert action_text([*b"a```", END], CHAT) == "a```"


@pytest.mark.parametrize(
    ("ids", "kept"),
    [(b"ab##cd", b"ab##"), (b"ab#cd", None), (b"##", b"##"), (bytes([65, END, 66]), bytes([65, END]))],
)
def test_a_stop_over_a_seam_ends_the_action(ids: bytes, kept: bytes | None) -> None:
    """A stop string that began before a resumption, or a stop token in a part, ends the action at its last token."""
    action = extend(Action(), sample(list(ids), 0))
    cut = cut_at_stop(action, ("##",), CHAT)
    assert (None if cut is None else bytes(cut.ids)) == kept


def test_settle_resumes_only_what_is_unfinished() -> None:
    """A cut-short action is resumed while budget is left; a finished one is taken as it is."""
    action = extend(Action(), sample([70, 71], 0))
    common = {"stops": (), "chat": CHAT, "resumed": False}
    assert settle(action, "abort", left=5, **common) is None
    assert settle(action, "abort", left=0, **common) == (action, "length")
    assert settle(action, "stop", left=5, **common) == (action, "stop")
    assert settle(extend(action, sample([END, 9], 0)), "abort", left=5, **common) == (
        extend(action, sample([END], 0)),
        "stop",
    )


def build_turn() -> tuple[object, object]:
    plan = plan_turn(rollout(), CHAT, 512)
    assert isinstance(plan, Plan)
    action = extend(Action(), sample([72, 73, END], 4, finish="stop"))
    return plan, make_turn(plan, action, "stop", "HI", started=5.0, seconds=0.5)


def test_the_turn_holds_what_was_sampled() -> None:
    """Ids, log-probabilities and versions arrive in the message unchanged."""
    plan, made = build_turn()
    assert unpack_ids(made.context_ids) == plan.context_ids
    assert unpack_ids(made.action_ids) == [72, 73, END]
    assert unpack_floats(made.logprobs) == pytest.approx([-7.2, -7.3, -0.2])
    assert made.versions == (VersionSpan(version=4, start=0, end=3),)
    assert (made.finish, made.text, made.started, made.seconds) == ("stop", "HI", 5.0, 0.5)


def test_the_action_decides_where_the_rollout_goes() -> None:
    """A command goes to execution, none ends the rollout, an unreadable action is graded as bad format."""
    made = build_turn()[1]
    command = Command(argv=("true",))

    def unreadable(_task: Task, _text: str) -> Command | None:
        raise BadFormat("no code")

    assert flow.next_hop(conclude(rollout(), made, lambda _t, _x: command), 0).stage == "execute"
    assert flow.next_hop(conclude(rollout(), made, lambda _t, _x: None), 0).message.outcome is Outcome.FINISHED
    bad = conclude(rollout(), made, unreadable)
    assert (bad.outcome, bad.detail, len(bad.turns)) == (Outcome.BAD_FORMAT, "no code", 1)
    assert flow.next_hop(bad, 0).stage == "verify"
