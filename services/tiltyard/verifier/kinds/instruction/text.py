"""Reading an answer as words, sentences, lines and paragraphs.

Invariant: every pattern is linear in the text. Left out: sentences are found by their marks, so that one that ends
with an abbreviation is joined to the next.
"""

from __future__ import annotations

import json
import re
from typing import Any

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s|$)|\n\s*\n")
_SHORT = frozenset(
    ["mr", "mrs", "ms", "dr", "prof", "st", "vs", "etc", "e.g", "i.e", "no", "fig", "approx", "jr", "sr", "cf"]
)
_BULLET = re.compile(r"^[ \t]*[-*+•][ \t]+\S", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*\d{1,4}[.)][ \t]+\S", re.MULTILINE)
_FENCE = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
MAX_JSON = 20_000
"""Characters of an answer that is read as JSON."""


def words(text: str) -> list[str]:
    """Runs of letters and digits; an apostrophe or a hyphen inside belongs to the word."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Pieces that end with a mark or an empty line and hold a word; usual abbreviations and decimals end none."""
    found, start = [], 0
    for mark in _END.finditer(text):
        last = text[max(start, mark.start() - 12) : mark.start()].rpartition(" ")[2].lower().lstrip("(\"'")
        if mark[0] == "." and (last in _SHORT or (len(last) == 1 and last.isalpha() and last != "i")):
            continue
        found.append(text[start : mark.end()])
        start = mark.end()
    return [one.strip() for one in [*found, text[start:]] if words(one)]


def paragraphs(text: str) -> list[str]:
    """Blocks between empty lines."""
    return [block.strip() for block in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")) if block.strip()]


def lines(text: str) -> list[str]:
    """Lines that aren't empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def bullets(text: str) -> int:
    return sum(1 for _ in _BULLET.finditer(text))


def numbered(text: str) -> int:
    return sum(1 for _ in _NUMBERED.finditer(text))


def contains(text: str, phrase: str) -> int:
    """How often the words of `phrase` stand in a row in the text, letter case aside."""
    wanted, got = words(phrase.casefold()), words(text.casefold())
    if not wanted:
        return 0
    return sum(got[i : i + len(wanted)] == wanted for i in range(len(got) - len(wanted) + 1))


def parsed(text: str) -> Any:
    """The text as JSON, inside a fence or not; ValueError."""
    text = text.strip()
    if fence := _FENCE.match(text):
        text = fence[1]
    if len(text) > MAX_JSON:
        raise ValueError("too long to be read as JSON")
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as err:
        raise ValueError("nested too deeply") from err


def _refuse(name: str) -> None:
    raise ValueError(f"{name} isn't JSON")
