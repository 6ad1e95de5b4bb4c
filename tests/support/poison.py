"""Poison: kinds of messages that must end as dead letters of a known class, each in any number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from support import build

from tiltyard.kit.intake import CLAIM, MAX_CLAIM, SCHEMA
from tiltyard_proto import topology
from tiltyard_proto.messages import BlobRef, Rollout, Sampling
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE

RAISES = "raise"
"""A task template whose handler fails."""


class Made(msgspec.Struct, frozen=True):
    """One message as it is published."""

    subject: str
    body: bytes
    headers: dict[str, str] = {}


class Poison(msgspec.Struct, frozen=True):
    """One kind."""

    name: str
    reason: str
    make: Callable[[int], Made]
    at_intake: bool = True
    """Can it be told from the delivery alone?"""


def rollout(number: int, **fields: Any) -> Rollout:
    """A rollout of a group of its own, so that no good one depends on it."""
    return build.rollout(group=f"run-p-{number}", size=1, **fields)


def _bytes(body: bytes | Callable[[Rollout], bytes], **headers: str) -> Callable[[int], Made]:
    def make(number: int) -> Made:
        of = rollout(number)
        made = body(of) if callable(body) else body
        return Made(GENERATE.subject(of), made, {name.replace("_", "-"): value for name, value in headers.items()})

    return make


def _changed(**fields: Any) -> Callable[[int], Made]:
    def make(number: int) -> Made:
        of = rollout(number)
        return Made(GENERATE.subject(of), topology.encode(msgspec.structs.replace(of, **fields)))

    return make


def _raw(change: Callable[[dict[str, Any]], object]) -> Callable[[int], Made]:
    def make(number: int) -> Made:
        of = rollout(number)
        raw = msgspec.msgpack.decode(topology.encode(of))
        change(raw)
        return Made(GENERATE.subject(of), msgspec.msgpack.encode(raw))

    return make


def _elsewhere(old: str, new: str) -> Callable[[int], Made]:
    def make(number: int) -> Made:
        of = rollout(number)
        subject = GENERATE.subject(of)
        assert old in subject
        return Made(subject.replace(old, new), topology.encode(of))

    return make


def _bad_domain(number: int) -> Made:
    of = rollout(number)
    task = msgspec.structs.replace(of.task, domain="No Domain!")
    return Made(GENERATE.subject(of), topology.encode(msgspec.structs.replace(of, task=task)))


def _claim(**fields: Any) -> Callable[[int], Made]:
    def make(number: int) -> Made:
        ref = BlobRef(**{"uri": "sha256:gone", "size": 10, "sha256": f"{number:064x}", **fields})
        return Made(GENERATE.subject(rollout(number)), msgspec.msgpack.encode(ref), {CLAIM: "1"})

    return make


def _expired(number: int) -> Made:
    of = rollout(number)
    of = msgspec.structs.replace(of, group=msgspec.structs.replace(of.group, deadline=1.0))
    return Made(GENERATE.subject(of), topology.encode(of))


def _raises(number: int) -> Made:
    of = rollout(number, of=build.task(template=RAISES))
    return Made(GENERATE.subject(of), topology.encode(of))


def _verdict(of: Rollout) -> bytes:
    return topology.encode(build.verdict(msgspec.structs.replace(of, outcome=Outcome.FINISHED)))


KINDS: tuple[Poison, ...] = (
    Poison("empty", "decode", _bytes(b"")),
    Poison("random_bytes", "decode", _bytes(b"\xc1\xff\x00garbage\xfe")),
    Poison("truncated", "decode", _bytes(lambda of: topology.encode(of)[:-20])),
    Poison("broken_json", "decode", _bytes(b'{"type": "rollout", "id": ')),
    Poison("deep_nesting", "decode", _bytes(b'{"type":"rollout","turns":' + b'[{"a":' * 20_000)),
    Poison("array", "decode", _bytes(b"\x93\x01\x02\x03")),
    Poison("not_utf8", "decode", _bytes(lambda of: topology.encode(of).replace(b"What is", b"\xff\xff\xff\xffxyz"))),
    Poison("no_claim", "decode", _bytes(b"\xc1not a reference", Tilt_Claim="1")),
    Poison("unknown_type", "schema", _raw(lambda raw: raw.update(type="nonsense"))),
    Poison("other_stage", "schema", _bytes(_verdict)),
    Poison("next_major", "schema", _bytes(topology.encode, **{SCHEMA.replace("-", "_"): "rollout/2"})),
    Poison("bad_header", "schema", _bytes(topology.encode, **{SCHEMA.replace("-", "_"): "%%%"})),
    Poison("missing_field", "validation", _raw(lambda raw: raw.pop("task"))),
    Poison("wrong_type", "validation", _raw(lambda raw: raw.update(member="two"))),
    Poison("negative_attempt_limit", "validation", _raw(lambda raw: raw["task"]["limits"].update(attempts=-1))),
    Poison("not_a_number", "validation", _changed(sampling=Sampling(temperature=float("nan")))),
    Poison("bad_domain", "validation", _bad_domain),
    Poison("wrong_key", "subject", _elsewhere("-a0-t0", "-a7-t3")),
    Poison("wrong_domain", "subject", _elsewhere("math__test", "code__other")),
    Poison("blob_missing", "blob", _claim(), at_intake=False),
    Poison("oversize_claim", "blob", _claim(size=MAX_CLAIM + 1)),
    Poison("path_claim", "blob", _claim(sha256="../../../../etc/passwd")),
    Poison("expired", "expired", _expired),
    Poison("failing_handler", "handler", _raises, at_intake=False),
)
