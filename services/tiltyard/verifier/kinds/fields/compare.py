"""Typed comparison of fields: amounts as exact decimals, dates as days, text without regard to case and spacing.

Invariant: numbers and dates never get credit for looking alike. Left out: line items, checksums of identifiers.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from decimal import Decimal, InvalidOperation

from .data import Field

MAX_VALUE = 1000
_NULL = frozenset({"", "n/a", "na", "none", "null", "-", "unknown", "not given"})
_MONTHS = {
    name: i
    for i, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_AMOUNT = re.compile(
    r"(?:[^\d\s.,+-]{0,4}\s?)?([+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?)\s?(%|[^\d\s.,+-]{0,4})", re.ASCII
)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_NUMERIC = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})", re.ASCII)
_NAMED = re.compile(r"(\d{1,2})\.? ([a-z]{3})[a-z]*\.?,? (\d{4})|([a-z]{3})[a-z]*\.? (\d{1,2}),? (\d{4})", re.ASCII)


def is_null(value: object) -> bool:
    """No value, or a word for no value."""
    return value is None or (isinstance(value, str) and text(value) in _NULL)


def matches(field: Field, value: object) -> bool:
    """Is `value` the field's value? Null matches null only."""
    if field.value is None or is_null(value):
        return field.value is None and is_null(value)
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal) or len(str(value)) > MAX_VALUE:
        return False
    if field.type == "decimal":
        right = amount(field.value)
        return right is not None and amount(value) == right
    if field.type == "iso_date" and not _ISO.fullmatch(str(value).strip()):
        return False
    if field.type in ("date", "iso_date"):
        day = read_date(field.value, "")
        return day is not None and read_date(str(value), field.order) == day
    return text(str(value)) == text(field.value)


def text(value: str) -> str:
    """NFKC, one space between words, no case."""
    return " ".join(unicodedata.normalize("NFKC", value).split()).casefold()


def amount(value: object) -> Decimal | None:
    """An amount from a JSON number or text such as '$1,234.50', '12 EUR', '5%'; None when it isn't one."""
    if isinstance(value, int | Decimal):
        number = Decimal(value)
        return number if number.is_finite() else None
    found = _AMOUNT.fullmatch(unicodedata.normalize("NFKC", str(value)).replace("\u2212", "-").strip())
    if found is None:
        return None
    try:
        number = Decimal(found[1].replace(",", ""))
    except InvalidOperation:
        return None
    return number / 100 if found[2] == "%" else number


def read_date(value: str, order: str) -> date | None:
    """A day from ISO, named months, or numbers in the given order; None when it can't be read without doubt."""
    value = text(value)
    if iso := _ISO.fullmatch(value):
        return _day(int(iso[1]), int(iso[2]), int(iso[3]))
    if order and (numeric := _NUMERIC.fullmatch(value)):
        first, second = int(numeric[1]), int(numeric[2])
        return _day(int(numeric[3]), *((second, first) if order == "dmy" else (first, second)))
    if named := _NAMED.fullmatch(value):
        day, month, year = (named[1], named[2], named[3]) if named[1] else (named[5], named[4], named[6])
        return _day(int(year), _MONTHS.get(month, 0), int(day))
    return None


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
