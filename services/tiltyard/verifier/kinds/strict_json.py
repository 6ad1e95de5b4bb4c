"""Reading the JSON that a policy wrote, without forgiveness.

Invariants: one value, with prose or a fence around it; a key twice, NaN, Infinity, numbers that overflow or have very
many digits, more than `MAX_DEPTH` levels and halves of surrogate pairs are refused with `Unreadable`, whatever the
text; time is linear in its length. Left out: JSON with comments, single quotes or trailing commas is no JSON.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, NoReturn

MAX_DEPTH = 100
MAX_DIGITS = 60
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Unreadable(ValueError):
    """The text isn't the JSON that was asked for."""


def loads(text: str, *, exact: bool = False) -> Any:
    """The value of a text that is JSON and nothing else."""
    value, end = _decode(text.strip(), 0, exact)
    if text.strip()[end:].strip():
        raise Unreadable(f"there is more behind the JSON, at character {end}")
    return value


def find(text: str, opening: str = "{[", *, exact: bool = False) -> Any:
    """The one object or list in `text`, with prose or a fence around it; numbers as Decimal when `exact`."""
    starts = [at for at in map(text.find, opening) if at >= 0]
    if not starts:
        raise Unreadable("the answer holds no JSON object" if opening == "{" else "the answer holds no JSON")
    value, end = _decode(text, min(starts), exact)
    if any(char in text[end:] for char in opening):
        raise Unreadable("the answer holds more than one JSON value")
    return value


def _decode(text: str, start: int, exact: bool) -> tuple[Any, int]:
    if _SURROGATE.search(text):
        raise Unreadable("the text isn't valid Unicode")
    _check_depth(text, start)
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=_refuse,
        parse_float=_decimal if exact else _float,
        parse_int=_decimal if exact else _int,
    )
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as err:
        raise Unreadable(f"the JSON doesn't parse: {err.msg} at character {err.pos}") from err
    if _escaped_surrogate(text[start:end]) and _SURROGATE.search(json.dumps(value, ensure_ascii=False, default=str)):
        raise Unreadable("the JSON holds half of a surrogate pair")
    return value, end


def _escaped_surrogate(text: str) -> bool:
    return re.search(r"\\u[dD][89a-fA-F]", text) is not None


def _check_depth(text: str, start: int) -> None:
    depth = 0
    for piece in _PIECES.finditer(text, start):
        char = piece[0]
        depth += (char in "[{") - (char in "]}") if len(char) == 1 else 0
        if depth > MAX_DEPTH:
            raise Unreadable(f"the JSON is nested deeper than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unreadable("the JSON has a key twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise Unreadable(f"the JSON holds {constant}")


def _short(text: str) -> str:
    if len(text) > MAX_DIGITS:
        raise Unreadable(f"the JSON holds a number of more than {MAX_DIGITS} characters")
    return text


def _int(text: str) -> int:
    return int(_short(text))


def _float(text: str) -> float:
    number = float(_short(text))
    if not math.isfinite(number):
        raise Unreadable(f"the JSON holds {text}, which is too large")
    return number


def _decimal(text: str) -> Decimal:
    number = Decimal(_short(text))
    if number and abs(number.adjusted()) > 400:
        raise Unreadable(f"the JSON holds {text}, which is out of range")
    return number
