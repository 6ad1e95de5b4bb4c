"""Judge the answer to a question about data: a number, a text, a day, a list, rows.

The answer is what stands behind the last 'Answer:', or the one JSON value there is, or the whole text when it's short.
Score: 1 or 0. Invariants: rows are a multiset unless their order counts; where the data ranks rows alike, any of them
do; a reference whose rows are sorted by numbers stored as text gives no verdict.
Left out: queries are `sql`; names of columns; credit for some of the rows.
"""

from __future__ import annotations

import json
import re
from decimal import localcontext
from typing import Any

from tiltyard.verifier.kinds import strict_json
from tiltyard.verifier.kinds.base import Finding, Probe, Rule
from tiltyard_proto.messages import Task

from . import compare
from .data import Data, Options

MAX_TEXT = 32_768
PRECISION = 200
"""Digits of a difference, so that long numbers are compared exactly."""
MAX_PLAIN = 200
"""Characters of an answer that is no JSON."""
_MARK = re.compile(r"^[ \t*_#>]*(?:final )?answer[*_ \t]*[:=][*_ \t]*", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^```\w*\s*\n(.*?)\n?```$", re.DOTALL)
_KEYS = ("answer", "result", "value", "rows")


class TableAnswer(Rule[Data, Options]):
    """The kind."""

    name = "table_answer"
    version = "1"
    data = Data
    options = Options

    def refuse(self, data: Data) -> None:
        with localcontext(prec=PRECISION):
            compare.refuse(data)

    def check(self, data: Data, options: Options, text: str) -> Finding:
        try:
            got = answer(text, data.type in ("list", "rows"), options)
        except strict_json.Unreadable as error:
            return Finding(score=0.0, reasons=(str(error),))
        with localcontext(prec=PRECISION):
            wrong = compare.same(data, options, got)
        return Finding(score=float(not wrong), passed=not wrong, reasons=(wrong,) if wrong else ())

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(self.data_of(task), self.options_of(task), task.reference)


def answer(text: str, listed: bool, options: Options) -> Any:
    """The value that a text answers with; Unreadable when there's no telling."""
    if len(text) > MAX_TEXT:
        raise strict_json.Unreadable(f"the answer is longer than {MAX_TEXT} characters")
    marks = list(_MARK.finditer(text))
    if not marks and options.answer == "line":
        raise strict_json.Unreadable("no line starts with 'Answer:'")
    said = text[marks[-1].end() :].strip() if marks else text.strip()
    said = fence[1].strip() if (fence := _FENCE.match(said)) else said
    if listed or said[:1] in ("{", "["):
        value = strict_json.find(said, exact=True)
        if isinstance(value, dict):
            value = _only(value)
        return value
    said = said.strip().strip("`*").strip()
    if not said or len(said) > MAX_PLAIN or "\n" in said:
        raise strict_json.Unreadable("the answer is empty, or longer than a value")
    return said[1:-1] if len(said) > 1 and said[0] == said[-1] == '"' else said.removesuffix(".")


def _only(value: dict[str, Any]) -> Any:
    """The value of an object with one key that says what it is."""
    if len(value) == 1 and next(iter(value)).casefold() in _KEYS:
        return next(iter(value.values()))
    raise strict_json.Unreadable("the answer is an object, not a value")


def probes(data: Data, options: Options, reference: str) -> tuple[Probe, ...]:
    """What the entry gate tries: other ways to say the reference, and near misses."""
    good = [Probe(name="reasoned before", texts=(f"Let me count.\n\n{_marked(reference)}",))]
    good.append(Probe(name="bold", texts=(_marked(reference).replace("Answer:", "**Answer:**", 1),)))
    bad = [Probe(name="no value", texts=("Answer: ",), wanted="reject"),
           Probe(name="a list of junk", texts=('Answer: ["zzz"]',), wanted="reject")]  # fmt: skip
    if data.type in ("list", "rows"):
        value = strict_json.find(reference)
        shown = json.dumps(value, separators=(",", ":"))
        good.append(Probe(name="compact", texts=(f"Answer: {shown}",)))
        turned = Probe(
            name="turned",
            texts=(f"Answer: {json.dumps(value[::-1])}",),
            wanted="reject" if options.ordered else "accept",
        )
        if value[::-1] != value and not data.tied:
            (bad if options.ordered else good).append(turned)
        bad.append(Probe(name="one less", texts=(f"Answer: {json.dumps(value[1:])}",), wanted="reject"))
        if not options.distinct:
            bad.append(Probe(name="one twice", texts=(f"Answer: {json.dumps([*value, value[0]])}",), wanted="reject"))
    elif data.type in ("number", "integer"):
        good.append(Probe(name="with spaces", texts=(f"Answer:   {data.value}  ",)))
        bad.append(Probe(name="a digit more", texts=(f"Answer: 9{data.value}",), wanted="reject"))
    return (*good, *bad)


def _marked(reference: str) -> str:
    return reference if _MARK.search(reference) else f"Answer: {reference}"


KIND = TableAnswer()
