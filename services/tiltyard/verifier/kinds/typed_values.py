"""Values as people write them in documents and answers: amounts, days, identifiers, text.

Invariants: exact (Decimal, date); what has two readings has none, unless the caller says which one is meant; numbers
and days never count as equal for looking alike. Left out: numbers in words, times of day, calendars other than ours.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from decimal import Decimal
from typing import Literal

DateOrder = Literal["", "dmy", "mdy"]
DecimalMark = Literal["", ".", ","]
NULL = frozenset(
    {"", "n/a", "na", "n.a.", "none", "null", "nil", "-", "--", "\u2013", "\u2014", "unknown", "not given", "not found",
     "missing", "absent", "not available", "not applicable", "not present", "not specified", "not stated"}
)  # fmt: skip
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_UNITS = {
    "$": "USD", "us$": "USD", "usd": "USD", "€": "EUR", "eur": "EUR", "£": "GBP", "gbp": "GBP", "chf": "CHF",
    "fr.": "CHF", "¥": "JPY", "jpy": "JPY", "sek": "SEK", "nok": "NOK", "dkk": "DKK", "pln": "PLN", "inr": "INR",
    "₹": "INR", "cad": "CAD", "aud": "AUD", "%": "%",
}  # fmt: skip
_DIGITS = r"\d[\d.,' ]{0,59}(?<![., '])|\.\d{1,30}"
_AMOUNT = re.compile(
    rf"(?P<open>\()?\s?(?P<sign>[+-])?\s?(?P<before>[^\d\s.,'+()-]{{1,4}}\.?)?\s?(?P<inner>[+-])?(?P<digits>{_DIGITS})"
    r"\s?(?P<after>[^\d\s.,'+()-]{1,4}\.?)?(?P<behind>-)?(?P<close>\))?",
    re.ASCII,
)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:t00:00(?::00(?:\.0+)?)?z?)?", re.ASCII)
_NUMERIC = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})", re.ASCII)
_YEAR_FIRST = re.compile(r"(\d{4})[./](\d{1,2})[./](\d{1,2})", re.ASCII)
_NAMED = re.compile(
    r"(\d{1,2})(?:st|nd|rd|th)?[. -]{0,2}(?:of )?([a-z]{3,9})\.?[, -]{1,2}(\d{4})"
    r"|([a-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})",
    re.ASCII,
)
_WEEKDAY = re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,? ")


def plain(text: str) -> str:
    """NFKC, one kind of minus, one space between words."""
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").replace("\u2019", "'")
    return " ".join(text.split())


def folded(text: str) -> str:
    """`plain` text without case."""
    return plain(text).casefold()


def is_null(value: object) -> bool:
    """No value, or a word for no value."""
    return value is None or (isinstance(value, str) and folded(value) in NULL)


def amount(value: object, mark: DecimalMark = "", unit: str = "") -> Decimal | None:
    """An amount from a number or text such as '$1,234.50', '1.234,50 EUR', '(12.00)', '5%'; None when it isn't one.

    `mark` is the decimal mark where one separator alone could be either; without it a comma before three digits groups
    and a point is a decimal point. A currency other than `unit` makes it another amount. '5%' is 0.05, or 5 for '%'.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        number = Decimal(str(value))
        return number if number.is_finite() else None
    found = _AMOUNT.fullmatch(plain(str(value)))
    if found is None or bool(found["open"]) != bool(found["close"]):
        return None
    signs = [sign for sign in (found["sign"], found["inner"], found["behind"]) if sign]
    units = [_UNITS.get(text.casefold(), text.upper()) for text in (found["before"], found["after"]) if text]
    read = _decimal(found["digits"], mark)
    if read is None or len(signs) > 1 or len(set(units)) > 1:
        return None
    if units and unit and units[0] != unit.upper():
        return None
    if units == ["%"] and unit != "%":
        read = read / 100
    return -read if (signs == ["-"]) != bool(found["open"]) else read


