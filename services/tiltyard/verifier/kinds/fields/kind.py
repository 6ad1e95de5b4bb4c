"""Judge a JSON object field by field: F1 over the fields, each compared by its type.

Score: `base` for one readable object with at least one of the asked keys, the rest by F1; passed when F1 is 1.
Invariants: exactly one object may stand in the answer (prose or a fence around it is fine); duplicate keys, NaN and
Infinity, over-long or too deep answers score 0; a made-up field costs precision.
Left out: nested fields and lists.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Task

from .compare import amount, is_null, matches, read_date
from .data import Data, Options
from .probes import probes

MAX_TEXT = 16_384


class Unreadable(ValueError):
    """The answer isn't one JSON object."""


class Fields(Rule[Data, Options]):
    """The kind."""

    name = "fields"
    version = "1"
    data = Data
    options = Options

    def refuse(self, data: Data) -> None:
        _check(data)

    def check(self, data: Data, options: Options, text: str) -> Finding:
        try:
            answer = read_object(text)
        except Unreadable as err:
            return Finding(score=0.0, components={"readable": 0.0, "f1": 0.0}, reasons=(str(err),))
        given = {key: value for key, value in answer.items() if not is_null(value)}
        wanted = [key for key, field in data.fields.items() if field.value is not None]
        right = [key for key in wanted if key in given and matches(data.fields[key], given[key])]
        f1 = 2 * len(right) / (len(given) + len(wanted)) if given or wanted else 1.0
        touched = any(key in data.fields for key in answer)
        reasons = [_reason(key, data, given) for key in wanted if key not in right]
        reasons += [f"{key} is given but not in the document" for key in given if key not in wanted]
        return Finding(
            score=options.base + (1 - options.base) * f1 if touched or f1 == 1.0 else 0.0,
            passed=f1 == 1.0,
            components={"readable": 1.0, "f1": round(f1, 6)},
            reasons=tuple(reasons),
        )

    def probes(self, task: Task) -> tuple[Probe, ...]:
        return probes(self.data_of(task), task.reference)


def _check(data: Data) -> None:
    for key, field in data.fields.items():
        if field.value is None:
            continue
        if field.type == "decimal" and amount(field.value) is None:
            raise BrokenTask(f"field {key}: {field.value[:50]!r} is no amount")
        if field.type in ("date", "iso_date") and read_date(field.value, "") is None:
            raise BrokenTask(f"field {key}: {field.value[:50]!r} is no ISO date")


def _reason(key: str, data: Data, given: dict[str, Any]) -> str:
    found = f"is {str(given[key])[:80]!r}" if key in given else "is missing"
    return f"{key} {found}, right is {data.fields[key].value!r}"


def read_object(text: str) -> dict[str, Any]:
    """The one JSON object in `text`; Unreadable says why there isn't exactly one."""
    if len(text) > MAX_TEXT:
        raise Unreadable(f"the answer is longer than {MAX_TEXT} characters")
    start = text.find("{")
    if start < 0:
        raise Unreadable("the answer holds no JSON object")
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_decimal, parse_int=_decimal
    )
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError as err:
        raise Unreadable("the JSON is nested too deep") from err
    except json.JSONDecodeError as err:
        raise Unreadable(f"the JSON doesn't parse: {err.msg} at character {err.pos}") from err
    if "{" in text[end:]:
        raise Unreadable("the answer holds more than one object")
    assert isinstance(value, dict)  # it started with a brace
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unreadable("the JSON has a key twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise Unreadable(f"the JSON holds {constant}")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text) if len(text) <= 60 else Decimal("NaN")
    except InvalidOperation as err:
        raise Unreadable(f"the JSON holds a number that can't be read: {text[:40]}") from err


KIND = Fields()
