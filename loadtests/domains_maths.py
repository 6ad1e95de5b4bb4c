"""The kind `math` beside math-verify called as its documentation says, on the same cases."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from tiltyard.gate.cases import judge, read_cases
from tiltyard.gate.grading import Grader
from tiltyard.verifier import limits
from tiltyard.verifier.kinds.registry import installed
from tiltyard.verifier.kinds.trials import Case

ROOT = Path(__file__).resolve().parents[1]
FURTHER = ROOT.parent / "shared/cases/verifier_cases.jsonl"


async def mathematics(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Right verdicts, right answers turned down and wrong ones accepted, of both."""
    files = [ROOT / "tests/cases/math.jsonl", *arguments.cases, *([FURTHER] if FURTHER.is_file() else [])]
    cases = [case for path in dict.fromkeys(files) for case in read_cases(path) if _plain(case)]
    grader = Grader(installed())
    ours = [(await judge(case, grader)).verdict == "accept" for case in cases]
    limits.close()
    logging.disable(logging.CRITICAL)
    bare = [_bare(str(case.reference), str(case.submission)) for case in cases]
    rows: list[dict[str, Any]] = []
    for name, found in (("the kind math", ours), ("bare math-verify", bare)):
        right = [case.verdict == "accept" for case in cases]
        wrong = [b and not a for a, b in zip(right, found, strict=True)].count(True)
        missed = [a and not b for a, b in zip(right, found, strict=True)].count(True)
        rows += [
            _row(f"mathematical cases right: {name}", len(cases) - wrong - missed, f"of {len(cases)}", name[0] == "t"),
            _row(f"wrong answers accepted: {name}", wrong, "", name[0] == "t"),
            _row(f"right answers rejected: {name}", missed, "", name[0] == "t"),
        ]
    return rows


def _plain(case: Case) -> bool:
    """One reference and one submission with a verdict that a library can give too."""
    texts = isinstance(case.reference, str) and isinstance(case.submission, str)
    return case.kind == "math" and texts and case.verdict in ("accept", "reject") and "format" not in case.task


def _bare(reference: str, submission: str) -> bool:
    from math_verify import parse, verify

    try:
        return bool(verify(parse(f"${reference}$"), parse(submission)))
    except Exception:  # whatever it raises is no acceptance
        return False


def _row(measure: str, value: int, unit: str, ours: bool) -> dict[str, Any]:
    fine = not ours or value == (int(unit.removeprefix("of ")) if unit else 0)
    return {
        "measure": measure,
        "value": value,
        "unit": unit,
        "target": ("all" if unit else "0") if ours else "",
        "holds": fine,
    }
