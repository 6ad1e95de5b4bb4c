"""Judge the calls of tools in an answer: each wanted call once, no other, every argument right.

Score: 1 or 0. Reading and comparing happen in a child with limits (`rules`). Invariants: a wanted call that its own
tool refuses makes the task broken; an argument that has the tool's default may be given or left out.
Left out: what the calls do is `tool_world`; credit for half of the calls.
"""

from __future__ import annotations

import msgspec

from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Task

from .data import Data, Options
from .probes import probes

RULES = "tiltyard.verifier.kinds.tool_calls.rules:check"
LIMITS = limits.Limits(cpu_s=1.0)


class ToolCalls(Rule[Data, Options]):
    """The kind."""

    name = "tool_calls"
    version = "1"
    data = Data
    options = Options
    blocking = True

    def check(self, data: Data, options: Options, text: str) -> Finding:
        if any("\ud800" <= char <= "\udfff" for char in text):
            return Finding(score=0.0, reasons=("the answer isn't valid Unicode",))
        asked = {"data": msgspec.to_builtins(data), "options": msgspec.to_builtins(options), "text": text}
        said = limits.call(RULES, asked, LIMITS)
        if "broken" in said:
            raise BrokenTask(said["broken"])
        wrong = said.get("wrong", "")
        return Finding(score=float(not wrong), passed=not wrong, reasons=(wrong,) if wrong else ())

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(self.data_of(task), self.options_of(task))


KIND = ToolCalls()
