"""The pipeline on one page: every stream, subject and stage.

The provisioner creates streams and consumers from this page, each service's permissions follow from it, the README's
picture is printed from it (`python -m tiltyard_proto.topology`) and compared by a test.

A stage is generic in the type of its message, so wiring a handler to the wrong stage is a type error.
Subject: `tilt.v1.<stage>.<domain>[-<lane>].<key>`, the key being the idempotency key of the effect (see `keys`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

import msgspec

from . import keys
from .messages import MAJOR, DeadLetter, Graded, Group, Job, Policy, Purpose, Rollout, Task, Verdict

M_co = TypeVar("M_co", covariant=True)
PREFIX = "tilt.v1"
LANE_MARK = "-"
"""Between domain and lane in a subject; no domain contains it."""
EVAL_LANE = "eval"
"""Served before everything else of its stage."""


def _no_lane(_: Any) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[M_co]):
    """One stream and the messages on it."""

    name: str
    type: Any
    """The message type or union, for decoding."""
    key: Callable[[Any], str]
    domain: Callable[[Any], str]
    sender: tuple[str, ...]
    receiver: tuple[str, ...]
    what: str
    keyed_by: str
    work: bool = True
    """A durable consumer shares the work out; otherwise receivers follow the stream by position."""
    max_deliveries: int = 6
    """Times a handler may fail or ask for another time; then a dead letter of class 'handler'."""
    deaths_alone: int = 2
    """Workers that died of a message while they had nothing else in hand; then a dead letter of class 'crash'."""
    ack_wait_s: float = 20.0
    """Lease of one delivery; extended while the handler runs."""
    max_age_s: float = 7 * 86400.0
    lane: Callable[[Any], str] = _no_lane
    """Lane of a message where a scarce resource is shared; it follows the domain in the subject, after `-`."""
    retry_first_s: float = 0.5
    """Seconds before the next delivery after an unplanned failure; doubles with every delivery."""
    retry_cap_s: float = 30.0
    """Most seconds between two deliveries of a message that fails."""

    @property
    def stream(self) -> str:
        return f"TILT_{self.name.upper()}"

    @property
    def shared(self) -> bool:
        """Do domains share a scarce resource here? Then its receiver may make a consumer per domain and lane."""
        return self.lane is not _no_lane

    @property
    def subjects(self) -> str:
        """The filter that matches every subject of the stage."""
        return f"{PREFIX}.{self.name}.>"

    def subject(self, message: Any) -> str:
        """The subject of one message; ValueError when its domain or key can't stand in a subject."""
        return self.place(message, self.key(message))

    def place(self, message: Any, key: str) -> str:
        """The subject that a message of the same rollout would have under `key`."""
        key = keys.check_token(key, f"key of {self.name}")
        lane = self.lane(message)
        domain = keys.domain_token(self.domain(message))
        return (
            f"{PREFIX}.{self.name}.{domain}{LANE_MARK}{lane}.{key}" if lane else f"{PREFIX}.{self.name}.{domain}.{key}"
        )

    def accepts(self, message: object) -> bool:
        return isinstance(message, self.type)

    @functools.cached_property
    def tags(self) -> frozenset[str]:
        """The tags of the messages that the stage carries."""
        return frozenset(str(kind.__struct_config__.tag) for kind in get_args(self.type) or (self.type,))

    @functools.cached_property
    def schemas(self) -> frozenset[str]:
        """What the schema header of its messages says: tag and major."""
        return frozenset(f"{tag}/{MAJOR}" for tag in self.tags)

    @functools.cached_property
    def decoder(self) -> msgspec.msgpack.Decoder[M_co]:
        """Made once: looking a union of types up anew takes longer than decoding a rollout."""
        return msgspec.msgpack.Decoder(self.type)

    def retry_delay(self, deliveries: int) -> float:
        """Seconds until a message that failed at its `deliveries`-th delivery is delivered again."""
        return min(self.retry_cap_s, self.retry_first_s * 2.0 ** min(deliveries - 1, 64))


def _rollout_domain(message: Rollout | Job | Graded | Verdict) -> str:
    return message.task.domain if isinstance(message, Rollout) else message.rollout.task.domain


def _lane(message: Rollout | Job) -> str:
    rollout = message if isinstance(message, Rollout) else message.rollout
    return EVAL_LANE if rollout.group.purpose is Purpose.EVAL else ""


