"""Is what the answer says the same as what the reference says?

The reference decides what is compared: values of numbers, functions of variables, members of sets, pieces of regions,
solution sets of equations. Invariants: a set is no tuple, a number with a unit is none without; numbers are exact
unless a tolerance is given. Left out: whether the notation is the one asked for (`forms`).
"""

from __future__ import annotations

from typing import NamedTuple

from . import regions
from .grammar import Expr, letters
from .numeric import exact, same_constant
from .points import minus, proportional, same_expression
from .reading import Assigned, Based, Items, Region, Relation, Scalar, Value, pieces_of
from .tokens import Unreadable
from .units import Unit


class Rules(NamedTuple):
    """How numbers are compared."""

    tolerance: float = 0.0
    places: int = -1
    unit: str = ""
    """'percent', 'degree' or the name of a unit: what a number without a unit is read in."""
    asked: Unit | None = None
    """That unit, when it is one."""


def same(right: Value, got: Value, rules: Rules) -> bool:
    """Is it? TooLarge, Undefined, Unreadable."""
    match right, got:
        case Based(), _:
            return _based(right, got)
        case Scalar(), Based(digits, _):
            return digits.isdigit() and exact(right.expr) == int(digits)
        case Items("ratio", _), _:
            return isinstance(got, Items) and got.kind == "ratio" and _in_order(right.items, got.items, rules)
        case Items(), _:
            return _items(right, got, rules)
        case Region(), _:
            return _region(right, got)
        case Relation(), _:
            return _relation(right, got)
        case Assigned(), Assigned():
            return right.name in (got.name, "") and same(right.value, got.value, rules)
        case Assigned(name, Scalar() as value), Relation():
            return len(name) == 1 and _relation(_as_relation(name, value), got)
        case Assigned(), _:
            return same(right.value, got, rules)
        case Scalar(), Scalar():
            return _scalars(right, got, rules)
        case Scalar(), Assigned():
            return got.name not in letters(right.expr) and same(right, got.value, rules)
        case Scalar(), Relation("=", ("v", name), value):
            return name not in letters(right.expr) and same(right, Scalar(value), rules)
        case Scalar(), Items("set", (only,)):
            return same(right, only, rules)
    return False


def _based(right: Based, got: Value) -> bool:
    """The same number in the same base; digits alone are taken to be in it."""
    if isinstance(got, Based):
        return right.base == got.base and right.digits.lstrip("0") == got.digits.lstrip("0")
    return isinstance(got, Scalar) and right.digits.isdigit() and exact(got.expr) == int(right.digits)


def _scalars(right: Scalar, got: Scalar, rules: Rules) -> bool:
    if not _same_unit(right, got, rules):
        return False
    a, b = _in_basic_units(right, rules), _in_basic_units(got, rules)
    if letters(a) or letters(b):
        return letters(a) == letters(b) and same_expression(a, b, rules.tolerance) if letters(a) else False
    return same_constant(a, b, rules.tolerance, _places(right, rules))


def _places(right: Scalar, rules: Rules) -> int:
    return rules.places if right.unit is None and not rules.asked else -1


def _same_unit(right: Scalar, got: Scalar, rules: Rules) -> bool:
    wanted, offered = right.unit or rules.asked, got.unit or rules.asked
    if wanted is None:
        return offered is None or rules.unit in ("", "percent", "degree")
    if wanted.noun:
        return offered is None or offered.dims == wanted.dims or (right.unit is None and offered.noun)
    return offered is not None and offered.dims == wanted.dims


def _in_basic_units(scalar: Scalar, rules: Rules) -> Expr:
    unit = scalar.unit or rules.asked
    if unit is not None and unit.factor != 1:
        return ("*", scalar.expr, ("n", unit.factor, "plain"))
    if rules.unit == "percent" and not _speaks(scalar.expr, "percent"):
        return ("/", scalar.expr, ("n", 100, "percent"))
    if rules.unit == "degree" and not _speaks(scalar.expr, "degree") and not _has_pi(scalar.expr):
        return ("/", ("*", scalar.expr, ("c", "pi")), ("n", 180, "degree"))
    return scalar.expr


def _speaks(expr: Expr, mark: str) -> bool:
    """Does the expression hold a percent or a degree sign?"""
    return (expr[0] == "n" and expr[2] == mark) or any(
        _speaks(part, mark) for part in expr[1:] if isinstance(part, tuple)
    )


def _has_pi(expr: Expr) -> bool:
    return expr == ("c", "pi") or any(_has_pi(part) for part in expr[1:] if isinstance(part, tuple))


def _items(right: Items, got: Value, rules: Rules) -> bool:
    if isinstance(got, Assigned) and not (
        right.kind == "tuple" and right.items and isinstance(right.items[0], Assigned)
    ):
        return _items(right, got.value, rules)
    if right.kind == "tuple":
        if isinstance(got, Region) and len(right.items) == 2:
            return _region(Region(tuple(pieces_of(right))), got)
        return isinstance(got, Items) and got.kind != "set" and _in_order(right.items, got.items, rules)
    if isinstance(got, Items) and got.kind == "tuple":
        return right.kind == "list" and _in_order(right.items, got.items, rules)
    if isinstance(got, Region):
        return _region(Region(tuple(pieces_of(right))), got)
    return _unordered(right.items, got.items if isinstance(got, Items) else (got,), rules)


def _in_order(right: tuple[Value, ...], got: tuple[Value, ...], rules: Rules) -> bool:
    return len(right) == len(got) and all(same(a, b, rules) for a, b in zip(right, got, strict=True))


def _unordered(right: tuple[Value, ...], got: tuple[Value, ...], rules: Rules) -> bool:
    """The same members, however often each is named."""
    if len(got) > 4 * len(right) + 4:
        return False
    found = [[same(a, b, rules) for a in right] for b in got]
    return all(map(any, found)) and all(any(row[place] for row in found) for place in range(len(right)))


def _region(right: Region, got: Value) -> bool:
    try:
        pieces = pieces_of(got)
    except Unreadable:
        return False
    return len(pieces) <= 4 * len(right.pieces) + 16 and regions.same(right.pieces, pieces)


def _as_relation(name: str, value: Scalar) -> Relation:
    return Relation("=", ("v", name), value.expr)


def _relation(right: Relation, got: Value) -> bool:
    if isinstance(got, Assigned) and isinstance(got.value, Scalar) and len(got.name) == 1:
        got = _as_relation(got.name, got.value)
    if not isinstance(got, Relation):
        return False
    a, b = _to_zero(right), _to_zero(got)
    if letters(a) != letters(b):
        return False
    if right.sign == "=" or got.sign == "=":
        return right.sign == got.sign and proportional(a, b)
    return _strict(right) == _strict(got) and proportional(a, b, positive=True)


def _to_zero(relation: Relation) -> Expr:
    """What must be 0, or below it."""
    if relation.sign in (">", "\\ge"):
        return minus(relation.right, relation.left)
    return minus(relation.left, relation.right)


def _strict(relation: Relation) -> str:
    return {">": "<", "\\ge": "\\le"}.get(relation.sign, relation.sign)
