"""Plain numbers, read without a grammar: integers, decimals and fractions of integers, with ASCII digits and sign."""

from __future__ import annotations

import re
from fractions import Fraction

from .tidy import bare

_INTEGER = r"[0-9]{1,300}"
_PLAIN = re.compile(
    rf"(?P<sign>[-+]?)(?:(?P<grouped>[0-9]{{1,3}}(?:,[0-9]{{3}})+)|(?P<number>(?:{_INTEGER})?(?:\.{_INTEGER})|{_INTEGER})"
    rf"|(?P<top>{_INTEGER})/(?P<bottom>{_INTEGER})|\\[dt]?frac\{{(?P<top2>{_INTEGER})\}}\{{(?P<bottom2>{_INTEGER})\}})"
)
_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]


def plain(text: str) -> Fraction | None:
    """The number; None when the text isn't one in this notation."""
    text = bare(text)
    if text.lower() in _WORDS:
        return Fraction(_WORDS.index(text.lower()))
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    top, bottom = match["top"] or match["top2"], match["bottom"] or match["bottom2"]
    if top:
        if not int(bottom):
            return None
        value = Fraction(int(top), int(bottom))
    else:
        value = Fraction((match["grouped"] or match["number"]).replace(",", ""))
    return -value if match["sign"] == "-" else value
