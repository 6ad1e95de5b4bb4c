"""One check, as the child of `limits` makes it: reference and answer are read, compared, and their form looked at.

`check` takes and returns plain values. What it says: 'accept', 'reject', 'broken' (the reference can't be read),
'unsure' (too few values in common to tell). Invariant: the reference is read first, and what it is decides how the
answer is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from . import forms, numeric
from .compare import Rules, same
from .data import Options
from .grammar import letters
from .reading import Assigned, Items, Region, Relation, Scalar, Value, pieces_of, read
from .tidy import bare
from .tokens import Unreadable
from .units import DEGREE, PERCENT, of_text

_NOTHING = frozenset({"none", "null", "nan", "n/a", "na", "tbd", "tba", "unknown", "?"})
"""What stands where a reference is missing."""


class Broken(ValueError):
    """The reference can't be judged by."""


class Said(NamedTuple):
    """What a check found."""

    verdict: str
    reason: str = ""
    variables: bool = False
    """Were expressions with variables compared?"""


def check(request: dict[str, Any]) -> dict[str, Any]:
    """`answer`: the reference; `options`: those of the kind; `found`: places of an answer, the surest first."""
    options = msgspec.convert(request["options"], Options)
    try:
        right = reference(request["answer"], options)
        said = _check(right, request["found"], options)
    except Broken as err:
        said = Said("broken", str(err))
    return said._asdict()


def _check(right: Value, found: list[str], options: Options) -> Said:
    reasons = []
    for text in found:
        try:
            got = read(text, scalar=isinstance(right, Scalar), eager=_has_unit(right))
        except Unreadable as err:
            reasons.append(f"the answer {text[:60]!r} can't be read: {err}")
            continue
        return judged(right, got, options)
    return Said("reject", reasons[0] if reasons else "there is no answer")


def judged(right: Value, got: Value, options: Options) -> Said:
    variables = speaks_of_variables(right)
    try:
        if not same(right, got, rules_of(options)):
            return Said("reject", "the answer differs from the reference", variables)
    except (numeric.TooLarge, Unreadable) as err:
        return Said("reject", f"the answer can't be compared: {err}")
    except numeric.Undefined as err:
        return Said("unsure" if variables and "in common" in str(err) else "reject", str(err))
    wrong = forms.wrong(right, got, options)
    return Said("reject" if wrong else "accept", wrong, variables)


def rules_of(options: Options) -> Rules:
    unit = options.unit.strip()
    if unit in PERCENT or unit in DEGREE:
        return Rules(options.tolerance, options.places, "percent" if unit in PERCENT else "degree")
    asked = of_text(unit) if unit else None
    if unit and asked is None:
        raise Broken(f"the unit {unit[:60]!r} isn't known")
    return Rules(options.tolerance, options.places, unit, asked)


def reference(text: str, options: Options) -> Value:
    """What the reference says, as the type that the options name. Broken."""
    scalar = options.type not in ("set", "tuple", "interval")
    if bare(text).lower() in _NOTHING:
        raise Broken(f"the reference {text[:80]!r} says that there is none")
    try:
        found = read(text, scalar=scalar)
        right = _typed(found, options)
        if isinstance(right, Scalar) and not letters(right.expr) and not _infinite(right):
            numeric.evaluate(right.expr, {})
        rules_of(options)
    except (Unreadable, numeric.TooLarge, numeric.Undefined) as err:
        raise Broken(f"the reference {text[:80]!r} can't be read: {err}") from err
    return right


def _infinite(right: Scalar) -> bool:
    return ("c", "oo") in (right.expr, right.expr[-1])


def _typed(found: Value, options: Options) -> Value:
    kind = options.type
    if kind == "interval":
        return Region(tuple(pieces_of(found)))
    if kind == "set":
        if isinstance(found, Items):
            return Items("set", found.items)
        return found if isinstance(found, Region) else Items("set", (found,))
    if kind == "tuple" and not (isinstance(found, Items) and found.kind != "set"):
        raise Unreadable("it's no tuple")
    if kind == "equation" and not isinstance(found, Relation | Assigned):
        raise Unreadable("it's no equation")
    if kind in ("number", "integer", "decimal", "fraction"):
        return _number(found, kind)
    if kind == "expression" and not isinstance(found, Scalar | Assigned):
        raise Unreadable("it's no expression")
    return found


def _number(found: Value, kind: str) -> Value:
    value = found.value if isinstance(found, Assigned) else found
    if not isinstance(value, Scalar) or letters(value.expr):
        raise Unreadable("it's no number")
    whole = numeric.exact(value.expr)
    if kind == "integer" and (whole is None or whole.denominator != 1):
        raise Unreadable("it's no integer")
    return found


def _has_unit(value: Value) -> bool:
    match value:
        case Scalar(_, unit):
            return unit is not None
        case Assigned(_, inner):
            return _has_unit(inner)
        case Items(_, items):
            return any(map(_has_unit, items))
    return False


def speaks_of_variables(value: Value) -> bool:
    """Does it hold an expression with variables?"""
    match value:
        case Scalar(expr, _):
            return bool(letters(expr))
        case Assigned(_, inner):
            return speaks_of_variables(inner)
        case Items(_, items):
            return any(map(speaks_of_variables, items))
        case Relation():
            return True
    return False
