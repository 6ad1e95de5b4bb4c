"""Judge calls of tools by the state that they lead to: replayed on a fresh world beside the reference's calls.

Score: 1 or 0. Any way to the state counts. Invariants: the world is data and runs in a child with limits; a call
changes all or nothing; a reference that fails, changes nothing, or misses a fact that the text demands makes the task
broken. Left out: what tools answer (a plan is made from what the prompt shows).
"""

from __future__ import annotations

import msgspec

from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Task

from .data import Data, Options
from .probes import probes

RULES = "tiltyard.verifier.kinds.tool_world.rules:check"
LIMITS = limits.Limits(cpu_s=1.5)


class ToolWorld(Rule[Data, Options]):
    """The kind."""

    name = "tool_world"
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


KIND = ToolWorld()
