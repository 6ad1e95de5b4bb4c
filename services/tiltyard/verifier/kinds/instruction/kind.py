"""Judge an answer by rules about its form, and by what it must say.

The score is the content's share plus the rest times the part of the rules that are kept; without the content it is 0,
as for an empty answer. Invariants: each entry of `rules` is its own component, so that an id given twice counts twice;
unknown ids, rules that can't be kept together and numbers that the prompt never states break the task; nothing is
random. Left out: contradictions between rules that measure different things.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Job, Rollout, Task, Verdict

from . import counting, forms
from .checks import Check, Count
from .data import Data, Options
from .text import contains

RULES: dict[str, type[Check]] = {**counting.RULES, **forms.RULES}
_NAMED = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
_MORE = {1: ("once", "a single"), 2: ("twice",), 3: ("a few", "several")}


class Instruction(Rule[Data, Options]):
    """The kind."""

    name = "instruction"
    version = "1"
    data = Data
    options = Options

    def plan(self, task: Task, rollout: Rollout) -> Verdict | Job:
        prompt = "\n".join(message.content for message in task.prompt)
        for rule in checks(self.data_of(task)):
            for number in rule.numbers():
                if not _states(prompt, number):
                    raise BrokenTask(f"the prompt never says {number}, which a rule demands")
        return super().plan(task, rollout)

    def refuse(self, data: Data) -> None:
        if any(not contains(item, item) for item in data.content):
            raise BrokenTask("content without a word")
        ranges: dict[str, tuple[int, int]] = {}
        for rule in checks(data):
            if isinstance(rule, Count):
                low, high = rule.bounds()
                least, most = ranges.get(rule.measured(), (0, 1 << 30))
                ranges[rule.measured()] = (max(low, least), min(most, 1 << 30 if high is None else high))
        for measured, (least, most) in ranges.items():
            if least > most:
                raise BrokenTask(f"no answer keeps the rules about {measured}")

    def check(self, data: Data, options: Options, text: str) -> Finding:
        if not text.strip():
            return Finding(score=0.0, reasons=("the answer is empty",))
        if missing := [item for item in data.content if not contains(text, item)]:
            return Finding(score=0.0, components={"content": 0.0}, reasons=(f"the answer lacks {missing[0]!r}",))
        rules = checks(data)
        kept = [rule.holds(text) for rule in rules]
        share = options.content_share
        named = {f"{i}.{data.rules[i]['id']}": float(held) for i, held in enumerate(kept)}
        return Finding(
            score=min(1.0, share + (1 - share) * (sum(kept) / len(kept))),
            passed=all(kept),
            components=({"content": 1.0} if data.content else {}) | named,
            reasons=tuple(f"not kept: {rule.say()}" for rule, held in zip(rules, kept, strict=True) if not held),
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        answer = task.reference
        said = self.data_of(task).content
        told = "\n".join(rule.say() for rule in checks(self.data_of(task)))
        return (
            Probe(name="spaces around", texts=(f"\n\n  {answer} \n",)),
            *([Probe(name="the rules repeated", texts=(told,), wanted="reject")] if said else []),
        )


def checks(data: Data) -> list[Check]:
    """The rules as their classes; BrokenTask for an unknown id or keys that a rule doesn't know."""
    return [_check(dict(table)) for table in data.rules]


def _check(table: dict[str, Any]) -> Check:
    name = table.pop("id", None)
    kind = RULES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BrokenTask(f"no rule {str(name)[:60]!r}")
    try:
        return msgspec.convert(table, kind, strict=True)
    except (msgspec.ValidationError, ValueError) as err:
        raise BrokenTask(f"rule {name}: {err}") from err


def _states(prompt: str, number: int) -> bool:
    names = [str(number), f"{number:,}", *_MORE.get(number, ())]
    if number < len(_NAMED):
        names.append(_NAMED[number])
    return any(re.search(rf"(?<![\w.,]){name}(?![\w]|[.,]\d)", prompt, re.IGNORECASE) for name in names)


KIND = Instruction()
