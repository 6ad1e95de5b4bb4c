"""Sets of real numbers as pieces: intervals, rays, points.

Invariant: two regions are equal when their pieces, put in order and joined, have equal ends of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import NamedTuple

from mpmath import mp

from .grammar import Expr, neg
from .numeric import Undefined, evaluate, same_constant

INFINITY: Expr = ("c", "oo")


class Piece(NamedTuple):
    """All numbers between two ends."""

    low: Expr
    low_in: bool
    high: Expr
    high_in: bool


def ray(sign: str, end: Expr) -> list[Piece]:
    """The numbers x with `x sign end`."""
    match sign:
        case "<" | "\\le":
            return [Piece(neg(INFINITY), False, end, sign == "\\le")]
        case ">" | "\\ge":
            return [Piece(end, sign == "\\ge", INFINITY, False)]
        case "\\ne":
            return [Piece(neg(INFINITY), False, end, False), Piece(end, False, INFINITY, False)]
    return [Piece(end, True, end, True)]


def compare(left: Expr, right: Expr) -> int:
    """-1, 0 or 1 as `left` is below, at or above `right`."""
    if same_constant(left, right):
        return 0
    x, y = evaluate(left, {}), evaluate(right, {})
    if mp.im(x) or mp.im(y):
        raise Undefined("an end isn't real")
    return -1 if x < y else 1


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces in order, without empty ones, those that touch joined."""
    full = [piece for piece in pieces if _full(piece)]
    full.sort(key=cmp_to_key(_order))
    found: list[Piece] = []
    for piece in full:
        if found:
            last = found[-1]
            gap = compare(last.high, piece.low)
            if gap > 0 or (gap == 0 and (last.high_in or piece.low_in)):
                found[-1] = _with_high(last, piece)
                continue
        found.append(piece)
    return found


def _full(piece: Piece) -> bool:
    order = compare(piece.low, piece.high)
    return order < 0 or (order == 0 and piece.low_in and piece.high_in)


def _order(left: Piece, right: Piece) -> int:
    return compare(left.low, right.low) or right.low_in - left.low_in


def _with_high(last: Piece, piece: Piece) -> Piece:
    order = compare(last.high, piece.high)
    if order > 0:
        return last
    return last._replace(high=piece.high, high_in=piece.high_in or (order == 0 and last.high_in))


def both(left: Sequence[Piece], right: Sequence[Piece]) -> list[Piece]:
    """What lies in both regions."""
    return [_common(one, other) for one in left for other in right]


def _common(one: Piece, other: Piece) -> Piece:
    low, high = compare(one.low, other.low), compare(one.high, other.high)
    lowest = one if low > 0 else other
    highest = one if high < 0 else other
    return Piece(
        lowest.low,
        (one.low_in and other.low_in) if not low else lowest.low_in,
        highest.high,
        (one.high_in and other.high_in) if not high else highest.high_in,
    )


def same(left: Sequence[Piece], right: Sequence[Piece]) -> bool:
    """Are the regions equal?"""
    a, b = joined(left), joined(right)
    return len(a) == len(b) and all(
        one.low_in == other.low_in
        and one.high_in == other.high_in
        and same_constant(one.low, other.low)
        and same_constant(one.high, other.high)
        for one, other in zip(a, b, strict=True)
    )


def without(pieces: Sequence[Piece], ends: Sequence[Expr]) -> list[Piece]:
    """The region without some points."""
    found = list(pieces)
    for end in ends:
        found = both(found, ray("\\ne", end))
    return found
