"""Judge a JavaScript function by calls whose expected values never enter the sandbox.

Score: 1 when all calls are right; else the shared credit. Invariants: results are compared by JavaScript's own types
(a number is a number, '1' isn't 1, undefined isn't null); results that aren't JSON, promises among them, are wrong.
Left out: functions that take or return functions, and asynchronous ones.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier.kinds.base import Kind, Probe, final_text, verdict
from tiltyard.verifier.kinds.calls import Call
from tiltyard.verifier.kinds.runs import extract_block
from tiltyard.verifier.kinds.sandboxed import call_results, shown, unrunnable
from tiltyard.verifier.kinds.values import Unreadable, same, untag
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task, Verdict

from .data import Data, Options
from .probes import probes

RESULTS = "results.jsonl"
RUNNER = (files(__package__) / "runner.js").read_bytes()


class JavaScriptCalls(Kind[Data, Options]):
    """The kind."""

    name = "javascript_calls"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        data = self.data_of(task)
        name = re.escape(data.function)
        code = extract_block(final_text(rollout), rf"function\s*\*?\s*{name}\b|\b{name}\s*=")
        refusal = unrunnable(code)
        if not refusal and data.function not in code:
            refusal = f"the code doesn't define {data.function}"
        if refusal:
            return verdict(self, rollout, 0.0, reasons=(refusal,))
        calls = json.dumps({"function": data.function, "calls": [list(call.args) for call in data.calls]})
        return Job(
            rollout=rollout,
            command=Command(
                argv=("node", "--max-old-space-size=96", "runner.js"),
                files={"runner.js": RUNNER, "submission.js": code.encode() + b"\n", "calls.json": calls.encode()},
                limits=task.environment.limits,
            ),
            profile=task.environment.profile,
            deterministic=True,
            collect=(RESULTS,),
        )

    def judge(self, task: Task, graded: Graded) -> Verdict:
        data, options = self.data_of(task), self.options_of(task)
        results, loading = call_results(graded.files.get(RESULTS, b""), len(data.calls))
        wrong = [_finding(call, results.get(i), options.tolerance) for i, call in enumerate(data.calls)]
        share = wrong.count("") / len(wrong)
        reasons = [f"{data.function}{_args(call)} {why}" for call, why in zip(data.calls, wrong, strict=True) if why]
        if loading:
            reasons.insert(0, f"the code couldn't be loaded: {loading}")
        elif len(results) < len(data.calls):
            reasons.insert(0, f"the run ended ({graded.execution.outcome.value}) with {len(results)} results")
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
        return probes(code_of(task.reference), self.data_of(task).function)


def _args(call: Call) -> str:
    return f"({json.dumps(list(call.args))[1:-1]})"[:100]


def _finding(call: Call, record: dict[str, object] | None, tolerance: float) -> str:
    """What's wrong with one call's result; empty when nothing is."""
    if record is None:
        return "has no result"
    if "value" not in record:
        return f"threw {str(record.get('error'))[:100]}"
    try:
        got = untag(record["value"])
    except Unreadable as err:
        return f"has an unreadable result: {err}"
    if same(got, numbers(call.expect), tolerance):
        return ""
    return f"returned {shown(got)}, right is {json.dumps(call.expect)[:100]}"


def numbers(value: Any) -> Any:
    """A JSON value as JavaScript sees it: every number is a double."""
    if type(value) in (int, float):
        return float(value)
    if isinstance(value, list | tuple):
        return [numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    return value


KIND = JavaScriptCalls()
