"""What a delivered message is: the message itself, or `Reject` with the class of its dead letter. Pure: no I/O.

Checked in this order: the schema header, the bytes, the subject, what the message says, its deadline. Invariants: for
any headers, bytes and subject the answer is a message of the stage without a problem, or `Reject`, never another
error; a `Reject` carries the message only when it stood on its own subject, so that a forged copy elsewhere never
ends the rollout of its neighbour. Left out: fetching the body of a claim check (`receive`), what follows (`serve`).

Classes of dead letters:

decode      the bytes are no message at all
schema      a type that the stage does not carry, or another major of the schema
validation  a field is missing, has the wrong type or an impossible value
subject     the message's own domain and key are not those of its subject
blob        its claim check leads nowhere, or to more than may be claimed
expired     its group's deadline passed long ago
crash       workers died of it, as often as its stage allows, while they had nothing else in hand (`suspects`)
handler     its handler failed as often as its stage allows
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tiltyard_proto import topology
from tiltyard_proto.messages import MAJOR, BlobRef, Graded, Job, Rollout
from tiltyard_proto.topology import Stage
from tiltyard_proto.validity import problem

from .errors import UNREADABLE

M = TypeVar("M")
CLASSES = ("decode", "schema", "validation", "subject", "blob", "expired", "crash", "handler")
SCHEMA = "Tilt-Schema"
CLAIM = "Tilt-Claim"
REPLAY_OF = "Tilt-Replay-Of"
MAX_CLAIM = 1 << 30
"""Bytes that one claim check may stand for."""
EXPIRED_AFTER_S = 24 * 3600.0
"""Work whose group's deadline passed so long ago is a dead letter; until then it ends as late or at its wall limit."""
MAX_DETAIL = 2000
_OF_GROUPS = (Rollout, Job, Graded)
_REPLAY = re.compile(r"(.*)\.replay\.(\d{1,9})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Reject(Exception):
    """The message can never be handled. `reason` is the dead letter's class."""

    def __init__(self, reason: str, detail: str, message: Any = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.message = message
        """The message, where its rollout's group may hear that it ended."""


def printable(text: str, limit: int = MAX_DETAIL) -> str:
    """`text` as UTF-8 can carry it, at most `limit` characters."""
    return text.encode("utf-8", "backslashreplace").decode()[:limit]


def base_subject(subject: str) -> tuple[str, int]:
    """A subject without `.replay.<n>`, and how many replays came before the next one."""
    found = _REPLAY.fullmatch(subject) if ".replay." in subject else None
    return (found[1], int(found[2]) + 1) if found else (subject, 0)


def accept(stage: Stage[M], subject: str, body: bytes, headers: Mapping[str, str], now: float) -> M:
    """The message of a delivery whose body is at hand; Reject when it can't be worked on."""
    _check_schema(stage, headers)
    message = decode(stage, body)
    base, replays = base_subject(subject)
    try:
        own = stage.subject(message)
    except ValueError as error:
        raise Reject("validation", printable(str(error))) from error
    if own != base:
        raise Reject("subject", printable(f"the message belongs on {own}"))
    if wrong := problem(message):  # type: ignore[arg-type]  # every message is a struct
        raise Reject("validation", printable(wrong), message)
    if not replays:
        _check_deadline(message, now)
    return message


def claim(body: bytes) -> BlobRef:
    """The reference that the body of a claim check is; Reject when it is none that may be followed."""
    try:
        ref = msgspec.msgpack.decode(body, type=BlobRef)
    except UNREADABLE as error:
        raise Reject("decode", f"claim check: {_said(error)}") from error
    if not _SHA256.fullmatch(ref.sha256):
        raise Reject("blob", f"claim check: sha256 {printable(ref.sha256, 80)!r}: expected 64 hexadecimal digits")
    if not 0 <= ref.size <= MAX_CLAIM:
        raise Reject("blob", f"claim check: {ref.size} bytes; at most {MAX_CLAIM} may be claimed")
    return ref


def _check_schema(stage: Stage[Any], headers: Mapping[str, str]) -> None:
    said = headers.get(SCHEMA)
    if said is None or said in stage.schemas:
        return  # without one it was published by hand, and the bytes will tell
    if said.partition("/")[0] not in stage.tags:
        raise Reject("schema", f"{SCHEMA}: {printable(said, 80)!r}: {stage.name} carries {_known(stage)}")
    raise Reject("schema", f"{SCHEMA}: {printable(said, 80)!r}: expected major {MAJOR}")


def _known(stage: Stage[Any]) -> str:
    return ", ".join(sorted(stage.tags))


def _said(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}")


def decode(stage: Stage[M], body: bytes) -> M:
    """The message that bytes are, whatever it says; Reject when they are none of the stage."""
    try:
        message = topology.decode(stage, body)
        if body[:1] == b"{":  # JSON holds integers and texts that MessagePack can't carry on
            topology.encode(message)  # type: ignore[arg-type]
    except UNREADABLE as error:
        raise _why(stage, body, error) from error
    return message


def _why(stage: Stage[Any], body: bytes, error: Exception) -> Reject:
    """Reject with the class that tells a person where to look."""
    codec: Any = msgspec.json if body[:1] == b"{" else msgspec.msgpack
    try:
        raw = codec.decode(body)
    except UNREADABLE:  # not even without expectations about its content
        return Reject("decode", _said(error))
    if not isinstance(raw, dict):
        return Reject("decode", _said(error))
    tag = raw.get("type")
    named = tag in stage.tags if isinstance(tag, str) else tag is None and len(stage.tags) == 1
    if not named:
        return Reject("schema", f"type {printable(repr(tag), 80)}: {stage.name} carries {_known(stage)}")
    return Reject("validation", _said(error))


def _check_deadline(message: Any, now: float) -> None:
    if not isinstance(message, _OF_GROUPS):
        return
    group = (message if isinstance(message, Rollout) else message.rollout).group
    if group.deadline and now > group.deadline + EXPIRED_AFTER_S:
        hours = (now - group.deadline) / 3600
        raise Reject("expired", f"the deadline of group {group.id} passed {hours:.0f} hours ago", message)
