"""Units behind a number: what they measure, and how many of the basic unit one of them is.

Invariants: factors are exact; a unit of another quantity never equals; a noun ('apples') is a unit of its own.
Left out: temperatures aren't converted into each other, and months and years aren't days.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from .grammar import FUNCTIONS
from .tokens import Token

Dims = tuple[tuple[str, int], ...]


class Unit(NamedTuple):
    """What is measured, as powers of basic quantities, and the factor to the basic unit."""

    dims: Dims
    factor: Fraction = Fraction(1)
    noun: bool = False
    """Only a word for what is counted."""


def _table() -> dict[str, Unit]:
    found: dict[str, Unit] = {}

    def add(dims: str, **factors: str | int) -> None:
        powers = tuple(
            sorted(
                (part.rstrip("-0123456789"), int(part.lstrip("abcdefghijklmnopqrstuvwxyz") or 1))
                for part in dims.split()
            )
        )
        for name, factor in factors.items():
            found[name] = Unit(powers, Fraction(factor))

    add(
        "length",
        m=1,
        km=1000,
        cm="0.01",
        mm="0.001",
        dm="0.1",
        nm="1e-9",
        um="1e-6",
        inch="0.0254",
        ft="0.3048",
        yd="0.9144",
        mi="1609.344",
    )
    add("length2", ha=10_000, acre="4046.8564224")
    add("length3", L="0.001", l="0.001", mL="1e-6", ml="1e-6", cL="1e-5", cl="1e-5", dL="1e-4", gal="0.003785411784")
    add("mass", kg=1, g="0.001", mg="1e-6", t=1000, lb="0.45359237", oz="0.028349523125")
    add("time", s=1, ms="0.001", min=60, h=3600, d=86400, week=604800)
    add("month", month=1)
    add("year", year=1, decade=10, century=100)
    add("length time-1", mph="0.44704", kph=Fraction(1000, 3600).__str__(), knot=Fraction(1852, 3600).__str__())
    add("mass length time-2", N=1, kN=1000)
    add("mass length2 time-2", J=1, kJ=1000, MJ=10**6, cal="4.184", kcal=4184, kWh=3_600_000, Wh=3600)
    add("mass length2 time-3", W=1, kW=1000, MW=10**6)
    add("mass length-1 time-2", Pa=1, kPa=1000, hPa=100, bar=100_000)
    add("time-1", Hz=1, kHz=1000, MHz=10**6, GHz=10**9)
    add("current", A=1, mA="0.001")
    add("mass length2 time-3 current-1", V=1, kV=1000, mV="0.001")
    add("mass length2 time-3 current-2", ohm=1)
    add("amount", mol=1)
    add("kelvin", K=1)
    add("dollar", dollar=1, USD=1, cent="0.01")
    add("euro", EUR=1, euro=1)
    add("sterling", GBP=1)
    add("yen", JPY=1, yen=1)
    add("bit", bit=1, byte=8, kB=8000, MB=8 * 10**6, GB=8 * 10**9)
    found |= {"celsius": Unit((("celsius", 1),)), "fahrenheit": Unit((("fahrenheit", 1),)), "rad": Unit(())}
    return found


_SAME = {
    "in": "inch",
    "inches": "inch",
    "foot": "ft",
    "feet": "ft",
    "yards": "yd",
    "yard": "yd",
    "mile": "mi",
    "meter": "m",
    "metre": "m",
    "kilometer": "km",
    "kilometre": "km",
    "centimeter": "cm",
    "centimetre": "cm",
    "millimeter": "mm",
    "millimetre": "mm",
    "decimeter": "dm",
    "decimetre": "dm",
    "liter": "L",
    "litre": "L",
    "milliliter": "mL",
    "millilitre": "mL",
    "gallon": "gal",
    "hectare": "ha",
    "kilogram": "kg",
    "gram": "g",
    "milligram": "mg",
    "tonne": "t",
    "ton": "t",
    "pound": "lb",
    "lbs": "lb",
    "ounce": "oz",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "mins": "min",
    "hour": "h",
    "hr": "h",
    "hrs": "h",
    "day": "d",
    "yr": "year",
    "newton": "N",
    "joule": "J",
    "watt": "W",
    "kilowatt": "kW",
    "pascal": "Pa",
    "hertz": "Hz",
    "ampere": "A",
    "amp": "A",
    "volt": "V",
    "kelvin": "K",
    "usd": "USD",
    "buck": "dollar",
    "$": "dollar",
    "eur": "EUR",
    "gbp": "GBP",
    "jpy": "JPY",
    "centuries": "century",
    "radian": "rad",
    "km/h": "kph",
    "kmh": "kph",
    "milliseconds": "ms",
    "μm": "um",
    "feets": "ft",
}
UNITS = _table()
DEGREE = frozenset({"degree", "degrees", "deg", "\\circ", "°"})
PERCENT = frozenset({"percent", "%", "percentage"})
CURRENCIES = frozenset({"$", "EUR", "GBP", "JPY", "USD", "eur", "usd"})
_POWER_WORDS = {"square": 2, "sq": 2, "cubic": 3}
_WORD_POWERS = {"squared": 2, "cubed": 3}


def known(name: str) -> Unit | None:
    """The unit of that name, singular or plural."""
    for form in (name, name.lower(), name.removesuffix("s"), name.lower().removesuffix("s")):
        if form in UNITS:
            return UNITS[form]
        if form in _SAME:
            return UNITS[_SAME[form]]
    return None


def noun(name: str) -> Unit:
    stem = name.lower()
    stem = stem[:-3] + "y" if stem.endswith("ies") else stem.removesuffix("es").removesuffix("s")
    return Unit(((f"'{stem}", 1),), noun=True)


def of_text(text: str) -> Unit | None:
    """A unit written alone: 'cm', 'km/h', 'square metres'; None for percent and degrees, which are values."""
    from .tokens import tokens

    words = tokens(text)
    return read(words) if words else None


def split(words: list[Token], *, eager: bool) -> tuple[list[Token], Unit | None]:
    """The words before a unit at the end (or behind a currency), and the unit.

    A single letter is a unit only apart from the number ('10 m', not '10m'), unless `eager`.
    """
    if len(words) > 1 and words[0].text in CURRENCIES:
        return words[1:], known(words[0].text)
    if len(words) > 2 and words[0].text == "-" and words[1].text in CURRENCIES:
        return [words[0], *words[2:]], known(words[1].text)
    for start in range(1, len(words)):
        if _may_begin(words, start, eager=eager):
            unit = read(words[start:])
            if unit is not None and not (unit.noun and any(word.kind == "name" for word in words[:start])):
                return words[:start], unit
    return words, None


def _may_begin(words: list[Token], start: int, *, eager: bool) -> bool:
    before, word = words[start - 1], words[start]
    if before.text in ("+", "-", "*", "/", "^", "_", "(", "{", "\\cdot", "\\times", "=", "\\frac"):
        return False
    if before.kind == "command" and before.text not in ("\\pi",):
        return False
    if before.kind == "name" and not eager and not (word.kind == "name" and len(word.text) > 2):
        return False
    if word.text == "^":
        return len(words) > start + 1
    return (word.kind == "name" and (len(word.text) > 1 or eager or not word.tight)) or word.text in CURRENCIES


def read(words: list[Token]) -> Unit | None:
    """The unit that all words make; None when they make none."""
    if _degrees(words):
        return UNITS["celsius" if words[-1].text == "C" else "fahrenheit"]
    dims: dict[str, int] = {}
    factor, sign, at, nouns = Fraction(1), 1, 0, False
    scale = 1
    while at < len(words):
        word = words[at]
        if word.text in ("/", "per") and at and sign == 1:
            sign, at = -1, at + 1
            continue
        if word.text in ("\\cdot", "*", "\\times") and at:
            at += 1
            continue
        if word.text in _POWER_WORDS and at + 1 < len(words):
            scale, at = _POWER_WORDS[word.text], at + 1
            continue
        unit = _one(word)
        if unit is None:
            return None
        power, at = _powered(words, at + 1)
        power *= sign * scale
        scale = 1
        nouns = nouns or unit.noun
        factor *= unit.factor**power
        for name, exponent in unit.dims:
            dims[name] = dims.get(name, 0) + exponent * power
    return Unit(tuple(sorted((name, power) for name, power in dims.items() if power)), factor, nouns) if words else None


def _one(word: Token) -> Unit | None:
    if word.kind != "name" and word.text not in CURRENCIES:
        return None
    unit = known(word.text)
    if unit is None and len(word.text) > 2 and word.text.lower() not in FUNCTIONS | {"pi", "per", "inf", "infty"}:
        return noun(word.text)
    return unit


def _powered(words: list[Token], at: int) -> tuple[int, int]:
    """The exponent behind a unit, 1 if there is none, and what comes next."""
    if at < len(words) and words[at].text in _WORD_POWERS:
        return _WORD_POWERS[words[at].text], at + 1
    if at >= len(words) or words[at].text != "^":
        return 1, at
    rest = words[at + 1 : at + 5]
    texts = [word.text if word.kind != "number" else str(word.value) for word in rest]
    for used, pattern in ((4, "{-n}"), (3, "{n}"), (2, "-n"), (1, "n")):
        shown = "".join("n" if text.isdigit() else text for text in texts[:used])
        if shown == pattern:
            number = int(next(text for text in texts[:used] if text.isdigit()))
            return (-number if "-" in pattern else number) if number < 10 else 1, at + 1 + used
    return 1, at


def _degrees(words: list[Token]) -> bool:
    texts = [word.text for word in words]
    return texts[:-1] in (["^", "\\circ"], ["^", "{", "\\circ", "}"], ["\\circ"]) and texts[-1] in ("C", "F")