TASK: Stage[Task] = Stage(
    name="task",
    type=Task,
    key=lambda m: m.id,
    domain=lambda m: m.domain,
    sender=("cli",),
    receiver=("sampler",),
    work=False,
    what="a task enters the pool",
    keyed_by="task",
    max_age_s=0,
)
GENERATE: Stage[Rollout] = Stage(
    name="generate",
    type=Rollout,
    key=keys.generate_key,
    domain=_rollout_domain,
    sender=("sampler", "gateway", "sandbox", "verifier"),
    receiver=("gateway",),
    what="sample one turn",
    keyed_by="rollout-attempt-turn",
    lane=_lane,
)
EXECUTE: Stage[Rollout | Job] = Stage(
    name="execute",
    type=Rollout | Job,
    key=keys.execute_key,
    domain=_rollout_domain,
    sender=("gateway", "verifier"),
    receiver=("sandbox",),
    what="run one turn, or a grading job",
    keyed_by="rollout-attempt-turn | -grade",
    lane=_lane,
)
VERIFY: Stage[Rollout | Graded] = Stage(
    name="verify",
    type=Rollout | Graded,
    key=keys.verify_key,
    domain=_rollout_domain,
    sender=("gateway", "sandbox"),
    receiver=("verifier",),
    what="a finished rollout, or a grading job's result",
    keyed_by="rollout-attempt | -graded",
)
VERDICT: Stage[Verdict] = Stage(
    name="verdict",
    type=Verdict,
    key=keys.verdict_key,
    domain=_rollout_domain,
    sender=("verifier", "gateway", "sandbox"),
    receiver=("aggregator",),
    what="one verdict; the first of a rollout wins",
    keyed_by="rollout",
)
GROUP: Stage[Group] = Stage(
    name="group",
    type=Group,
    key=lambda m: m.id,
    domain=lambda m: m.domain,
    sender=("aggregator",),
    receiver=("trainer", "sampler", "aggregator (archive)"),
    work=False,
    what="a closed group with rewards and advantages",
    keyed_by="group",
)
POLICY: Stage[Policy] = Stage(
    name="policy",
    type=Policy,
    key=keys.policy_key,
    domain=lambda m: "policy",
    sender=("trainer",),
    receiver=("gateway", "sampler", "aggregator (archive)"),
    work=False,
    what="new weights",
    keyed_by="run-version",
)
DLQ: Stage[DeadLetter] = Stage(
    name="dlq",
    type=DeadLetter,
    key=lambda m: f"{m.reason}-{m.stream}-{m.sequence}",
    domain=lambda m: m.stage,
    sender=("any stage",),
    receiver=("people",),
    work=False,
    what="a dead letter: original bytes, reason, evidence",
    keyed_by="stage, class, stream, sequence",
    max_age_s=30 * 86400.0,
)

STAGES: tuple[Stage[Any], ...] = (TASK, GENERATE, EXECUTE, VERIFY, VERDICT, GROUP, POLICY, DLQ)
BY_NAME: dict[str, Stage[Any]] = {stage.name: stage for stage in STAGES}

GROUPS_BUCKET = "tilt_groups"
"""Key-value: open and closed group records, by group id; written by compare-and-set."""
RUNS_BUCKET = "tilt_runs"
"""Key-value: per run its status, the sampler's snapshot, positions of followers."""
WEIGHTS_BUCKET = "tilt_weights"
"""Key-value: per stage the weights of domains that share it, as JSON; read live."""
LETTERS_BUCKET = "tilt_letters"
"""Key-value: how each dead letter stands, by the letter's key; written by compare-and-set."""
ATTEMPTS_BUCKET = "tilt_attempts"
"""Key-value: what is known of messages that were delivered before, by stream and position; forgotten after a day."""
GATE = "gate"
"""In the place of a stage's name: the domain does not pass the entry gate, and is not sampled at all."""
PAUSES_BUCKET = "tilt_pauses"
"""Key-value: domains that a stage does not handle, since most of their messages died there, by stage and domain."""
BUCKETS = (GROUPS_BUCKET, RUNS_BUCKET, WEIGHTS_BUCKET, LETTERS_BUCKET, ATTEMPTS_BUCKET, PAUSES_BUCKET)
BUCKET_AGE_S = {ATTEMPTS_BUCKET: 86400.0}
"""Buckets whose values are forgotten, and after how long."""


def decode(stage: Stage[M_co], body: bytes) -> M_co:
    """A message of `stage` from MessagePack, or from JSON when the first byte is `{`."""
    if body[:1] == b"{":
        message: M_co = msgspec.json.decode(body, type=stage.type)
        return message
    return stage.decoder.decode(body)


def encode(message: msgspec.Struct) -> bytes:
    """A message as MessagePack."""
    return msgspec.msgpack.encode(message)


def picture() -> str:
    """The pipeline as the README shows it."""
    rows = [
        (stage.name, ", ".join(stage.sender), ", ".join(stage.receiver), stage.keyed_by, stage.what) for stage in STAGES
    ]
    head = ("stage", "from", "to", "key", "what")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(4)]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, [*widths, 0], strict=True)).rstrip() for row in [head, *rows]
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


if __name__ == "__main__":
    print(picture())
