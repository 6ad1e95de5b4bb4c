"""From an answer's text to what it is: a number with its unit, an expression, a list, a set, a region, an equation.

Invariants: the whole text is read or `Unreadable` is raised; a pair in round brackets stays a pair, since only the
reference or the task knows whether an interval or a point is meant. Left out: comparing (`compare`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from . import units
from .grammar import Expr, letters, neg, parse
from .regions import INFINITY, Piece, both, ray, without
from .tidy import bare, tidy
from .tokens import Token, Unreadable, tokens


class Scalar(NamedTuple):
    """A number or an expression."""

    expr: Expr
    unit: units.Unit | None = None


class Items(NamedTuple):
    """Several values; a 'list' is one without brackets."""

    kind: Literal["set", "tuple", "list", "ratio"]
    items: tuple[Value, ...]


class Based(NamedTuple):
    """Digits in a base: 1010_2."""

    digits: str
    base: int


class Region(NamedTuple):
    """A set of real numbers."""

    pieces: tuple[Piece, ...]


class Assigned(NamedTuple):
    """A letter or a function's head, and what it is."""

    name: str
    value: Value


class Relation(NamedTuple):
    """An equation, or an inequality of several letters."""

    sign: str
    left: Expr
    right: Expr


Value = Scalar | Items | Based | Region | Assigned | Relation
_SIGNS = frozenset({"=", "<", ">", "\\le", "\\ge", "\\ne", "\\in", "\\approx", "\\to", "\\equiv"})
_OPEN = frozenset({"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"})
_CLOSE = frozenset({")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"})
_BASED = re.compile(r"\(?([0-9][0-9A-Fa-f]*|[A-Fa-f]+[0-9][0-9A-Fa-f]*)\)?\s*_\s*\{?\s*([0-9]{1,2})\s*\}?")
_TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


def read(text: str, *, scalar: bool = True, eager: bool = False) -> Value:
    """What the text says. `scalar`: one number is expected; `eager`: a unit is. Unreadable."""
    text = bare(text)
    if (based := _BASED.fullmatch(tidy(text))) and 2 <= int(based[2]) <= 36:
        return Based(based[1].upper(), int(based[2]))
    words = tokens(text, scalar=scalar)
    while words and words[-1].text in (".", ",", ";"):
        words.pop()
    if not words:
        raise Unreadable("there is nothing to read")
    return _Reader(eager).value(words)


