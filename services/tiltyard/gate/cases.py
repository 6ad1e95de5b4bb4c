"""Judging a file of cases by the real verifiers: is each verdict the one that is right?

A kind's `cases.py` makes trials of a case; they go the way of every attempt. Cases about what is not a verifier's
(tasks that the gate must refuse, groups with missing verdicts) are ruled on by `rulings`.
Invariant: a case that nobody serves, or that can't be made into a trial, doesn't hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tiltyard.verifier.kinds.trials import Case, Ruling, Trial, mappers
from tiltyard_proto.messages import Verdict

from .grading import Grader, NoSandbox
from .rulings import rulings

TOLERANCE = 0.05
"""Of a partial score."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """How one case went."""

    id: str
    kind: str
    verdict: str
    score: float | list[float | None] | None
    wanted: dict[str, Any]
    """Verdict and score of the case."""
    holds: bool
    reasons: tuple[str, ...] = ()
    verifier: str = ""
    seconds: float = 0.0
    """CPU, the sandbox's included."""


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSON-lines file; ValueError names the line that can't be read."""
    cases: list[Case] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                cases.append(msgspec.json.decode(line, type=Case))
            except msgspec.MsgspecError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
    return cases


def trials_of(case: Case) -> Sequence[Trial] | Ruling | None:
    """What the first kind that serves the case makes of it; None when nobody does."""
    ruled = rulings(case)
    if ruled is not None:
        return ruled
    for _, mapper in mappers(case.kind):
        found = mapper(case)
        if found is not None:
            return found
    return None


async def judge(case: Case, grader: Grader) -> Row:
    """The verdict on a case beside the wanted one."""
    try:
        found = trials_of(case)
    except ValueError as error:
        return _row(case, Ruling(verdict="quarantine", reasons=(f"no trial can be made of it: {error}",)), holds=False)
    if found is None:
        return _row(case, Ruling(verdict="quarantine", reasons=("no verifier kind serves it",)), holds=False)
    if isinstance(found, Ruling):
        return _row(case, found, holds=_holds(case, found))
    try:
        verdicts = [await grader.verdict(trial.task, trial.texts, trial.outcome) for trial in found]
    except NoSandbox:
        return _row(case, Ruling(verdict="quarantine", reasons=("it needs a sandbox",)), holds=False)
    ruling = _ruling(case, verdicts)
    row = _row(case, ruling, holds=_holds(case, ruling))
    seconds = sum(one.cpu_s + (one.grading.cpu_s if one.grading else 0.0) for one in verdicts)
    return msgspec.structs.replace(row, verifier=verdicts[-1].verifier, seconds=round(seconds, 4))


def _ruling(case: Case, verdicts: Sequence[Verdict]) -> Ruling:
    reasons = tuple(reason for one in verdicts for reason in one.reasons)
    if case.verdict == "list":
        return Ruling(verdict="list", score=[one.score for one in verdicts], reasons=reasons)
    return Ruling(verdict=verdicts[-1].judgement, score=verdicts[-1].score, reasons=reasons)  # type: ignore[arg-type]


def _holds(case: Case, found: Ruling) -> bool:
    """Is the verdict right, and the score with it?"""
    if found.verdict != case.verdict:
        return False
    if case.verdict == "list":
        return found.score == case.score
    if case.verdict == "partial" and isinstance(case.score, float | int) and isinstance(found.score, float):
        return abs(found.score - case.score) <= TOLERANCE
    return case.verdict == "quarantine" or found.score == case.score


def _row(case: Case, found: Ruling, *, holds: bool) -> Row:
    return Row(
        id=case.id,
        kind=case.kind,
        verdict=found.verdict,
        score=found.score,
        wanted={"verdict": case.verdict, "score": case.score},
        holds=holds,
        reasons=found.reasons,
    )
