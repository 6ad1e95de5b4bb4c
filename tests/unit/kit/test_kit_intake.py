"""What a delivered message is: every kind of bad input has its class, whatever comes there is no other error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import build
from support.examples import EXAMPLES
from support.poison import KINDS, Poison

from tiltyard.kit import intake
from tiltyard.kit.intake import CLAIM, SCHEMA, Reject, accept, base_subject, claim
from tiltyard_proto import topology
from tiltyard_proto.messages import BlobRef, DeadLetter, Graded, Job
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import EXECUTE, GENERATE, STAGES, TASK, VERDICT, VERIFY, Stage
from tiltyard_proto.validity import problem

NOW = 1.8e9
ROLLOUT = build.rollout()
SUBJECT = GENERATE.subject(ROLLOUT)
BODY = topology.encode(ROLLOUT)


def rejected(stage: Stage[Any], subject: str, body: bytes, headers: dict[str, str] | None = None) -> Reject:
    with pytest.raises(Reject) as found:
        accept(stage, subject, body, headers or {}, NOW)
    return found.value


def answer(stage: Stage[Any], subject: str, body: bytes, headers: dict[str, str], now: float) -> Any:
    """What `accept` says: a message or its Reject; any other error is one."""
    try:
        return accept(stage, subject, body, headers, now)
    except Reject as error:
        return error


def test_a_sound_message_is_taken() -> None:
    """With and without its header, as MessagePack and as JSON, and as a replay."""
    assert accept(GENERATE, SUBJECT, BODY, {}, NOW) == ROLLOUT
    assert accept(GENERATE, SUBJECT, BODY, {SCHEMA: "rollout/1"}, NOW) == ROLLOUT
    assert accept(GENERATE, SUBJECT, msgspec.json.encode(ROLLOUT), {}, NOW) == ROLLOUT
    assert accept(GENERATE, f"{SUBJECT}.replay.0", BODY, {}, NOW) == ROLLOUT
    assert accept(GENERATE, f"{SUBJECT}.replay.17", BODY, {}, NOW) == ROLLOUT


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: str(stage.name))
def test_every_example_is_taken_by_its_stage(stage: Stage[Any]) -> None:
    """The examples of the contract are sound, and arrive as what they were."""
    for message in EXAMPLES.values():
        if stage.accepts(message):
            assert problem(message) == ""
            sent = topology.encode(message)
            assert accept(stage, stage.subject(message), sent, {}, 1.7e9) == message


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.at_intake], ids=lambda kind: kind.name)
def test_each_kind_of_poison_has_its_class(kind: Poison) -> None:
    """A dead letter of the right class, before any handler sees it, unless only a handler or a blob store can tell."""
    made = kind.make(3)
    if made.headers.get(CLAIM):
        with pytest.raises(Reject) as found:
            claim(made.body)
        assert found.value.reason == kind.reason
        return
    assert rejected(GENERATE, made.subject, made.body, made.headers).reason == kind.reason


def test_a_forged_copy_does_not_end_its_neighbour() -> None:
    """A sound rollout on another's subject is refused without its message, so nothing is said to its group."""
    error = rejected(GENERATE, SUBJECT.replace("run-t-0-0", "run-t-0-1"), BODY)
    assert (error.reason, error.message) == ("subject", None)
    assert SUBJECT in error.detail


def test_an_impossible_message_tells_its_group() -> None:
    """What stood on its own subject and can't be worked on is handed on, so that its rollout ends."""
    broken = build.rollout(turns=(msgspec.structs.replace(build.turn(), logprobs=b"\x00"),))
    error = rejected(GENERATE, GENERATE.subject(broken), topology.encode(broken))
    assert (error.reason, error.message) == ("validation", broken)
    assert "logprobs" in error.detail


def test_long_expired_work_is_refused_unless_it_is_replayed() -> None:
    """A day after its group's deadline work is a dead letter; whoever replays it knows that."""
    old = build.rollout(group="run-t-5")
    old = msgspec.structs.replace(old, group=msgspec.structs.replace(old.group, deadline=NOW - 25 * 3600))
    subject, body = GENERATE.subject(old), topology.encode(old)
    assert rejected(GENERATE, subject, body).reason == "expired"
    assert accept(GENERATE, f"{subject}.replay.0", body, {}, NOW) == old
    assert accept(GENERATE, subject, body, {}, NOW - 2 * 3600) == old
    done = build.verdict(msgspec.structs.replace(old, turns=(build.turn(),), outcome=Outcome.FINISHED))
    assert accept(VERDICT, VERDICT.subject(done), topology.encode(done), {}, NOW) == done


def test_json_that_message_pack_could_not_carry_is_refused() -> None:
    """An integer beyond 64 bits decodes from JSON and would fail in whoever sends it on."""
    text = msgspec.json.encode(ROLLOUT).replace(b'"answer":"2"', b'"answer":%d' % (1 << 70))
    assert rejected(GENERATE, SUBJECT, text).reason == "validation"


