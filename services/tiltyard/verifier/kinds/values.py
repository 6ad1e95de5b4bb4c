"""The verifier's side of `guest_values`: hostile JSON back into values, and the strict comparison.

Invariants: never raises on hostile input but `Unreadable`; types are compared exactly (True isn't 1, 1 isn't 1.0),
floats within a relative tolerance.
"""

from __future__ import annotations

import ast
import math
from typing import Any

import msgspec

MAX_LINE = 1 << 20


class Unreadable(ValueError):
    """The text isn't a value as the sandbox's runner writes them."""


def decode_line(line: bytes) -> dict[str, Any]:
    """One JSON object; Unreadable otherwise."""
    try:
        record = msgspec.json.decode(line) if len(line) <= MAX_LINE else None
    except (msgspec.DecodeError, RecursionError, ValueError) as err:
        raise Unreadable(str(err)[:200]) from err
    if not isinstance(record, dict):
        raise Unreadable("not an object")
    return record


def untag(value: Any, depth: int = 0) -> Any:
    """The value behind the tags; Unreadable for tags that the runner doesn't write."""
    if depth > 50:
        raise Unreadable("too deep")
    if isinstance(value, list):
        return [untag(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise Unreadable("not a tagged value")
    ((tag, inner),) = value.items()
    return _untag(tag, inner, depth)


def _untag(tag: str, inner: Any, depth: int) -> Any:
    try:
        match tag:
            case "int":
                return int(inner, 16)
            case "float":
                return float(inner)
            case "tuple":
                return tuple(untag(item, depth + 1) for item in inner)
            case "dict":
                return {untag(key, depth + 1): untag(item, depth + 1) for key, item in inner}
    except (TypeError, ValueError, OverflowError) as err:
        raise Unreadable(f"bad {tag}") from err
    raise Unreadable("unknown tag")


def literal(text: str, what: str) -> Any:
    """A Python literal of the task's author; ValueError names `what`."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError) as err:
        raise ValueError(f"{what}: {text[:100]!r} isn't a Python literal") from err


def same(got: Any, expected: Any, tolerance: float) -> bool:
    """Equal in type and value; floats within the relative `tolerance` (absolute below 1), NaN equal to NaN."""
    if type(got) is not type(expected):
        return False
    if isinstance(expected, float):
        if math.isnan(expected):
            return math.isnan(got)
        return math.isclose(got, expected, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(map(same, got, expected, [tolerance] * len(expected)))
    if isinstance(expected, dict):
        return _same_keys(got, expected) and all(same(got[key], expected[key], tolerance) for key in expected)
    return bool(got == expected)


def _same_keys(got: dict[Any, Any], expected: dict[Any, Any]) -> bool:
    return {(type(key), key) for key in got} == {(type(key), key) for key in expected}
