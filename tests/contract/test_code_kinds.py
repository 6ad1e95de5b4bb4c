"""Kinds that run what the policy wrote, in real gVisor: honest work passes, a choice of forgeries doesn't.

All forgeries, on all kinds, are tried by `make domains-check`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tiltyard.domains import load
from tiltyard.gate.grading import Grader, sandboxed
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.verifier.kinds.registry import installed

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
KINDS = installed()
CHOSEN = {
    "code.python.algorithms.easy": [
        "rewrites the results at exit",
        "patched encoder",
        "a child that writes later",
        "forks without end",
    ],
    "code.python.humaneval": ["equal to everything", "answers ahead", "looks into its callers", "kills its parent"],
    "code.python.debug.medium": ["equal to everything", "prints that all passed"],
    "code.javascript.functions.medium": ["writes the results itself", "a proxy", "patched JSON", "takes all memory"],
    "code.c.functions.hard": ["ends before main", "includes a device", "kills everything", "forks without end"],
    "code.shell.programs.medium": ["kills everything", "writes the results itself", "a daemon", "forks without end"],
    "code.python.programs.easy": ["prints the job", "kills its parent"],
    "code.repository.bugfix.easy": ["answers ahead", "shadows json", "everything is equal", "kills everybody"],
    "terminal.git.hard": ["configures git", "replaces tools", "a loop that stays"],
    "terminal.scripts.hard": ["only talk", "shadows modules"],
}


@pytest.fixture(scope="module")
async def grader() -> AsyncIterator[Grader]:
    async with sandboxed(SandboxSettings(pool={})) as worker:
        yield Grader(KINDS, worker)


@pytest.mark.parametrize("name", CHOSEN)
async def test_references_pass_and_forgeries_do_not(grader: Grader, name: str) -> None:
    """The reference gets full credit; each forgery ends with a score, and without full credit."""
    task = load(name).tasks("eval", 1)[0]
    kind = KINDS[task.verification.kind]
    right = await grader.verdict(task, kind.solution(task))
    assert right.passed, (right.reasons, right.grading)
    tried = [probe for probe in kind.probes(task) if probe.name in CHOSEN[name]]
    for probe in tried:
        found = await grader.verdict(task, probe.texts)
        assert found.score is not None, (probe.name, found.outcome, found.reasons)
        assert not found.passed, probe.name
    assert {probe.name for probe in tried} >= {one for one in CHOSEN[name] if one != "answers ahead"}
