"""Typed comparison of single fields: amounts as exact decimals, dates as days, identifiers by their characters.

Invariants: numbers, dates and identifiers never get credit for looking alike; similarity counts for names only, and
never where digits or negations differ. Left out: items are `items`, what counts as which value is `typed_values`.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard.verifier.kinds.typed_values import amount, checksum_holds, day, folded, identifier, is_null

from .data import Field

MAX_VALUE = 1000
SIMILAR = 92.0
"""Per cent of similarity from which two names are one."""
_TRUE, _FALSE = frozenset({"true", "yes", "y", "1"}), frozenset({"false", "no", "n", "0"})
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NEGATIONS = frozenset({"no", "not", "non", "un", "never", "without"})


def matches(field: Field, value: object) -> bool:
    """Is `value` the field's value? Null matches null only."""
    if field.value is None or is_null(value):
        return field.value is None and is_null(value)
    if not isinstance(value, str | int | Decimal) or len(str(value)) > MAX_VALUE:
        return False
    if isinstance(value, bool) and field.type != "boolean":
        return False
    return any(_equal(field, right, value) for right in (field.value, *field.others))


def _equal(field: Field, right: str, value: str | int | Decimal) -> bool:
    match field.type:
        case "decimal" | "integer":
            return _same_amount(field, right, value)
        case "date" | "iso_date":
            if field.type == "iso_date" and not _ISO.fullmatch(str(value).strip()):
                return False
            given = day(str(value), field.order)
            return given is not None and given == day(right)
        case "boolean":
            return truth(value) is not None and truth(value) == truth(right)
        case "id":
            return identifier(str(value)) == identifier(right)
        case "name":
            return _same_name(str(value), right)
    return folded(str(value)) == folded(right)


def _same_amount(field: Field, right: str, value: str | int | Decimal) -> bool:
    wanted, given = amount(right, ".", field.unit), amount(value, field.mark, field.unit)
    if wanted is None or given is None or (field.type == "integer" and given != given.to_integral_value()):
        return False
    return abs(given - wanted) <= Decimal(field.tolerance)


def truth(value: object) -> bool | None:
    """A truth value, or a word for one."""
    if isinstance(value, bool):
        return value
    word = folded(str(value))
    return True if word in _TRUE else False if word in _FALSE else None


def _same_name(given: str, right: str) -> bool:
    """The same name but for case, spacing, punctuation and a slip of the pen in a long one."""
    from rapidfuzz import fuzz  # only names need it

    left, other = (re.sub(r"[^\w&+]+", " ", folded(text)).strip() for text in (given, right))
    if left == other:
        return bool(left)
    if re.findall(r"\d+", left) != re.findall(r"\d+", other) or min(len(left), len(other)) < 8:
        return False
    words = set(left.split()) ^ set(other.split())
    if words & _NEGATIONS or any(f"un{word}" in words for word in words):
        return False
    return fuzz.ratio(left, other) >= SIMILAR


def check(key: str, field: Field) -> None:
    """BrokenTask when a field's right value isn't of its type."""
    if field.type == "items":
        _check_items(key, field)
        return
    try:
        Decimal(field.tolerance)
    except InvalidOperation as err:
        raise BrokenTask(f"field {key}: tolerance {field.tolerance[:20]!r} is no number") from err
    for value in (field.value, *field.others):
        if value is not None and (wrong := _wrong(field, value)):
            raise BrokenTask(f"field {key}: {value[:50]!r} {wrong}")


def _wrong(field: Field, value: str) -> str:
    if field.type in ("decimal", "integer") and amount(value, ".", field.unit) is None:
        return "is no amount"
    if (field.type in ("date", "iso_date") and not _ISO.fullmatch(value)) or (
        field.type == "date" and day(value) is None
    ):
        return "is no ISO date"
    if field.type == "iso_date" and day(value) is None:
        return "is no day"
    if field.type == "boolean" and truth(value) is None:
        return "is no truth value"
    if field.scheme and not checksum_holds(value, field.scheme):
        return f"fails its check digits ({field.scheme})"
    return ""


def _check_items(key: str, field: Field) -> None:
    for row in field.rows:
        if not set(row) <= set(field.columns):
            raise BrokenTask(
                f"field {key}: an item has keys that are no column: {sorted(set(row) - set(field.columns))}"
            )
        for column, value in row.items():
            check(f"{key}.{column}", cell(field.columns[column], value))


def cell(column: Field, value: str | None) -> Field:
    """The column's field with the value of one item."""
    return Field(
        type=column.type, value=value, order=column.order, mark=column.mark, unit=column.unit,
        tolerance=column.tolerance, scheme=column.scheme,
    )  # fmt: skip
