"""Comparing expressions with variables at points that never change.

Two expressions are the same when they agree at `ENOUGH` points, some of them negative, where both have real values (or
complex ones, where they speak of i). One point where they differ is proof that they aren't. Two equations are the same
when the one side minus the other differs by a factor that is the same at all points.
Left out: expressions that are defined nowhere in common can't be compared (`Undefined`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpmath import mp

from .grammar import Expr, letters, neg
from .numeric import TooLarge, Undefined, agree, evaluate

ENOUGH, TRIED = 4, 24
_STEPS = (0.7548776662466927, 0.5698402909980532, 0.8191725133961645, 0.6710436067037893, 0.5497004779019703)


def points(names: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Points with irrational-looking coordinates: first between 0 and 4, every third between -3 and 3."""
    for number in range(1, TRIED + 1):
        where = {}
        for place, name in enumerate(sorted(names)):
            share = (number * _STEPS[place % 5] + 0.137 * (place + 1)) % 1.0
            low, high = (-3.0, 3.0) if number % 3 == 0 else (0.05, 4.0)
            where[name] = mp.mpf(low + share * (high - low))
        yield where


def same_expression(left: Expr, right: Expr, tolerance: float = 0.0) -> bool:
    """Are both the same function of their variables? Undefined: too few points to tell. TooLarge."""
    counted, missing = 0, 0
    for x, y in _both(left, right):
        if y is None:
            missing += 1
        elif not agree(x, y) and not (tolerance and abs(x - y) <= tolerance * abs(x)):
            return False
        else:
            counted += 1
        if counted == ENOUGH:
            return True
    if missing >= ENOUGH:  # the answer has no value where the reference has one
        return False
    raise Undefined("the expressions have too few values in common")


def proportional(left: Expr, right: Expr, *, positive: bool = False) -> bool:
    """Is `right` a constant times `left`, the constant not 0 (and above 0 with `positive`)? Undefined, TooLarge."""
    ratio: Any = None
    counted = 0
    for x, y in _both(left, right):
        if y is None:
            continue
        if x == 0 or y == 0:
            if x != y:
                return False
            continue
        if ratio is None:
            ratio = x / y
        elif not agree(ratio, x / y, 30):
            return False
        counted += 1
        if counted == ENOUGH:
            return not positive or bool(mp.im(ratio) == 0 and mp.re(ratio) > 0)
    raise Undefined("the equations have too few values in common")


def _both(left: Expr, right: Expr) -> Iterator[tuple[Any, Any]]:
    """The values of both at the points where the left one has any, real ones unless i is spoken of; None for a
    value that the right one doesn't have."""
    names, complex_too = letters(left) | letters(right), _speaks_of_i(left) or _speaks_of_i(right)
    large = 0
    for where in points(names):
        try:
            x, y = evaluate(left, where), _or_none(right, where)
        except Undefined:
            continue
        except TooLarge:
            large += 1
            if large > 3:
                raise
            continue
        if mp.isfinite(x) and (complex_too or mp.im(x) == 0):
            if y is None:
                yield x, None
            elif mp.isfinite(y) and (complex_too or mp.im(y) == 0):
                yield x, y


def _or_none(expr: Expr, where: dict[str, Any]) -> Any:
    try:
        return evaluate(expr, where)
    except Undefined:
        return None


def _speaks_of_i(expr: Expr) -> bool:
    return expr == ("c", "i") or any(_speaks_of_i(part) for part in expr[1:] if isinstance(part, tuple))


def minus(left: Expr, right: Expr) -> Expr:
    return ("+", left, neg(right))