class _Reader:
    def __init__(self, eager: bool) -> None:
        self.eager = eager

    def value(self, words: list[Token], depth: int = 0) -> Value:
        if depth > 12:
            raise Unreadable("the answer is nested too deep")
        if not words:
            raise Unreadable("a part is missing")

        def inner(part: list[Token]) -> Value:
            return self.value(part, depth + 1)

        texts = [word.text for word in words]
        if texts in (["\\emptyset"], ["\\{", "\\}"], ["no", "solution"], ["no", "solutions"], ["none"]):
            return Items("set", ())
        if texts in (["\\mathbbR"], ["all", "real", "numbers"]):
            return Region((Piece(neg(INFINITY), False, INFINITY, False),))
        if french := self._french(words):
            return french
        alternatives = cut(words, lambda text: text == "or")
        if len(alternatives) > 1:
            return _union([inner(part) for part in alternatives])
        if any(sign in texts for sign in ("\\cup", "\\setminus", "U")) and (joined := self._joined(words, inner)):
            return joined
        parts = cut(words, lambda text: text in (",", ";", "and"))
        if len(parts) > 1:
            return _list([inner(part) for part in parts if part], "and" in texts)
        if self._around(words, "\\{", "\\}"):
            return self._set(words[1:-1], inner)
        parts = cut(words, lambda text: text == ":")
        if len(parts) > 1:
            return Items("ratio", tuple(inner(part) for part in parts))
        return self._bracketed(words, inner) or self._related(words, inner) or self._scalar(words)

    def _around(self, words: list[Token], opened: str, closed: str) -> bool:
        return words[0].text == opened and words[-1].text == closed and _partner(words) == len(words) - 1

    def _french(self, words: list[Token]) -> Value | None:
        """]1, 2[ and its half-open kin."""
        if (
            words[0].text not in "][("
            or words[-1].text not in "][)"
            or (words[0].text != "]" and words[-1].text != "[")
        ):
            return None
        ends = cut(words[1:-1], lambda text: text in (",", ";"))
        if len(ends) != 2:
            return None
        return Region((Piece(self._real(ends[0]), words[0].text == "[", self._real(ends[1]), words[-1].text == "]"),))

    def _real(self, words: list[Token]) -> Expr:
        expr = parse(words)
        if letters(expr):
            raise Unreadable("an end of an interval isn't a number")
        return expr

    def _joined(self, words: list[Token], inner: Callable[[list[Token]], Value]) -> Value | None:
        parts = cut(words, lambda text: text in ("\\cup", "\\setminus", "U"))
        if len(parts) < 2:
            return None
        signs = [word.text for word in _top(words) if word.text in ("\\cup", "\\setminus", "U")]
        found = pieces_of(inner(parts[0]))
        for sign, part in zip(signs, parts[1:], strict=True):
            other = pieces_of(inner(part))
            if sign != "\\setminus":
                found = [*found, *other]
            elif all(piece.low == piece.high for piece in other):
                found = without(found, [piece.low for piece in other])
            else:
                raise Unreadable("only points can be taken out of a set")
        return Region(tuple(found))

    def _set(self, words: list[Token], inner: Callable[[list[Token]], Value]) -> Value:
        for bar in ("\\mid", "|", ":"):
            parts = cut(words, lambda text, bar=bar: text == bar)  # type: ignore[misc]
            if len(parts) == 2 and parts[0] and parts[0][0].kind == "name":
                return inner(parts[1])
        found = inner(words) if words else Items("set", ())
        if isinstance(found, Items) and found.kind == "list":
            return Items("set", found.items)
        return Items("set", (found,))

    def _bracketed(self, words: list[Token], inner: Callable[[list[Token]], Value]) -> Value | None:
        """Tuples, intervals, and sets or matrices in other brackets."""
        first, last = words[0].text, words[-1].text
        if first.startswith("\\begin:") and last == first.replace("begin", "end"):
            return self._matrix(words[1:-1], first, inner)
        if first not in ("(", "[", "{", "\\langle") or last not in (")", "]", "}", "\\rangle"):
            return None
        if _partner(words) != len(words) - 1:
            return None
        parts = cut(words[1:-1], lambda text: text in (",", ";"))
        if len(parts) < 2:
            return None
        if first == "{":
            return Items("set", tuple(inner(part) for part in parts))
        if len(parts) == 2 and first in "([" and (first + last != "()" or self._infinite(parts)):
            return Region((Piece(self._real(parts[0]), first == "[", self._real(parts[1]), last == "]"),))
        return Items("tuple", tuple(inner(part) for part in parts))

    def _infinite(self, parts: list[list[Token]]) -> bool:
        return any(word.text in ("\\infty", "infty", "inf", "infinity", "oo") for part in parts for word in part)

    def _matrix(self, words: list[Token], first: str, inner: Callable[[list[Token]], Value]) -> Value:
        if first not in ("\\begin:pmatrix", "\\begin:bmatrix", "\\begin:matrix"):
            raise Unreadable(f"{first[7:]} isn't understood")
        rows = [cut(row, lambda text: text == "&") for row in cut(words, lambda text: text == "\\\\") if row]
        if all(len(row) == 1 for row in rows) or len(rows) == 1:
            return Items("tuple", tuple(inner(cell) for row in rows for cell in row))
        return Items("tuple", tuple(Items("tuple", tuple(inner(cell) for cell in row)) for row in rows))

    def _related(self, words: list[Token], inner: Callable[[list[Token]], Value]) -> Value | None:
        parts = cut(words, lambda text: text in _SIGNS)
        signs = [word.text for word in _top(words) if word.text in _SIGNS]
        if not signs:
            return None
        if signs[0] in ("\\in", "\\to"):
            if len(signs) > 1 or _head(parts[0]) is None:
                raise Unreadable("what is in the set isn't a letter")
            return inner(parts[1]) if signs[0] == "\\in" else Assigned(_head(parts[0]) or "", inner(parts[1]))
        if set(signs) <= {"=", "\\approx", "\\equiv"}:
            return self._equal(parts, inner)
        return _ordered(signs, [parse(part) for part in parts])

    def _equal(self, parts: list[list[Token]], inner: Callable[[list[Token]], Value]) -> Value:
        head = _head(parts[0])
        if head is not None:
            value = inner(parts[-1])
            if len(head) > 1 or not (isinstance(value, Scalar) and letters(value.expr)):
                return Assigned(head, value)
        left, right = parse(parts[0]), parse(parts[-1])
        if len(parts) > 2 or not (letters(left) or letters(right)):  # a chain, or a computation: what stands last
            return inner(parts[-1]) if not letters(left) else Assigned("", inner(parts[-1]))
        return Relation("=", left, right)

    def _scalar(self, words: list[Token]) -> Value:
        rest, unit = units.split(words, eager=self.eager)
        expr = parse(rest)
        if _has_sign(expr):
            return Items("set", tuple(Scalar(one, unit) for one in _signed(expr)))
        return Scalar(expr, unit)


