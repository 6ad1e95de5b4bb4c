"""Every case of tests/cases, and of a further file where there is one, through the real verifiers and the real sandbox.

The further file is named by TILTYARD_CASES, or else is `shared/cases/verifier_cases.jsonl` beside the checkout.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiltyard.gate.cases import judge, read_cases
from tiltyard.gate.grading import Grader, sandboxed
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.verifier import limits
from tiltyard.verifier.kinds.registry import installed
from tiltyard.verifier.kinds.trials import Case, mappers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
FURTHER = Path(os.environ.get("TILTYARD_CASES") or ROOT.parent / "shared/cases/verifier_cases.jsonl")
FILES = [*sorted((ROOT / "tests/cases").glob("*.jsonl")), *([FURTHER] if FURTHER.is_file() else [])]
CASES = [(path.stem, case) for path in FILES for case in read_cases(path)]
SERVED = [(name, case) for name, case in CASES if case.kind == "aggregate" or any(True for _ in mappers(case.kind))]


@pytest.fixture(scope="module")
async def grader() -> AsyncIterator[Grader]:
    async with sandboxed(SandboxSettings(pool={})) as worker:
        yield Grader(installed(), worker)
    limits.close()


@pytest.mark.parametrize("case", [case for _, case in SERVED], ids=[f"{name}-{case.id}" for name, case in SERVED])
async def test_the_verdict_is_right(grader: Grader, case: Case) -> None:
    """The verdict and score of the case are those that it wants."""
    row = await judge(case, grader)
    assert row.holds, (row.verdict, row.score, row.wanted, row.reasons, case.task, case.submission)


def test_own_cases_say_where_they_come_from() -> None:
    """Every case of ours has a kind that is served, a source and a reason; no id is there twice in a file."""
    for path in FILES:
        if path != FURTHER:
            cases = read_cases(path)
            assert len({case.id for case in cases}) == len(cases), path.name
            assert [case.id for case in cases if not (case.source and case.note)] == [], path.name
            served = {case.id for _, case in SERVED}
            assert {case.id for case in cases} <= served, path.name
