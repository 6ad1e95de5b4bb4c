"""Is an answer in the notation or form that the question demands?

Each check says what is wrong in a few words, or nothing. Left out: whether the value is right (`compare`).
"""

from __future__ import annotations

import math

from .data import Options
from .grammar import Expr, letters
from .reading import Assigned, Items, Relation, Scalar, Value


def wrong(right: Value, got: Value, options: Options) -> str:
    """What is wrong with the answer's form; empty when nothing is."""
    if isinstance(got, Items):
        rights = right.items if isinstance(right, Items) else (right,)
        found = [
            wrong(rights[min(place, len(rights) - 1)] if rights else right, item, options)
            for place, item in enumerate(got.items)
        ]
        return next(filter(None, found), "")
    if options.form == "solved":
        solved = isinstance(got, Assigned) or (isinstance(got, Relation) and got.left[0] == "v")
        return "" if solved else "the equation isn't solved for a variable"
    if options.type == "equation" and not isinstance(got, Relation | Assigned):
        return "an equation is asked for"
    value = got.value if isinstance(got, Assigned) else got
    return _scalar(right, value.expr, options) if isinstance(value, Scalar) else ""


def _scalar(right: Value, expr: Expr, options: Options) -> str:
    plain = right.value if isinstance(right, Assigned) else right
    if options.literal and isinstance(plain, Scalar) and _is_number(plain.expr) and not is_literal(expr):
        return "a number written out is asked for, not something to compute"
    if options.type == "fraction" and any(notation in ("decimal", "cycle") for notation in _notations(expr)):
        return "a fraction is asked for, not a decimal number"
    if options.type == "decimal" and _is_quotient(expr):
        return "a decimal number is asked for, not a fraction"
    return _FORMS.get(options.form, _any)(plain, expr)


def _is_number(expr: Expr) -> bool:
    """Is it a plain number? An angle in degrees isn't: it may be written in terms of pi as well."""
    return is_literal(expr) and "degree" not in _notations(expr)


def _any(right: Value, expr: Expr) -> str:
    return ""


def is_literal(expr: Expr) -> bool:
    """A number as it is written: with a sign, a fraction, mixed, in scientific notation, in percent or in degrees."""
    head = expr[0]
    if head == "n":
        return True
    if head == "neg":
        return is_literal(expr[1])
    if head == "/":
        if expr[2][0] == "n" and expr[2][2] == "percent":
            return is_literal(expr[1])
        if expr[2][0] == "n" and expr[2][2] == "degree":
            return is_literal(expr[1][1])
        return _signed_number(expr[1]) and _signed_number(expr[2])
    if head == "+":  # mixed
        return (
            expr[1][0] == "n" and expr[1][2] == "plain" and expr[2][0] == "/" and is_literal(expr[2]) and _mixed(expr)
        )
    return head == "*" and _signed_number(expr[1]) and _power_of_ten(expr[2])


def _mixed(expr: Expr) -> bool:
    return bool(expr[2][1][0] == "n" and expr[2][2][0] == "n" and expr[2][1][1] < expr[2][2][1] != 100)


def _signed_number(expr: Expr) -> bool:
    return bool(expr[0] == "n" or (expr[0] == "neg" and expr[1][0] == "n"))


def _power_of_ten(expr: Expr) -> bool:
    return bool(expr[0] == "^" and expr[1][:2] == ("n", 10) and _signed_number(expr[2]))


def _notations(expr: Expr) -> set[str]:
    if expr[0] == "n":
        return {expr[2]}
    return set().union(*(_notations(part) for part in expr[1:] if isinstance(part, tuple)))


def _is_quotient(expr: Expr) -> bool:
    inner = expr[1] if expr[0] == "neg" else expr
    return inner[0] == "/" and not (inner[2][0] == "n" and inner[2][2] in ("percent", "degree"))


def _lowest(right: Value, expr: Expr) -> str:
    inner = expr[1] if expr[0] == "neg" else expr
    if inner[0] == "+":  # mixed
        inner = inner[2]
    if inner[0] == "n":
        return "" if inner[2] in ("plain", "percent") else "a fraction in lowest terms is asked for"
    if inner[0] == "/" and _signed_number(inner[1]) and _signed_number(inner[2]):
        top, bottom = (part[1] if part[0] == "n" else part[1][1] for part in inner[1:3])
        whole = top.denominator == 1 and bottom.denominator == 1
        if whole and math.gcd(int(top), int(bottom)) == 1 and bottom != 1:
            return ""
    return "the fraction isn't in lowest terms"


def _expanded(right: Value, expr: Expr) -> str:
    return "the expression isn't expanded" if _has_product_of_sums(expr) else ""


def _has_product_of_sums(expr: Expr) -> bool:
    if expr[0] in ("*", "^") and any(_sums(part) for part in expr[1:]):
        return True
    return any(_has_product_of_sums(part) for part in expr[1:] if isinstance(part, tuple))


def _sums(expr: Expr) -> bool:
    inner = expr[1] if expr[0] == "neg" else expr
    return inner[0] == "+" and bool(letters(inner))


def _factored(right: Value, expr: Expr) -> str:
    wanted = _factors(right.expr) if isinstance(right, Scalar) else 1
    return "" if _factors(expr) >= wanted else "the expression isn't factored"


def _factors(expr: Expr) -> int:
    """Factors with a variable, powers counted as often as they multiply."""
    if not letters(expr):
        return 0
    if expr[0] == "neg":
        return _factors(expr[1])
    if expr[0] == "*":
        return _factors(expr[1]) + _factors(expr[2])
    if expr[0] == "/":
        return _factors(expr[1])
    if expr[0] == "^" and expr[2][0] == "n" and expr[2][1].denominator == 1 and 0 < expr[2][1] < 100:
        return _factors(expr[1]) * int(expr[2][1])
    return 1


def _simplified(right: Value, expr: Expr) -> str:
    """No more terms than the reference, nothing under a root that could stand before it, no degrees as radians."""
    if isinstance(right, Scalar) and _terms(expr) > _terms(right.expr):
        return "the terms can be joined"
    if isinstance(right, Scalar) and "degree" in _notations(expr) - _notations(right.expr):
        return "degrees aren't asked for"
    return "a root can be simplified" if _reducible(expr) else ""


def _terms(expr: Expr) -> int:
    return int(expr[0] == "+") + sum(_terms(part) for part in expr[1:] if isinstance(part, tuple))


def _reducible(expr: Expr) -> bool:
    if expr[:2] == ("f", "sqrt"):
        inside = expr[2]
        if inside[0] != "n" or inside[1].denominator != 1 or inside[1] > 1_000_000:
            return True
        return any(inside[1] % (root * root) == 0 for root in range(2, math.isqrt(int(inside[1])) + 1))
    return any(_reducible(part) for part in expr[1:] if isinstance(part, tuple))


def _percent(right: Value, expr: Expr) -> str:
    return "" if "percent" in _notations(expr) else "a percent sign is asked for"


_FORMS = {
    "lowest": _lowest,
    "expanded": _expanded,
    "factored": _factored,
    "simplified": _simplified,
    "percent": _percent,
}
