"""Verifier kinds with their jobs run by real gVisor instead of a local subprocess."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from support.grading import KINDS, rollout_of

from tiltyard.domains import load
from tiltyard.domains.interfaces import parse_action
from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.backends import open_backend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Rollout, Task, Verdict
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(pool={})


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    backend = open_backend(SETTINGS)
    worker = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path))
    yield worker
    await worker.sessions.close()
    await backend.close()
    assert backend.leaked == 0


async def grade(worker: Worker, rollout: Rollout) -> Verdict:
    kind = KINDS[rollout.task.verification.kind]
    planned = kind.plan(rollout.task, rollout)
    return planned if isinstance(planned, Verdict) else kind.judge(rollout.task, await worker.job(planned))


async def act(worker: Worker, task: Task, *texts: str) -> Rollout:
    """A rollout whose actions ran in its session, one after the other."""
    rollout = msgspec.structs.replace(rollout_of(task), outcome=None)
    for text in texts:
        turn = msgspec.structs.replace(rollout_of(task, text).turns[0], command=parse_action(task, text))
        rollout = msgspec.structs.replace(rollout, turns=(*rollout.turns, turn))
        if turn.command is not None:
            hop = await worker.turn(rollout)
            assert isinstance(hop.message, Rollout)
            rollout = hop.message
    return msgspec.structs.replace(rollout, outcome=rollout.outcome or Outcome.FINISHED)


@pytest.mark.parametrize("name", ["code.python.functions", "code.python.humaneval"])
async def test_references_pass_and_hostile_code_fails(worker: Worker, name: str) -> None:
    """In the sandbox the reference passes; ending the process, looping and equal-to-everything objects don't."""
    task = load(name).tasks("eval", 1)[0]
    right = await grade(worker, rollout_of(task, task.reference))
    assert right.passed, (right.reasons, right.grading)
    function = task.verification.data["function"]
    for body in (
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "return type('T', (), {'__eq__': lambda s, o: True})()",
        "while True: pass",
        "import os, signal; os.kill(os.getppid(), 9)",
    ):
        verdict = await grade(worker, rollout_of(task, f"```python\ndef {function}(*a):\n    {body}\n```"))
        assert not verdict.passed
        assert verdict.score is not None
        assert verdict.score < 0.3


async def test_a_shell_session_is_graded_by_its_files(worker: Worker) -> None:
    """The reference commands pass through session, workspace and a fresh sandbox; idle commands don't."""
    for task in load("shell.files").tasks("train", 2):
        right = await act(worker, task, task.reference, "DONE")
        verdict = await grade(worker, right)
        assert verdict.passed, (verdict.reasons, right.turns)
        idle = await grade(worker, await act(worker, task, "true"))
        assert idle.score == 0.0


async def test_repair_shows_the_failure_then_grades_the_last_answer(worker: Worker) -> None:
    """A wrong first answer gives an observation that names the failing call; the repaired one passes hidden calls."""
    task = load("code.python.repair").tasks("train", 1)[0]
    wrong = f"def {task.verification.data['function']}(*a): return 'nope'"
    rollout = await act(worker, task, wrong, task.reference)
    assert "FAILED: " in rollout.turns[0].observation
    assert (await grade(worker, rollout)).passed
    assert not (await grade(worker, await act(worker, task, wrong))).passed
