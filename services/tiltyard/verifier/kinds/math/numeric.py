"""The value of an expression, exactly where it is rational and else to many digits.

Invariants: sizes are bounded before anything is computed (`TooLarge`), so no expression takes long or grows; two
constants count as equal when they agree to `DIGITS` digits, or when their difference vanishes with the precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath
from mpmath import mp

from .grammar import Expr
from .tokens import Unreadable

DIGITS, FINE = 50, 400
"""Digits of a first and of a second look."""
MAX_BITS = 16_384
MAX_LOG = 1 << 36
"""Of a magnitude's binary logarithm."""
MAX_ANGLE = 1 << 12
"""Bits of an angle: a trigonometric function must know all of them."""


class TooLarge(ValueError):
    """A number is too large to be compared."""


class Undefined(ValueError):
    """The expression has no value here."""


def exact(expr: Expr) -> Fraction | None:
    """The value of a rational constant; None when it isn't found to be one. TooLarge; Undefined: a division by 0."""
    head = expr[0]
    if head == "n":
        return Fraction(expr[1])
    if head not in ("+", "*", "/", "^", "neg", "!"):
        return None
    parts = [exact(part) for part in expr[1:]]
    if any(part is None for part in parts):
        return None
    left, right = parts[0], parts[-1]
    assert left is not None
    assert right is not None
    return _small(_exact(head, left, right))


def _exact(head: str, left: Fraction, right: Fraction) -> Fraction | None:
    if head == "^":
        return _power(left, right)
    if head == "!":
        return Fraction(math.factorial(int(left))) if left.denominator == 1 and 0 <= left <= 500 else None
    if head == "/" and not right:
        raise Undefined("a division by 0")
    match head:
        case "+":
            return left + right
        case "*":
            return left * right
        case "/":
            return left / right
    return -left


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return None
    if not base and exponent <= 0:
        raise Undefined("0 to a power that isn't positive")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return base ** int(exponent) if bits * abs(exponent) <= MAX_BITS or base in (0, 1, -1) else None


def _small(value: Fraction | None) -> Fraction | None:
    if value is not None and max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        return None
    return value


def evaluate(expr: Expr, where: Mapping[str, Any], digits: int = DIGITS) -> Any:
    """The value as a number of mpmath, where variables have values. TooLarge, Undefined, Unreadable."""
    with mp.workdps(digits + 10):
        try:
            return _value(expr, where)
        except (ZeroDivisionError, ValueError, TypeError, OverflowError, mpmath.libmp.NoConvergence) as err:
            if isinstance(err, TooLarge | Undefined | Unreadable):
                raise
            raise Undefined(str(err)[:80]) from err


def _value(expr: Expr, where: Mapping[str, Any]) -> Any:
    head = expr[0]
    if head == "n":
        return mp.mpf(expr[1].numerator) / expr[1].denominator if isinstance(expr[1], Fraction) else mp.mpf(expr[1])
    if head == "c":
        return {"pi": mp.pi, "e": mp.e, "i": mp.mpc(0, 1), "oo": mp.inf}[expr[1]] + 0
    if head == "v":
        return where[expr[1]]
    if head == "f":
        return _checked(_function(expr[1], [_value(part, where) for part in expr[2:]]))
    if head == "pm":
        raise Unreadable("a plus-minus sign stands for two values")
    parts = [_value(part, where) for part in expr[1:]]
    return _checked(_operated(head, parts[0], parts[-1]))


def _operated(head: str, left: Any, right: Any) -> Any:
    match head:
        case "+":
            return left + right
        case "*":
            return left * right
        case "/":
            if right == 0:
                raise Undefined("a division by 0")
            return left / right
        case "^":
            return _raised(left, right)
        case "!":
            if abs(left) > 1 << 20:
                raise TooLarge("a factorial is too large")
            return mp.factorial(left)
    return -left


def _raised(base: Any, exponent: Any) -> Any:
    if base == 0:
        if mp.re(exponent) <= 0:
            raise Undefined("0 to a power that isn't positive")
        return mp.mpf(0)
    if mp.isinf(base) or mp.isinf(exponent):
        raise Undefined("a power of infinity")
    if _log2(base) * abs(exponent) > MAX_LOG:
        raise TooLarge("a power is too large")
    return mp.power(base, exponent)


def _log2(value: Any) -> Any:
    return abs(mp.mag(value)) + 1


