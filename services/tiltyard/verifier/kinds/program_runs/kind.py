"""Judge a program by what it prints and how it ends for hidden inputs.

Score: 1 when all runs are right; else the shared credit. Invariants: expected output never enters the sandbox; each run
has its own directory, a CPU limit and a wide wall limit; after one that hit a limit no other is tried.
Left out: standard error isn't looked at, nor are files that the program writes.
"""

from __future__ import annotations

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import BrokenTask, Kind, Probe, final_text, verdict
from tiltyard.verifier.kinds.files.kind import normal
from tiltyard.verifier.kinds.runs import Ran, extract_block, failed, results, runs_job
from tiltyard.verifier.kinds.sandboxed import unrunnable
from tiltyard_proto.messages import Graded, Job, Rollout, Task, Verdict

from .data import Data, Options, Run
from .probes import probes

_NAME = {"bash": "main.sh", "python": "main.py", "javascript": "main.js", "c": "main.c"}
_RUN = {
    "bash": ("bash", "{home}/main.sh"),
    "python": ("python3", "{home}/main.py"),
    "javascript": ("node", "--max-old-space-size=96", "{home}/main.js"),
    "c": ("{home}/main",),
}
GCC = ("gcc", "-std=gnu11", "-O1", "-w", "-o", "main", "main.c", "-lm")


class ProgramRuns(Kind[Data, Options]):
    """The kind."""

    name = "program_runs"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data, options = self.data_of(task), self.options_of(task)
        if all(not run.stdout.strip() and not run.status for run in data.runs):
            raise BrokenTask("a program that does nothing would be right")
        code = extract_block(final_text(rollout), r"\S")
        if refusal := unrunnable(code, "program"):
            return verdict(self, rollout, 0.0, reasons=(refusal,))
        argv = tuple(part.format(home="..") for part in _RUN[options.language])
        runs = [
            {
                "argv": [*argv, *run.args],
                "stdin": run.stdin.encode(),
                "files": {path: text.encode() for path, text in run.files.items()},
            }
            for run in data.runs
        ]
        build = GCC if options.language == "c" else ()
        return runs_job(task, rollout, {_NAME[options.language]: code.encode() + b"\n"}, build, runs)

    def judge(self, task: Task, graded: Graded) -> Verdict:
        data, options = self.data_of(task), self.options_of(task)
        found, building = results(graded, len(data.runs))
        wrong = [_finding(run, ran, options.compare) for run, ran in zip(data.runs, found, strict=True)]
        share = wrong.count("") / len(wrong)
        reasons = [f"run {index + 1}: {reason}" for index, reason in enumerate(wrong) if reason]
        if building:
            reasons.insert(0, f"it couldn't be built: {building}")
        return verdict(
            self,
            graded.rollout,
            1.0 if share == 1.0 else min(0.99, options.runs * share),
            passed=share == 1.0,
            components={"runs": share},
            reasons=tuple(reasons),
            graded=graded,
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(code_of(task.reference), self.options_of(task).language)


def _finding(run: Run, ran: Ran | str, compare: str) -> str:
    """What's wrong with one run; empty when nothing is."""
    if isinstance(ran, str):
        return ran
    if ran.status != run.status:
        return failed(ran) or f"ended with status 0, right is {run.status}"
    got, want = ran.stdout.encode(), run.stdout.encode()
    if normal(got, compare) != normal(want, compare):
        return f"printed {ran.stdout[:80]!r}, right is {run.stdout[:80]!r}"
    return ""


KIND = ProgramRuns()
