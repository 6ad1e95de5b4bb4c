"""Judge a completion by HumanEval's own check program, run in a sandbox.

The check program needs the expected values beside it, so here they do enter the sandbox, unlike with `python_calls`.
The submission runs in a process of its own, as the policy's user, that only answers calls with plain values: ending
the process, printing, objects equal to everything and patched modules reach nothing. The checking process belongs to
another user, lies in a directory of its own and is not on the submission's path, so its files, memory and descriptors
are out of reach. The result counts only with the nonce, which comes on the checking process's standard input.
Left out: problems whose arguments or results aren't plain values.
"""

from __future__ import annotations

import hashlib
import json

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import final_text, read, verdict
from tiltyard.verifier.kinds.guest import script
from tiltyard.verifier.kinds.submission import extract
from tiltyard_proto.messages import Candidate, Command, Graded, Job, Rollout, Task, Verdict

from .data import Data

MAX_CODE = 65_536
RUNNER = script("humaneval")
CANDIDATE = script("humaneval", "candidate")


class HumanEval:
    """The kind."""

    name = "humaneval"
    version = "1"

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = read(self.name, "data", task.verification.data, Data)
        code = submission(final_text(rollout), data)
        if not code or len(code) > MAX_CODE or "\0" in code or any("\ud800" <= char <= "\udfff" for char in code):
            return verdict(self, rollout, 0.0, reasons=("there is no code, or not one that can be run",))
        job = {"nonce": nonce(rollout), "function": data.function, "prompt": data.prompt, "check": data.check}
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
        key = nonce(graded.rollout)
        word, _, detail = _last_line(graded.execution.stdout, key).partition(" ")
        calls = int(detail) if word == "passed" and detail.isdecimal() and len(detail) < 9 else 0
        if calls:
            return verdict(self, graded.rollout, 1.0, passed=True, components={"calls": float(calls)}, graded=graded)
        reason = detail if word == "failed" else f"the check didn't come to its end ({graded.execution.outcome.value})"
        return verdict(self, graded.rollout, 0.0, reasons=(reason,), graded=graded)


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


def nonce(rollout: Rollout) -> str:
    """What the checking process must repeat: derived from ids that never enter the sandbox."""
    key = f"{rollout.id}/{rollout.attempt}/{rollout.task.id}/{rollout.created}".encode()
    return hashlib.blake2b(key, digest_size=16, person=b"humaneval").hexdigest()


def _last_line(stdout: bytes, key: str) -> str:
    """What the last line that begins with `key` says; empty when there is none."""
    for line in reversed(stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(f"{key} "):
            return line.removeprefix(f"{key} ")
    return ""


KIND = HumanEval()
