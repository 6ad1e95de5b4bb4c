"""Judge a repository after the session by hidden tests, some of which fail at the start and some of which pass.

The tests run in a process of the grader's, from its memory; what they import from the repository runs in another
process, as the policy's user, and answers with plain values (`runner`, `candidate`). So configuration of test
frameworks, plugins, reports, exit codes, patched modules and objects equal to everything reach nothing, and the
repository's own copies of tests don't matter. The result counts only with the nonce.
Score: 1 when all of fail_to_pass and pass_to_pass pass; else shared credit for fail_to_pass while pass_to_pass passes.
Left out: tests that need more of a framework than `runner` has, and repositories that aren't Python.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tiltyard.verifier.kinds.base import Kind, Probe, verdict
from tiltyard.verifier.kinds.guest import script
from tiltyard.verifier.kinds.sandboxed import last_workspace, nonce, said_with
from tiltyard_proto.messages import Candidate, Command, Graded, Job, Rollout, Task, Verdict

from .data import Data, Options
from .probes import probes

RUNNER = script("repository")
CANDIDATE = script("repository", "candidate")


class Repository(Kind[Data, Options]):
    """The kind."""

    name = "repository"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data, options = self.data_of(task), self.options_of(task)
        workspace = last_workspace(rollout)
        if workspace is None:
            return verdict(self, rollout, 0.0, reasons=("nothing was run, so nothing has changed",))
        key = nonce(self.name, rollout)
        job = {
            "nonce": key,
            "ids": [*data.fail_to_pass, *data.pass_to_pass],
            "tests": data.tests,
            "packages": data.packages,
        }
        folder = f".grader-{key[:16]}"  # a name that the session could not foresee
        program = f".candidate-{key[16:]}.py"
        return Job(
            rollout=rollout,
            command=Command(
                argv=("python3", f"{folder}/runner.py"),
                stdin=json.dumps(job).encode(),
                files={f"{folder}/runner.py": RUNNER},
                candidate=Candidate(argv=("python3", program), files={program: CANDIDATE}),
                limits=task.environment.limits,
            ),
            profile=task.environment.profile,
            workspace=workspace,
            collect=options.protected,
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        data, options = self.data_of(task), self.options_of(task)
        said = _said(said_with(graded.execution.stdout, nonce(self.name, graded.rollout)))
        ids = [*data.fail_to_pass, *data.pass_to_pass]
        passed = {index for index in said.passed if 0 <= index < len(ids)}
        first = len(data.fail_to_pass)
        mended = sum(index < first for index in passed) / first
        kept = sum(index >= first for index in passed) == len(ids) - first
        start = task.environment.files
        damaged = [path for path in options.protected if graded.files.get(path) != start.get(path)]
        full = len(passed) == len(ids) and not damaged
        reasons = [f"{path} was changed, which was forbidden" for path in damaged]
        reasons += [f"{ids[index]}: {why}" for index, why in said.failed.items() if index < len(ids)]
        if not full and not reasons:
            reasons = [f"the tests didn't come to their end ({graded.execution.outcome.value})"]
        return verdict(
            self,
            graded.rollout,
            1.0 if full else min(0.99, options.partial * mended * (kept and not damaged)),
            passed=full,
            components={"fail_to_pass": mended, "pass_to_pass": float(kept)},
            reasons=tuple(reasons),
            graded=graded,
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(task, self.data_of(task))


class _Said(msgspec.Struct):
    passed: list[int] = []
    failed: dict[int, str] = {}


def _said(text: str) -> _Said:
    try:
        found: Any = msgspec.json.decode(text, type=_Said, strict=False) if text else _Said()
    except (msgspec.MsgspecError, ValueError):
        return _Said()
    assert isinstance(found, _Said)
    return found


KIND = Repository()