def cut(words: Sequence[Token], at: Callable[[str], bool]) -> list[list[Token]]:
    """The words between separators that stand in no bracket."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for word in words:
        depth += (word.text in _OPEN or word.text.startswith("\\begin:")) - (
            word.text in _CLOSE or word.text.startswith("\\end:")
        )
        if not depth and at(word.text):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _top(words: Sequence[Token]) -> list[Token]:
    """The words that stand in no bracket."""
    found, depth = [], 0
    for word in words:
        depth -= word.text in _CLOSE or word.text.startswith("\\end:")
        if not depth:
            found.append(word)
        depth += word.text in _OPEN or word.text.startswith("\\begin:")
    return found


def _partner(words: Sequence[Token]) -> int:
    """Where the first bracket is closed."""
    depth = 0
    for place, word in enumerate(words):
        depth += (word.text in _OPEN) - (word.text in _CLOSE)
        if not depth:
            return place
    return -1


def _head(words: Sequence[Token]) -> str | None:
    """'x', 'x_1' or 'f(x)' in front of an equals sign; None for anything else."""
    words = [word for word in words if word.text != "'"]
    if _derivative(words):
        return "d/dx"
    shape = "".join("n" if word.kind == "name" and len(word.text) == 1 else word.text for word in words)
    if shape == "n" or (shape.startswith("n_") and len(words) <= 5 and "(" not in shape):
        return "".join(word.text if word.kind != "number" else str(word.value) for word in words).strip()
    if len(words) == 4 and shape[:2] == "n(" and words[2].kind in ("name", "number"):
        return f"{words[0].text}({words[2].text})"
    if len(words) == 1 and words[0].kind == "command" and words[0].text.isascii() and words[0].text[1:].isalpha():
        return words[0].text[1:]
    return None


def _derivative(words: Sequence[Token]) -> bool:
    """dy/dx, written with a fraction or a slash."""
    letters_only = "".join(word.text for word in words if word.text not in "{}")
    return re.fullmatch(r"d[a-z]/d[a-z]|\\fracd[a-z]?d[a-z]", letters_only) is not None


def _ordered(signs: list[str], parts: list[Expr]) -> Value:
    """A chain of inequalities: a region when one letter stands alone in it."""
    alone = [place for place, part in enumerate(parts) if part[0] == "v"]
    others = [part for place, part in enumerate(parts) if place not in alone]
    if len(alone) != 1 or any(letters(part) for part in others):
        if len(parts) != 2:
            raise Unreadable("a chain of inequalities isn't understood")
        return Relation(signs[0], parts[0], parts[1])
    place = alone[0]
    found = [Piece(neg(INFINITY), False, INFINITY, False)]
    for number, sign in enumerate(signs):
        if number not in (place - 1, place):
            raise Unreadable("a chain of inequalities isn't understood")
        end = parts[number] if number < place else parts[number + 1]
        found = both(found, ray(_TURNED.get(sign, sign) if number < place else sign, end))
    return Region(tuple(found))


def _union(values: list[Value]) -> Value:
    if all(isinstance(value, Region) for value in values):
        return Region(tuple(piece for value in values for piece in pieces_of(value)))
    if any(isinstance(value, Region) for value in values):
        return Region(tuple(piece for value in values for piece in pieces_of(value)))
    names = {value.name for value in values if isinstance(value, Assigned)}
    if len(names) == 1:  # 'x = 1 or 2' and 'x = 1 or x = 2'
        values = [value.value if isinstance(value, Assigned) else value for value in values]
    return Items("list", tuple(values))


def _list(values: list[Value], conjunction: bool) -> Value:
    if conjunction and all(isinstance(value, Region) for value in values):
        found = pieces_of(values[0])
        for value in values[1:]:
            found = both(found, pieces_of(value))
        return Region(tuple(found))
    names = [value.name for value in values if isinstance(value, Assigned)]
    if isinstance(values[0], Assigned) and len(set(names)) == 1:  # 'x = 1, 2' and 'x = 1, x = 2'
        values = [value.value if isinstance(value, Assigned) else value for value in values]
    elif len(names) == len(values) and len(set(names)) == len(names):  # 'x = 1, y = 2' is the point (1, 2)
        ordered = sorted((value for value in values if isinstance(value, Assigned)), key=lambda one: one.name)
        return Items("tuple", tuple(one.value for one in ordered))
    return Items("list", tuple(values))


def pieces_of(value: Value) -> list[Piece]:
    """A value as a region. Unreadable: it's none."""
    match value:
        case Region(pieces):
            return list(pieces)
        case Items("set" | "list", items):
            return [piece for item in items for piece in pieces_of(item)]
        case Assigned(_, inner):
            return pieces_of(inner)
        case Items("tuple", (Scalar(low, None), Scalar(high, None))):
            return [Piece(low, False, high, False)]
        case Scalar(expr, None) if not letters(expr):
            return [Piece(expr, True, expr, True)]
    raise Unreadable("it's no set of real numbers")


def _has_sign(expr: Expr) -> bool:
    return expr[0] == "pm" or any(_has_sign(part) for part in expr[1:] if isinstance(part, tuple))


def _signed(expr: Expr) -> tuple[Expr, Expr]:
    """Both values behind plus-minus signs, which all go together."""

    def chosen(part: Expr, plus: bool) -> Expr:
        if part[0] == "pm":
            right = chosen(part[2], plus)
            return ("+", chosen(part[1], plus), right if plus else neg(right))
        return tuple(chosen(one, plus) if isinstance(one, tuple) else one for one in part)

    return chosen(expr, True), chosen(expr, False)


__all__ = ["Assigned", "Based", "Items", "Region", "Relation", "Scalar", "Value", "cut", "pieces_of", "read"]
