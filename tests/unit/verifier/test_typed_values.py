"""Amounts, days and identifiers as people write them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.verifier.kinds.typed_values import amount, checksum_holds, day, identifier, is_null

AMOUNTS = st.decimals(min_value=-(10**9), max_value=10**9, places=2)


@given(AMOUNTS)
def test_amounts_survive_their_formats(value: Decimal) -> None:
    """Grouped, with a currency, in brackets, with a comma where the mark is one: the same amount."""
    grouped = f"{abs(value):,.2f}"
    sign = "-" if value < 0 else ""
    assert (
        amount(f"{value}")
        == amount(f"{sign}{grouped}")
        == amount(f"{sign}${grouped}")
        == amount(f"{sign}{grouped} EUR")
        == value
    )
    assert amount(sign + grouped.translate(str.maketrans(",.", ".,")), ",") == value
    if value < 0:
        assert amount(f"({grouped})") == value


@given(AMOUNTS, AMOUNTS)
def test_different_amounts_stay_different(left: Decimal, right: Decimal) -> None:
    """Two amounts are read as equal only if they are."""
    assert (amount(f"{left:,}") == amount(f"{right:,}")) == (left == right)


@pytest.mark.parametrize(
    ("text", "options", "value"),
    [
        ("1.234", {}, "1.234"),
        ("1.234", {"mark": ","}, "1234"),
        ("1,234", {}, "1234"),
        ("1,234", {"mark": ","}, "1.234"),
        ("12,5", {}, "12.5"),
        ("0,125", {}, "0.125"),
        ("1.234.567", {}, "1234567"),
        ("1 234,50", {}, "1234.50"),
        ("1'234.50", {}, "1234.50"),
        ("1,00,000", {}, "100000"),
        ("12-", {}, "-12"),
        ("-$5", {}, "-5"),
        ("$-5", {}, "-5"),
        ("\u22125", {}, "-5"),
        (".5", {}, "0.5"),
        ("5%", {}, "0.05"),
        ("5%", {"unit": "%"}, "5"),
        ("5 EUR", {"unit": "EUR"}, "5"),
        ("\u20ac5", {"unit": "EUR"}, "5"),
        (5, {}, "5"),
    ],
)
def test_usual_ways_are_read(text: object, options: Any, value: str) -> None:
    """Separators, signs and units as they occur in documents."""
    assert amount(text, **options) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "1,23,4",
        "12.5.0",
        "--5",
        "(5",
        "5)",
        "5 of 6",
        "1e5",
        "$5 EUR",
        "-(-5)",
        "1,2345.0",
        "twelve",
        True,
        None,
    ],
)
def test_other_texts_are_no_amounts(text: object) -> None:
    """What nobody would write, and what has more in it."""
    assert amount(text) is None


def test_another_currency_is_another_amount() -> None:
    """Euros are no dollars."""
    assert amount("\u20ac5", unit="USD") is None


@given(st.dates(date(1900, 1, 1), date(2100, 12, 31)))
def test_days_survive_their_formats(value: date) -> None:
    """ISO, words and numbers in a known order."""
    words = value.strftime("%d %B %Y"), value.strftime("%B %d, %Y"), value.strftime("%A, %d %b %Y")
    assert {day(text) for text in (value.isoformat(), value.strftime("%Y/%m/%d"), *words)} == {value}
    assert day(value.strftime("%d.%m.%Y"), "dmy") == day(value.strftime("%m/%d/%Y"), "mdy") == value
    assert day(value.strftime("%d/%m/%Y")) in (None, value)


@pytest.mark.parametrize(
    "text", ["02/01/2024", "2024-02-30", "32/01/2024", "soon", "", "5 Marchember 2024", "2024", "20240102"]
)
def test_doubtful_days_are_none(text: str) -> None:
    """Two readings, or none."""
    assert day(text) is None


@pytest.mark.parametrize(
    ("scheme", "good"),
    [
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("luhn", "4111-1111-1111-1111"),
        ("ean", "978-0-306-40615-7"),
        ("isbn10", "0-306-40615-2"),
    ],
)
def test_check_digits_see_a_wrong_digit(scheme: str, good: str) -> None:
    """The identifier holds; with its last digit changed it doesn't."""
    assert checksum_holds(good, scheme)
    assert not checksum_holds(f"{good[:-1]}{(int(good[-1]) + 1) % 10}", scheme)
    assert not checksum_holds("", scheme)


def test_identifiers_disregard_spacing() -> None:
    """Spaces, dashes and case don't make another identifier."""
    assert identifier(" po-12 3/4 ") == identifier("PO1234")


@pytest.mark.parametrize("word", [None, "", "N/A", " none ", "-", "\u2014", "Not found"])
def test_words_for_nothing(word: object) -> None:
    """Ways to say that there is no value."""
    assert is_null(word)
