"""Judge a C function by calls whose expected values never enter the sandbox.

The submission is compiled together with a `main` of ours that makes one call, chosen by its argument; each call is a
process of its own, so that one that crashes doesn't take the others with it. What the submission prints goes to
standard error; its own `main`, if it has one, is renamed. Score: 1 when all calls are right, else the shared credit.
Left out: structures and pointers to pointers; undefined behaviour that gives the right result passes.
"""

from __future__ import annotations

import math
import re

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import Kind, Probe, final_text, verdict
from tiltyard.verifier.kinds.runs import Ran, extract_block, failed, results, runs_job
from tiltyard.verifier.kinds.sandboxed import unrunnable
from tiltyard_proto.messages import Graded, Job, Rollout, Task, Verdict

from .data import Data, Options
from .harness import harness
from .probes import probes

BUILD = ("gcc", "-std=gnu11", "-O1", "-w", "-o", "main", "main.c", "-lm")
_INT = re.compile(r"-?\d{1,20}\Z")


class CCalls(Kind[Data, Options]):
    """The kind."""

    name = "c_calls"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        code = extract_block(final_text(rollout), rf"\b{data.function}\s*\(")
        refusal = unrunnable(code)
        if not refusal and not re.search(rf"\b{data.function}\b", code):
            refusal = f"the code doesn't define {data.function}"
        if refusal:
            return verdict(self, rollout, 0.0, reasons=(refusal,))
        files = {"submission.c": code.encode() + b"\n", "main.c": harness(data).encode()}
        runs = [{"argv": ["../main", str(index)]} for index in range(len(data.calls))]
        return runs_job(task, rollout, files, BUILD, runs)

    def judge(self, task: Task, graded: Graded) -> Verdict:
        data, options = self.data_of(task), self.options_of(task)
        found, building = results(graded, len(data.calls))
        wrong = [
            _finding(ran, call.expect, data.returns, options.tolerance)
            for ran, call in zip(found, data.calls, strict=True)
        ]
        share = wrong.count("") / len(wrong)
        reasons = [
            f"{data.function}{_shown(call.args)} {reason}"
            for call, reason in zip(data.calls, wrong, strict=True)
            if reason
        ]
        if building:
            reasons = [f"it doesn't compile: {building}"]
        return verdict(
            self,
            graded.rollout,
            1.0 if share == 1.0 else min(0.99, options.calls * share),
            passed=share == 1.0,
            components={"calls": share},
            reasons=tuple(reasons),
            graded=graded,
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(code_of(task.reference), self.data_of(task))


def _shown(args: tuple[object, ...]) -> str:
    return f"({', '.join(map(repr, args))})"[:100]


def _finding(ran: Ran | str, expect: object, kind: str, tolerance: float) -> str:
    """What's wrong with one call's result; empty when nothing is."""
    if isinstance(ran, str):
        return f"gave nothing: {ran}"
    if why := failed(ran):
        return why
    right = _right(ran.stdout, expect, kind, tolerance)
    return "" if right else f"gave {ran.stdout.strip()[:60]!r}, right is {expect!r:.60}"


def _right(said: str, expect: object, kind: str, tolerance: float) -> bool:
    if kind == "text":
        return said == f"{expect}\n"
    words = said.split()
    if kind == "ints":
        assert isinstance(expect, list | tuple)
        return all(map(_INT.match, words)) and [int(word) for word in words] == list(expect)
    if len(words) != 1:
        return False
    if kind == "int":
        return bool(_INT.match(words[0])) and int(words[0]) == expect
    assert isinstance(expect, int | float)
    try:
        return math.isclose(float(words[0]), expect, rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


KIND = CCalls()