def _decimal(digits: str, mark: DecimalMark) -> Decimal | None:
    """The value of digits with separators; None when they're placed as nobody would."""
    kinds = [char for char in ".," if char in digits]
    if len(kinds) == 2:
        mark = "," if digits.rindex(",") > digits.rindex(".") else "."
    elif not mark or (kinds and kinds[0] != mark and digits.count(kinds[0]) == 1 and not _grouped(digits, kinds[0])):
        mark = _mark_of(digits, kinds)
    whole, _, part = digits.partition(mark)
    if not part.isdigit() and part:
        return None
    groups = re.split(r"[.,' ]", whole)
    separators = set(re.findall(r"[.,' ]", whole))
    if len(separators) > 1 or (len(groups) > 1 and not _well_grouped(groups)):
        return None
    return Decimal(f"{''.join(groups) or '0'}.{part or '0'}")


def _mark_of(digits: str, kinds: list[str]) -> DecimalMark:
    """Which separator is the decimal mark when nobody says so."""
    if not kinds or kinds[0] == ".":
        return "." if digits.count(".") <= 1 else ","
    return "." if digits.count(",") > 1 or _grouped(digits, ",") else ","


def _grouped(digits: str, separator: str) -> bool:
    """Could the single `separator` stand before a group of thousands?"""
    before, _, after = digits.partition(separator)
    return len(after) == 3 and 1 <= len(before) <= 3 and before.lstrip("0") != ""


def _well_grouped(groups: list[str]) -> bool:
    thousands = all(len(group) == 3 for group in groups[1:])
    lakhs = len(groups[-1]) == 3 and all(len(group) == 2 for group in groups[1:-1])
    return 1 <= len(groups[0]) <= 3 and (thousands or lakhs)


def day(value: str, order: DateOrder = "") -> date | None:
    """A day from ISO, named months, or numbers in the given order; None when it can't be read without doubt."""
    value = _WEEKDAY.sub("", folded(value), count=1)
    if found := _ISO.fullmatch(value) or _YEAR_FIRST.fullmatch(value):
        return _date(int(found[1]), int(found[2]), int(found[3]))
    if found := _NUMERIC.fullmatch(value):
        first, second, year = int(found[1]), int(found[2]), int(found[3])
        readings = {"dmy": [(second, first)], "mdy": [(first, second)], "": [(second, first), (first, second)]}[order]
        days = {read for month, number in readings if (read := _date(year, month, number))}
        return days.pop() if len(days) == 1 else None
    if found := _NAMED.fullmatch(value):
        number, name, year_text = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        return _date(int(year_text), _month(name), int(number))
    return None


def _month(name: str) -> int:
    if name == "sept":
        return 9
    return (_MONTHS.index(name) if name in _MONTHS else _FULL.index(name) if name in _FULL else -1) + 1


def _date(year: int, month: int, number: int) -> date | None:
    try:
        return date(year, month, number)
    except ValueError:
        return None


def identifier(value: str) -> str:
    """An identifier without spaces, points, dashes, slashes and case."""
    return re.sub(r"[\s./_-]", "", plain(value)).upper()


def checksum_holds(value: str, scheme: str) -> bool:
    """Do the check digits of an identifier agree? Schemes: 'iban', 'luhn' (cards), 'ean' (EAN, ISBN-13), 'isbn10'."""
    text = identifier(value)
    if scheme == "iban":
        return bool(re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", text, re.ASCII)) and _mod97(text[4:] + text[:4]) == 1
    if scheme == "isbn10" and re.fullmatch(r"\d{9}[\dX]", text, re.ASCII):
        return sum((10 if char == "X" else int(char)) * (10 - at) for at, char in enumerate(text)) % 11 == 0
    if not text.isascii() or not text.isdigit():
        return False
    if scheme == "luhn":
        doubled = [int(char) * (1 + at % 2) for at, char in enumerate(reversed(text))]
        return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0
    return scheme == "ean" and sum(int(char) * (1 + 2 * (at % 2)) for at, char in enumerate(reversed(text))) % 10 == 0


def _mod97(text: str) -> int:
    return int("".join(str(int(char, 36)) for char in text)) % 97
