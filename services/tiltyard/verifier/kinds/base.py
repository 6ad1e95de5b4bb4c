"""What a verifier kind is, and the few things that all of them need.

A kind is two pure functions: `plan` returns a verdict, or the grading job that a sandbox must run first; `judge`
returns the verdict from the job's result. Invariants: the same submission gives the same verdict, byte for byte (see
`canonical`); nothing of a submission is executed here, and what parses it with a heavy library does so in `limits`;
what a sandbox returns is treated as hostile; a fault of the task raises `BrokenTask`, doubt raises another
`Quarantine`, any other exception is a fault of the kind, and none of them is ever a score.
Left out: how kinds are found (`registry`), and running jobs, which is the sandbox's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from tiltyard_proto.messages import Graded, Job, Rollout, Task, Verdict
from tiltyard_proto.outcomes import Outcome

S = TypeVar("S", bound=msgspec.Struct)
D = TypeVar("D", bound=msgspec.Struct)
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741
MAX_REASON = 300
"""Characters of one reason."""
MAX_REASONS = 20
MAX_TEXT = 65_536
"""Characters of an answer that a rule reads; a longer one scores 0 unread."""
MAX_OUTPUT = 32_768
"""Bytes of each output and file that evidence keeps."""
THINK_END = "</think>"


class Quarantine(ValueError):
    """No verdict can be given, and the reason is not the submission: nothing enters training or a metric."""

    outcome = Outcome.VERIFIER_FAILED


class BrokenTask(Quarantine):
    """The task's own verification data can't be used."""

    outcome = Outcome.TASK_BROKEN


class Unsure(Quarantine):
    """Two checkers disagree, or a checker can't tell; a person should look."""


class JudgeUnavailable(Quarantine):
    """The model that judges gave no usable answer."""

    outcome = Outcome.JUDGE_UNAVAILABLE


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value inside a task's verification data or options."""


class NoOptions(Part, frozen=True):
    """`verification.options` of a kind that has none."""


class Probe(Part, frozen=True):
    """A submission whose verdict is known before: the entry gate tries it on every kind's tasks."""

    name: str
    texts: tuple[str, ...]
    """The actions, one for each turn."""
    wanted: Literal["accept", "partial", "reject", "no_accept"] = "accept"
    """'no_accept': whatever it scores, full credit would be wrong."""


class Finding(Part, frozen=True):
    """What a rule found in an answer."""

    score: float
    passed: bool = False
    components: dict[str, float] = {}
    reasons: tuple[str, ...] = ()


class Kind(ABC, Generic[D, O]):
    """One way to judge rollouts."""

    name: str
    """Tasks name it in `verification.kind`; the folder's name."""
    version: str
    """Raised when verdicts may change."""
    data: type[D]
    """What `verification.data` holds."""
    options: type[O]
    """What `verification.options` holds; defaults are what a domain gets that says nothing."""
    blocking: bool = False
    """True when `plan` or `judge` waits (for a child of `limits`, for a judge): the service calls it in a thread."""
    executes: bool = True
    """False when `plan` never asks for a grading job."""

    @abstractmethod
    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        """The verdict, when it can be found without running anything; else the job that must run."""

    @abstractmethod
    def judge(self, task: Task, graded: Graded) -> Verdict:
        """The verdict from the job's result."""

    def solution(self, task: Task) -> tuple[str, ...]:
        """The actions that solve the task; one turn with the reference unless the kind knows better."""
        return (task.reference,)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        """Harmless changes of the reference that must pass, and submissions of the kind's own that must not.

        The gate adds what fits every kind: the reference, nothing, junk, far too much text.
        """
        return ()

    def evidence(self, graded: Graded | None) -> bytes:
        """What a person needs to retrace the verdict and nobody else keeps; empty for nothing."""
        return _outputs(graded) if graded else b""

    def data_of(self, task: Task) -> D:
        """The task's verification data; BrokenTask names the key that's wrong."""
        return read(self.name, "data", task.verification.data, self.data)

    def options_of(self, task: Task) -> O:
        """The task's verification options; BrokenTask names the key that's wrong."""
        return read(self.name, "options", task.verification.options, self.options)


class Rule(Kind[D, O]):
    """A kind that decides from the last answer's text alone."""

    executes = False

    @abstractmethod
    def check(self, data: D, options: O, text: str) -> Finding:
        """What the rule finds in the text after the thinking, of at most `MAX_TEXT` characters."""

    def refuse(self, data: D) -> None:
        """Raise BrokenTask when the data can't be judged by; called before `check`."""

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data, options = self.data_of(task), self.options_of(task)
        self.refuse(data)
        text = final_text(rollout)
        if len(text) > MAX_TEXT:
            found = Finding(score=0.0, reasons=(f"the answer is longer than {MAX_TEXT} characters",))
        else:
            found = self.check(data, options, text)
        return verdict(
            self, rollout, found.score, passed=found.passed, components=found.components, reasons=found.reasons
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        result = self.plan(task, graded.rollout)
        assert isinstance(result, Verdict)  # nothing is ever planned to run
        return result


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
    kind: Kind[Any, Any],
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
        reasons=tuple(reason[:MAX_REASON] for reason in reasons[:MAX_REASONS]),
        verifier=f"{kind.name}/{kind.version}",
        grading=graded.execution if graded else None,
    )


def canonical(found: Verdict) -> bytes:
    """What must be equal when the same submission is judged again: all but the rollout and what was measured."""
    return msgspec.json.encode(
        {
            "outcome": found.outcome,
            "score": found.score,
            "passed": found.passed,
            "components": found.components,
            "reasons": found.reasons,
            "verifier": found.verifier,
        },
        order="sorted",
    )


def _outputs(graded: Graded) -> bytes:
    """How a grading job ended, what it wrote and what was collected, as JSON."""
    run = graded.execution
    files = {path: _shown(content) for path, content in sorted(graded.files.items())}
    ending = {"outcome": run.outcome, "exit_code": run.exit_code, "signal": run.signal, "detail": run.detail}
    return msgspec.json.encode(
        {**ending, "stdout": _shown(run.stdout), "stderr": _shown(run.stderr), "files": files}, order="sorted"
    )


def _shown(content: bytes) -> str:
    return content[:MAX_OUTPUT].decode("utf-8", "backslashreplace")