def _checked(value: Any) -> Any:
    if mp.isnan(value):
        raise Undefined("no value")
    if mp.isinf(value) or value == 0:
        return value
    if abs(mp.mag(value)) > MAX_LOG:
        raise TooLarge("a number is too large")
    return value


def _function(name: str, args: list[Any]) -> Any:
    known = _FUNCTIONS.get(name)
    if known is None:
        raise Unreadable(f"the function {name} isn't understood")
    first = args[0]
    if name in ("sin", "cos", "tan", "cot", "sec", "csc") and mp.mag(first) > MAX_ANGLE:
        raise TooLarge("an angle is too large")
    if name in ("exp", "sinh", "cosh", "tanh") and abs(first) > MAX_LOG:
        raise TooLarge("an exponential is too large")
    if name in ("floor", "ceil", "binom", "gcd", "lcm") and any(mp.mag(arg) > 4096 for arg in args):
        raise TooLarge(f"{name} of a large number")
    return known(*args)


def _log(value: Any, base: Any = None) -> Any:
    if value == 0:
        raise Undefined("the logarithm of 0")
    return mp.log(value) if base is None else mp.log(value) / mp.log(base)


def _root(value: Any, degree: Any) -> Any:
    if mp.im(value) == 0 and mp.re(value) < 0 and degree == int(mp.re(degree)) and int(mp.re(degree)) % 2:
        return -mp.power(-value, 1 / degree)  # the real root
    return _raised(value, 1 / degree)


def _whole(function: Callable[[int, int], int]) -> Callable[..., Any]:
    def of(*args: Any) -> Any:
        if any(mp.im(arg) or mp.re(arg) != int(mp.re(arg)) for arg in args) or len(args) < 2:
            raise Undefined("not of whole numbers")
        found = int(args[0].real)
        for arg in args[1:]:
            found = function(found, int(arg.real))
        return mp.mpf(found)

    return of


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "cot": mp.cot,
    "sec": mp.sec,
    "csc": mp.csc,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "ln": _log,
    "log": _log,
    "lg": lambda value: _log(value, mp.mpf(10)),
    "exp": mp.exp,
    "sqrt": mp.sqrt,
    "abs": abs,
    "floor": mp.floor,
    "cbrt": lambda value: _root(value, mp.mpf(3)),
    "root": _root,
    "ceil": mp.ceil,
    "binom": lambda top, bottom: _binomial(top, bottom),
    "min": lambda *args: min(args),
    "max": lambda *args: max(args),
    "gcd": _whole(math.gcd),
    "lcm": _whole(math.lcm),
}


def _binomial(top: Any, bottom: Any) -> Any:
    if abs(top) > 1 << 20 or abs(bottom) > 1 << 20:
        raise TooLarge("a binomial is too large")
    return mp.binomial(top, bottom)


def same_constant(left: Expr, right: Expr, tolerance: float = 0.0, places: int = -1) -> bool:
    """Have two constants one value, or one within the tolerance? TooLarge, Undefined, Unreadable."""
    a, b = exact(left), exact(right)
    if a is not None and b is not None:
        return a == b or _near(a, b, tolerance, places)
    x, y = evaluate(left, {}), evaluate(right, {})
    if mp.isinf(x) or mp.isinf(y):
        return bool(x == y)
    if agree(x, y) or _near(x, y, tolerance, places):
        return True
    with mp.workdps(FINE):
        coarse, fine = abs(x - y), abs(evaluate(left, {}, FINE) - evaluate(right, {}, FINE))
        return bool(coarse < mp.mpf(10) ** -30 and fine < coarse * mp.mpf(10) ** (DIGITS - FINE // 2))


def _near(right: Any, got: Any, tolerance: float, places: int) -> bool:
    """Is `got` close enough to `right`?"""
    if tolerance > 0 and abs(right - got) <= _like(right, tolerance) * abs(right):
        return True
    return places >= 0 and bool(abs(right - got) <= _like(right, f"0.5e-{places}") * _like(right, "1.000000001"))


def _like(value: Any, number: float | str) -> Any:
    return Fraction(number) if isinstance(value, Fraction) else mp.mpf(number)


def agree(x: Any, y: Any, digits: int = DIGITS - 10) -> bool:
    """Are two values the same to so many digits?"""
    with mp.workdps(DIGITS + 10):
        return bool(x == y or abs(x - y) <= mp.mpf(10) ** -digits * max(abs(x), abs(y)))
