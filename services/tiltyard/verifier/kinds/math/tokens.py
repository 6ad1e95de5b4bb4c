"""The words of a mathematical text: numbers, names, commands, signs.

Numbers are exact. Grouping by commas ('1,000') is read only where no list can be meant, that is outside brackets and
unless told otherwise; groups may also be set apart by spaces or '{,}'. Decimal commas are read where the whole text is
one number. Invariant: linear in the text; text that can't be split raises `Unreadable`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal, NamedTuple

from .tidy import tidy

MAX_TOKENS = 800
MAX_DIGITS = 400


class Unreadable(ValueError):
    """The text is no mathematics that is understood here; the message says where."""


class Token(NamedTuple):
    """One word."""

    kind: Literal["number", "name", "command", "sign", "word"]
    text: str
    value: Fraction = Fraction(0)
    tight: bool = False
    """Nothing stands between it and the word before."""


_NUMBER = re.compile(
    r"(?P<group>\d{1,3}(?:\ue000\d{3})+|\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,3}(?: \d{3})+(?!\d))(?P<tail>\.\d+)?"
    r"|(?P<whole>\d+)?\.\\overline\s*\{(?P<cycle>\d+)\}"
    r"|(?P<head>\d*\.\d*)\\overline\s*\{(?P<cycle2>\d+)\}"
    r"|(?P<plain>\d+\.\d+|\.\d+|\d+\.(?![\d.])|\d+)(?P<exp>[eE][+-]?\d{1,4}(?![\d.]))?"
)
_UNGROUPED = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_DECIMAL_COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),(?:\d{1,2}|\d{4,})|[-+]?\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?")
_COMMAND = re.compile(r"\\(?:mathbb\s*\{([A-Z])\}|(begin|end)\s*\{([a-z]+\*?)\}|([a-zA-Z]+)|(.))", re.DOTALL)
_NAME = re.compile(r"[A-Za-z\u03b1-\u03c9]+")
_SIGNS = ("<=", ">=", "!=", "**", "==", "->")
_WORDS = frozenset(
    {"or", "and", "where", "with", "for", "all", "real", "numbers", "no", "solution", "solutions", "none"}
)


def tokens(text: str, *, scalar: bool = True) -> list[Token]:
    """The words of `text`; with `scalar` a comma may group digits or be a decimal comma. Unreadable."""
    text = tidy(text)
    if scalar and _DECIMAL_COMMA.fullmatch(text.replace("\ue000", "")):
        text = text.replace(".", "").replace(",", ".")
    found: list[Token] = []
    at, depth = 0, 0
    while at < len(text):
        if text[at].isspace() or text[at] == "\ue000":
            at += 1
            continue
        token, end = _token(text, at, grouped=scalar and not depth)
        token = token._replace(tight=at > 0 and not text[at - 1].isspace())
        depth += (token.text in "([" or token.text == "\\{") - (token.text in ")]" or token.text == "\\}")
        found.append(token)
        if len(found) > MAX_TOKENS:
            raise Unreadable("the expression is too long")
        at = end
    return found


def _token(text: str, at: int, *, grouped: bool) -> tuple[Token, int]:
    if text[at].isdigit() or (text[at] == "." and re.match(r"\.(?:\d|\\overline)", text[at:])):
        return _number(text, at, grouped=grouped)
    if text[at] == "\\":
        return _command(text, at)
    if name := _NAME.match(text, at):
        word = name[0].lower()
        return Token("word" if word in _WORDS else "name", word if word in _WORDS else name[0]), name.end()
    for sign in _SIGNS:
        if text.startswith(sign, at):
            same = {"<=": "\\le", ">=": "\\ge", "!=": "\\ne", "**": "^", "==": "=", "->": "\\to"}
            return Token("command" if same[sign][0] == "\\" else "sign", same[sign]), at + len(sign)
    if text[at] in "+-*/^_=<>()[]{}|,;:!%&'$?\"@#":
        return Token("sign", text[at]), at + 1
    raise Unreadable(f"the sign {text[at]!r} isn't understood")


def _number(text: str, at: int, *, grouped: bool) -> tuple[Token, int]:
    match = _NUMBER.match(text, at)
    if match and match["group"] and not grouped and re.search("[, ]", match["group"]):
        match = _UNGROUPED.match(text, at)
        assert match is not None
        return Token("number", "plain", Fraction(match[0])), match.end()
    if match is None or match.end() - at > MAX_DIGITS:
        raise Unreadable("a number can't be read or has too many digits")
    if match["group"]:
        digits = re.sub("[,\ue000 ]", "", match["group"]) + (match["tail"] or "")
        return Token("number", "decimal" if match["tail"] else "plain", Fraction(digits)), match.end()
    if cycle := match["cycle"] or match["cycle2"]:
        head = match["head"] if match["cycle2"] else (match["whole"] or "0") + "."
        return Token("number", "cycle", _repeating(head, cycle)), match.end()
    value = Fraction(match["plain"].rstrip(".") + (match["exp"] or ""))
    notation = "decimal" if "." in match["plain"].rstrip(".") or match["exp"] else "plain"
    return Token("number", notation, value), match.end()


def _repeating(head: str, cycle: str) -> Fraction:
    places = len(head.partition(".")[2])
    start = Fraction(head.rstrip(".") or 0)
    return start + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**places)


def _command(text: str, at: int) -> tuple[Token, int]:
    match = _COMMAND.match(text, at)
    if match is None:
        raise Unreadable("a backslash stands alone")
    board, edge, environment, name, sign = match.groups()
    if board:
        return Token("command", f"\\mathbb{board}"), match.end()
    if edge:
        return Token("command", f"\\{edge}:{environment.rstrip('*')}"), match.end()
    if name:
        return Token("command", f"\\{name}"), match.end()
    if sign == "\\":
        return Token("command", "\\\\"), match.end()
    if sign in "{}%$#&_|":
        return Token("sign", {"{": "\\{", "}": "\\}", "|": "|"}.get(sign, sign)), match.end()
    raise Unreadable(f"\\{sign} isn't understood")
