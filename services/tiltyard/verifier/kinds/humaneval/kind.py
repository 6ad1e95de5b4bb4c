"""Judge a completion by HumanEval's own check program, run in a sandbox.

The check program needs the expected values beside it, so here they do enter the sandbox, unlike with `python_calls`.
The submission runs in a process of its own, as the policy's user, that only answers calls with plain values: ending
the process, printing, objects equal to everything and patched modules reach nothing. The checking process belongs to
another user, lies in a directory of its own and is not on the submission's path, so its files, memory and descriptors
are out of reach. The result counts only with the nonce, which comes on the checking process's standard input.
Left out: problems whose arguments or results aren't plain values.
"""

from __future__ import annotations

import json

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import Kind, NoOptions, Probe, final_text, verdict
from tiltyard.verifier.kinds.guest import script
from tiltyard.verifier.kinds.sandboxed import nonce, said_with, unrunnable
from tiltyard.verifier.kinds.submission import extract
from tiltyard.verifier.kinds.tampering import python_probes
from tiltyard_proto.messages import Candidate, Command, Graded, Job, Rollout, Task, Verdict

from .data import Data

RUNNER = script("humaneval")
CANDIDATE = script("humaneval", "candidate")


class HumanEval(Kind[Data, NoOptions]):
    """The kind."""

    name = "humaneval"
    version = "1"
    data = Data
    options = NoOptions

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        code = submission(final_text(rollout), data)
        if refusal := unrunnable(code):
            return verdict(self, rollout, 0.0, reasons=(refusal,))
        job = {
            "nonce": nonce(self.name, rollout),
            "function": data.function,
            "prompt": data.prompt,
            "check": data.check,
        }
        return Job(
            rollout=rollout,
            command=Command(
                argv=("python3", "grader/runner.py"),
                stdin=json.dumps(job).encode(),
                files={"grader/runner.py": RUNNER},
                candidate=Candidate(
                    argv=("python3", "candidate.py"),
                    files={"candidate.py": CANDIDATE, "submission.py": code.encode() + b"\n"},
                ),
                limits=task.environment.limits,
            ),
            profile=task.environment.profile,
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        key = nonce(self.name, graded.rollout)
        word, _, detail = said_with(graded.execution.stdout, key).partition(" ")
        calls = int(detail) if word == "passed" and detail.isdecimal() and len(detail) < 9 else 0
        if calls:
            return verdict(self, graded.rollout, 1.0, passed=True, components={"calls": float(calls)}, graded=graded)
        reason = detail if word == "failed" else f"the check didn't come to its end ({graded.execution.outcome.value})"
        return verdict(self, graded.rollout, 0.0, reasons=(reason,), graded=graded)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return python_probes(task.reference, self.data_of(task).function)


def submission(text: str, data: Data) -> str:
    """The program to load: the prompt, then the whole function if the answer has it, else the answer as its body."""
    code = extract(text, data.function)
    if not code.strip():
        return ""
    if f"def {data.function}" in code:
        return f"{data.prompt}\n    pass\n\n{code}"
    body = code_of(text)
    if not body.startswith((" ", "\t")):
        body = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"{data.prompt}\n{body}"


KIND = HumanEval()
