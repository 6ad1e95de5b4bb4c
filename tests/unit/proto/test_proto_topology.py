"""The page of stages, and token arrays on the wire."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import EXAMPLES

from tiltyard_proto import topology
from tiltyard_proto.messages import Message
from tiltyard_proto.tokens import count, pack_floats, pack_ids, unpack_floats, unpack_ids
from tiltyard_proto.topology import STAGES, Stage

CARRIED = [(stage, example) for stage in STAGES for example in EXAMPLES.values() if stage.accepts(example)]


def ids(value: object) -> str:
    return value.name if isinstance(value, Stage) else type(value).__name__


def test_stages_have_names_and_streams_of_their_own() -> None:
    """No two stages share a stream or a subject space, and every published message has a stage."""
    assert len({stage.name for stage in STAGES}) == len({stage.stream for stage in STAGES}) == len(STAGES)
    assert {stage.name: stage for stage in STAGES} == topology.BY_NAME
    kept = ("group_record", "run_status", "letter_state")
    assert {type(message) for _, message in CARRIED} == {
        type(message) for name, message in EXAMPLES.items() if name not in kept
    }


@pytest.mark.parametrize(("stage", "message"), CARRIED, ids=ids)
def test_subjects_match_their_stage(stage: Stage[Any], message: Message) -> None:
    """A subject is the stage's prefix, one domain token and one key token."""
    subject = stage.subject(message)
    parts = subject.split(".")
    assert subject.startswith(stage.subjects.removesuffix(">"))
    assert len(parts) == 5
    assert parts[-1] == stage.key(message)
    assert not set(subject) & set("*> \t\r\n")


@pytest.mark.parametrize(("stage", "message"), CARRIED, ids=ids)
def test_decode_is_the_inverse_of_encode(stage: Stage[Any], message: Message) -> None:
    """MessagePack comes back equal, and so does JSON, which the first byte tells."""
    assert topology.decode(stage, topology.encode(message)) == message
    assert topology.decode(stage, msgspec.json.encode(message)) == message


@pytest.mark.parametrize("body", [b"", b"\xc1", b"{", b"[1]", b"nonsense", b"\x80", b"\x93" * 500])
def test_garbage_is_a_decode_error(body: bytes) -> None:
    """Bytes that are no message raise msgspec's errors."""
    for stage in STAGES:
        with pytest.raises(msgspec.MsgspecError):
            topology.decode(stage, body)


def test_a_message_that_makes_no_subject_is_refused() -> None:
    """A hostile id or domain is a ValueError, not another subject."""
    task = EXAMPLES["task"]
    for change in ({"id": "a.b"}, {"id": ">"}, {"domain": "x.*"}, {"id": ""}):
        with pytest.raises(ValueError, match="expected"):
            topology.TASK.subject(msgspec.structs.replace(task, **change))


def test_work_stages_are_those_with_one_receiver() -> None:
    """Work is shared out by one service; what several services follow is no work stage."""
    for stage in STAGES:
        if stage.work:
            assert len(stage.receiver) == 1


def test_the_picture_has_every_stage() -> None:
    """One row for each stage, in the order of the flow, without trailing blanks."""
    rows = topology.picture().splitlines()
    assert [row.split()[0] for row in rows[2:]] == [stage.name for stage in STAGES]
    assert all(row == row.rstrip() for row in rows)


@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50))
def test_ids_come_back(values: list[int]) -> None:
    """Every int32 survives, in four bytes each."""
    packed = pack_ids(values)
    assert count(packed) == len(values)
    assert len(packed) == 4 * len(values)
    assert unpack_ids(packed) == values


@given(values=st.lists(st.floats(width=32, allow_nan=False), max_size=50))
def test_floats_come_back(values: list[float]) -> None:
    """Every float32 survives, infinities included."""
    assert unpack_floats(pack_floats(values)) == values


def test_tokens_are_little_endian() -> None:
    """The bytes are the contract's, whatever the machine."""
    assert pack_ids([1, -1]) == b"\x01\x00\x00\x00\xff\xff\xff\xff"
    assert pack_floats([1.0]) == b"\x00\x00\x80\x3f"
    assert math.isnan(unpack_floats(pack_floats([math.nan]))[0])


def test_cut_arrays_and_large_ids_are_errors() -> None:
    """A length that is no multiple of four, and an id over 31 bits, are refused."""
    with pytest.raises(ValueError, match="multiple"):
        unpack_ids(b"\x00\x00\x00")
    with pytest.raises(OverflowError):
        pack_ids([2**31])
