"""Judge a JSON object field by field: F1 over the fields, each compared by its type.

Score: `base` for one readable object with at least one of the asked keys, the rest by F1; passed when F1 is 1.
Invariants: exactly one object may stand in the answer (prose or a fence around it is fine); duplicate keys, NaN and
Infinity, over-long or too deep answers score 0; a made-up field costs precision.
Left out: lists of plain values, and items within items.
"""

from __future__ import annotations

from decimal import localcontext
from typing import Any

from tiltyard.verifier.kinds import strict_json
from tiltyard.verifier.kinds.base import Finding, Probe, Rule
from tiltyard.verifier.kinds.typed_values import is_null
from tiltyard_proto.messages import Task

from . import compare, items
from .data import Data, Field, Options
from .items import Count
from .probes import probes

MAX_TEXT = 16_384
PRECISION = 200
"""Digits of a difference, so that long amounts are compared exactly."""


class Fields(Rule[Data, Options]):
    """The kind."""

    name = "fields"
    version = "2"
    data = Data
    options = Options

    def refuse(self, data: Data) -> None:
        with localcontext(prec=PRECISION):
            for key, field in data.fields.items():
                compare.check(key, field)

    def check(self, data: Data, options: Options, text: str) -> Finding:
        with localcontext(prec=PRECISION):
            return self._found(data, options, text)

    def _found(self, data: Data, options: Options, text: str) -> Finding:
        try:
            answer = _flat(read_object(text), data)
        except strict_json.Unreadable as err:
            return Finding(score=0.0, components={"readable": 0.0, "f1": 0.0}, reasons=(str(err),))
        counts, reasons = [], []
        for key, field in data.fields.items():
            count, wrong = _judged(key, field, answer)
            counts.append(count)
            reasons += [wrong] if wrong else []
        made_up = [key for key, value in answer.items() if key not in data.fields and not is_null(value)]
        reasons += [f"{key[:80]} is given but not asked for" for key in made_up]
        given = sum(count.given for count in counts) + len(made_up)
        wanted = sum(count.wanted for count in counts)
        f1 = 2 * sum(count.right for count in counts) / (given + wanted) if given or wanted else 1.0
        touched = any(key in data.fields for key in answer)
        return Finding(
            score=options.base + (1 - options.base) * f1 if touched or f1 == 1.0 else 0.0,
            passed=f1 == 1.0,
            components={"readable": 1.0, "f1": round(f1, 6)},
            reasons=tuple(reasons),
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(self.data_of(task), task.reference)


def read_object(text: str) -> dict[str, Any]:
    """The one JSON object in `text`; Unreadable says why there isn't exactly one."""
    if len(text) > MAX_TEXT:
        raise strict_json.Unreadable(f"the answer is longer than {MAX_TEXT} characters")
    value = strict_json.find(text, "{", exact=True)
    assert isinstance(value, dict)  # it started with a brace
    return value


def _flat(answer: dict[str, Any], data: Data) -> dict[str, Any]:
    """Keys of objects within objects as 'a.b', where the task has such keys."""
    found: dict[str, Any] = {}
    for key, value in answer.items():
        if isinstance(value, dict) and any(name.startswith(f"{key}.") for name in data.fields):
            found |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            found[key] = value
    return found


def _judged(key: str, field: Field, answer: dict[str, Any]) -> tuple[Count, str]:
    """The counts of one field, and what is wrong with it in words."""
    value = answer.get(key)
    if field.type == "items":
        count, wrong = items.compare(field, value if key in answer else [])
        return count, f"{key}: {wrong}" if wrong else ""
    stated = not is_null(value)
    if field.value is None:
        return Count(given=int(stated)), f"{key} is given but not in the document" if stated else ""
    right = stated and compare.matches(field, value)
    found = f"is {str(value)[:80]!r}" if stated else "is missing"
    wrong = "" if right else f"{key} {found}, right is {field.value!r}"
    return Count(right=int(right), given=int(stated), wanted=1), wrong


KIND = Fields()