@pytest.mark.parametrize("reference", ["../../etc/passwd", "/etc/passwd", "AB" * 32, "", "ab" * 31])
def test_a_claim_names_a_hash_and_nothing_else(reference: str) -> None:
    """A reference can't lead out of the blob store."""
    body = msgspec.msgpack.encode(BlobRef(uri="sha256:x", size=3, sha256=reference))
    with pytest.raises(Reject) as found:
        claim(body)
    assert found.value.reason == "blob"


def test_subjects_of_replays() -> None:
    """The number after `.replay.` counts on; anything else is no replay."""
    assert base_subject("tilt.v1.generate.d.k") == ("tilt.v1.generate.d.k", 0)
    assert base_subject("tilt.v1.generate.d.k.replay.0") == ("tilt.v1.generate.d.k", 1)
    assert base_subject("tilt.v1.generate.d.k.replay.4") == ("tilt.v1.generate.d.k", 5)
    assert base_subject("tilt.v1.generate.d.k.replay.x")[1] == 0


HEADERS = st.dictionaries(st.sampled_from([SCHEMA, "traceparent", "Tilt-Replay-Of"]), st.text(max_size=20))


@given(
    stage=st.sampled_from(STAGES),
    body=st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=60).map(lambda tail: b"{" + tail),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary(),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
            max_leaves=20,
        ).map(msgspec.msgpack.encode),
    ),
    headers=HEADERS,
    subject=st.text(max_size=60) | st.just(SUBJECT),
)
@example(stage=GENERATE, body=b"\x91" * 100_000, headers={}, subject=SUBJECT)
@example(stage=GENERATE, body=b'{"type":["rollout"]}', headers={}, subject=SUBJECT)
@example(stage=GENERATE, body=b"{" + b'"a":{' * 50_000, headers={}, subject=SUBJECT)
def test_any_bytes_are_a_message_or_a_reject(
    stage: Stage[Any], body: bytes, headers: dict[str, str], subject: str
) -> None:
    """Whatever arrives, the answer is a sound message or `Reject` with a class and a text that can be stored."""
    outcome = answer(stage, subject, body, headers, NOW)
    if isinstance(outcome, Reject):
        assert outcome.reason in intake.CLASSES
        outcome.detail.encode()
    else:
        assert problem(outcome) == ""


@given(data=st.data(), stage=st.sampled_from([GENERATE, EXECUTE, VERIFY, VERDICT, TASK]))
def test_damaged_messages_are_a_message_or_a_reject(data: st.DataObject, stage: Stage[Any]) -> None:
    """A sound message with bytes altered, or with one field of any depth replaced, is sound or refused."""
    names = [name for name, message in EXAMPLES.items() if stage.accepts(message)]
    message = EXAMPLES[data.draw(st.sampled_from(names))]
    body = bytearray(topology.encode(message))
    if data.draw(st.booleans()):
        for _ in range(data.draw(st.integers(1, 4))):
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    else:
        raw = msgspec.msgpack.decode(bytes(body))
        part = raw
        while True:
            key = data.draw(st.sampled_from(sorted(part)))
            if not (isinstance(part[key], dict) and part[key] and data.draw(st.booleans())):
                break
            part = part[key]
        part[key] = data.draw(st.none() | st.integers(-5, 5) | st.floats() | st.text(max_size=5) | st.just({}))
        body = bytearray(msgspec.msgpack.encode(raw))
    outcome = answer(stage, stage.subject(message), bytes(body), {}, 1.7e9)
    if isinstance(outcome, Reject):
        assert outcome.reason in intake.CLASSES
    else:
        assert problem(outcome) == ""
        assert stage.subject(outcome) == stage.subject(message)


def test_a_verdict_that_only_ends_a_rollout_may_carry_any_turns() -> None:
    """The terminal verdict of a rollout with broken turns is sound, so that its group closes."""
    broken = build.rollout(turns=(msgspec.structs.replace(build.turn(), logprobs=b"\x00"),), outcome=Outcome.POISON)
    assert problem(broken)
    assert problem(build.verdict(broken, None)) == ""
    assert problem(build.verdict(broken, 1.0))


def test_jobs_and_results_are_looked_into() -> None:
    """A grading job and its result are as sound as their rollout."""
    broken = build.rollout(attempt=-1)
    job = EXAMPLES["job"]
    graded = EXAMPLES["graded"]
    assert isinstance(job, Job)
    assert isinstance(graded, Graded)
    assert "attempt" in problem(msgspec.structs.replace(job, rollout=broken))
    assert "attempt" in problem(msgspec.structs.replace(graded, rollout=broken))
    assert "argv" in problem(msgspec.structs.replace(job, command=msgspec.structs.replace(job.command, argv=())))


def test_a_letter_has_no_problem() -> None:
    """Dead letters hold anything."""
    letter = EXAMPLES["dead_letter"]
    assert isinstance(letter, DeadLetter)
    assert problem(letter) == ""
