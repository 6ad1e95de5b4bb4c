"""What a verifier kind is, and the few things that all of them need.

A kind is two pure functions: `plan` returns a verdict, or the grading job that a sandbox must run first; `judge`
returns the verdict from the job's result. Invariants: the same submission gives the same verdict (CPU seconds aside);
nothing of a submission is executed here; what a sandbox returns is treated as hostile; a fault of the task raises
`BrokenTask`, any other exception is a fault of the kind, and neither is ever a score of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from tiltyard_proto.messages import Graded, Job, Rollout, Task, Verdict
from tiltyard_proto.outcomes import Outcome

S = TypeVar("S", bound=msgspec.Struct)
MAX_REASON = 300
"""Characters of one reason."""
THINK_END = "</think>"


class BrokenTask(ValueError):
    """The task's own verification data can't be used."""


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value inside a task's verification data or options."""


class Kind(Protocol):
    """One way to judge rollouts."""

    @property
    def name(self) -> str:
        """Tasks name it in `verification.kind`."""

    @property
    def version(self) -> str:
        """Raised when verdicts may change."""

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        """The verdict, when it can be found without running anything; else the job that must run."""

    def judge(self, task: Task, graded: Graded) -> Verdict:
        """The verdict from the job's result."""


def read(kind: str, what: str, value: Mapping[str, Any], into: type[S]) -> S:
    """Verification data or options as a struct; BrokenTask names the key that's wrong."""
    try:
        return msgspec.convert(value, into, strict=True)
    except (msgspec.ValidationError, ValueError) as err:
        raise BrokenTask(f"verification {what} of kind {kind}: {err}") from err


def final_text(rollout: Rollout) -> str:
    """The last action's text after its thinking; empty when there is none, or when the thinking never ends."""
    text = rollout.turns[-1].text if rollout.turns else ""
    if "<think>" in text and THINK_END not in text:
        return ""
    return text.rpartition(THINK_END)[2]


def verdict(
    kind: Kind,
    rollout: Rollout,
    score: float,
    *,
    passed: bool = False,
    components: Mapping[str, float] | None = None,
    reasons: tuple[str, ...] = (),
    graded: Graded | None = None,
) -> Verdict:
    """A verdict on a rollout that ended by itself or by a limit."""
    assert 0.0 <= score <= 1.0
    return Verdict(
        rollout=rollout,
        outcome=rollout.outcome or Outcome.FINISHED,
        score=round(score, 6),
        passed=passed,
        components=dict(components or {}),
        reasons=tuple(reason[:MAX_REASON] for reason in reasons),
        verifier=f"{kind.name}/{kind.version}",
        grading=graded.execution if graded else None,
    )
