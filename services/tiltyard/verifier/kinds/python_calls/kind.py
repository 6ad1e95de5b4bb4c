"""Judge a Python function by calls whose expected values never enter the sandbox.

Score: 1 when all calls are right; else the credit for a definition that loads plus the shared credit for single calls.
Invariants: text that can't pass is turned down without a sandbox; a result counts only if it has the right type and
value; an end before the calls, a missing or garbled result and a killed process are wrong answers, never errors.
Left out: a submission that knows the right results passes, however it got them.
"""

from __future__ import annotations

import ast

from tiltyard.verifier.kinds.base import Kind, Probe, final_text, verdict
from tiltyard.verifier.kinds.guest import script
from tiltyard.verifier.kinds.sandboxed import call_results, shown, unrunnable
from tiltyard.verifier.kinds.submission import MAX_PARSE, defines, extract, parse
from tiltyard.verifier.kinds.tampering import python_probes
from tiltyard.verifier.kinds.values import Unreadable, same, untag
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task, Verdict

from .data import Call, Data, Options, arguments, check_limits, expected

RESULTS = "results.jsonl"
RUNNER = script("python_calls")


class PythonCalls(Kind[Data, Options]):
    """The kind."""

    name = "python_calls"
    version = "3"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        given = [arguments(data, call) for call in data.calls]
        for args, _ in given:
            check_limits(data, args)
        code = extract(final_text(rollout), data.function)
        refusal = _refusal(code, data.function)
        if refusal:
            return verdict(self, rollout, 0.0, reasons=(refusal,))
        lines = [data.function, *map(repr, given)]
        return Job(
            rollout=rollout,
            command=Command(
                argv=("python3", "runner.py"),
                files={
                    "runner.py": RUNNER,
                    "submission.py": code.encode() + b"\n",
                    "calls.txt": "\n".join(lines).encode() + b"\n",
                },
                limits=task.environment.limits,
            ),
            profile=task.environment.profile,
            deterministic=True,
            collect=(RESULTS,),
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        data = self.data_of(task)
        options = self.options_of(task)
        results, loading = call_results(graded.files.get(RESULTS, b""), len(data.calls))
        findings = [_finding(call, results.get(i), options.tolerance) for i, call in enumerate(data.calls)]
        right = findings.count(None)
        share = right / len(data.calls)
        loaded = not loading and (bool(results) or len(extract(final_text(graded.rollout), data.function)) <= MAX_PARSE)
        score = 1.0 if right == len(data.calls) else min(1.0, options.definition * loaded + options.calls * share)
        reasons = [finding for finding in findings if finding]
        if loading:
            reasons.insert(0, f"the code couldn't be loaded: {loading}")
        if len(results) < len(data.calls) and not loading:
            ending = graded.execution.outcome.value
            reasons.insert(0, f"the run ended ({ending}) with {len(results)} of {len(data.calls)} results")
        return verdict(
            self,
            graded.rollout,
            score,
            passed=score == 1.0,
            components={"definition": float(loaded), "calls": share},
            reasons=tuple(reasons),
            graded=graded,
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        few = task.environment.interface != "answer"
        return python_probes(task.reference, self.data_of(task).function, few=few)


def _refusal(code: str, function: str) -> str:
    """Why the code can't pass, found without running it; empty when it must run."""
    if refusal := unrunnable(code):
        return refusal
    if len(code) > MAX_PARSE:
        return ""
    tree = parse(code)
    if not isinstance(tree, ast.Module):
        return tree
    return "" if defines(tree, function) else f"the code doesn't define {function}"


def _finding(call: Call, record: dict[str, object] | None, tolerance: float) -> str | None:
    """What's wrong with one call's result; None when it's right."""
    value = expected(call)
    if record is None:
        return f"{call.call} has no result"
    if "value" not in record:
        return f"{call.call} raised {str(record.get('error'))[:100]}"
    try:
        got = untag(record["value"])
    except Unreadable as err:
        return f"{call.call} has an unreadable result: {err}"
    if same(got, value, tolerance):
        return None
    return f"{call.call} returned {shown(got)}, right is {call.expect[:100]}"


KIND = PythonCalls()
