"""Comparing a value or rows with what is right.

Invariants: numbers by value with a tolerance for those that aren't integers; texts without regard to case and
spacing; rows as a multiset unless their order counts; a text is no number unless the whole of it is.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from tiltyard.verifier.kinds.base import BrokenTask, Unsure
from tiltyard.verifier.kinds.typed_values import amount, day, folded, is_null

from .data import Data, Options

MAX_ROWS = 2000
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}
Cell = Decimal | date | bool | str | None


def refuse(data: Data) -> None:
    """BrokenTask when the right value isn't of its type, or its rows are sorted by numbers written as texts."""
    for value in (data.value, *data.others):
        if data.type in ("list", "rows"):
            _check_rows(data, value)
        elif data.type != "null" and _typed(data.type, value, Options()) is None:
            raise BrokenTask(f"the reference {str(value)[:60]!r} is no {data.type}")
    if data.choose > len(data.tied):
        raise BrokenTask(f"{data.choose} of {len(data.tied)} tied rows can't be chosen")
    if data.sorted_by is not None and data.type == "rows":
        _check_sorting([row[data.sorted_by] for row in data.value])


def _check_rows(data: Data, value: Any) -> None:
    if not isinstance(value, list) or len(value) > MAX_ROWS:
        raise BrokenTask(f"the reference is no list of at most {MAX_ROWS}")
    if data.type == "rows":
        rows = [*value, *data.tied]
        if any(not isinstance(row, list) for row in rows) or len({len(row) for row in rows}) > 1:
            raise BrokenTask("the reference's rows aren't lists of the same length")


def _check_sorting(column: list[Any]) -> None:
    """Unsure when texts that are all numbers are sorted as texts."""
    numbers = [amount(cell) if isinstance(cell, str) else None for cell in column]
    known = [number for number in numbers if number is not None]
    if len(column) < 2 or len(known) < len(column):
        return
    if known not in (sorted(known), sorted(known, reverse=True)):
        raise Unsure("the rows are sorted by numbers that are stored as text, so their order isn't that of the numbers")


def same(data: Data, options: Options, got: Any) -> str:
    """Why `got` isn't right; empty when it is."""
    if data.type not in ("list", "rows"):
        return _same_value(data, options, got)
    rows = _rows(got, data.type)
    if isinstance(rows, str):
        return rows
    reasons = [_same_rows(data, options, rows, _listed(value, data.type)) for value in (data.value, *data.others)]
    return "" if "" in reasons else reasons[0]


def _same_value(data: Data, options: Options, got: Any) -> str:
    if data.type == "null":
        return "" if is_null(got) else "there is no answer in the data"
    given = None if isinstance(got, list | dict) else _typed(data.type, got, options)
    for value in (data.value, *data.others):
        if given is not None and _equal(given, _typed(data.type, value, Options()), options):
            return ""
    return f"the answer is {str(got)[:80]!r}, right is {str(data.value)[:80]!r}"


def _typed(kind: str, value: Any, options: Options) -> Cell:
    """A value read as its type; None when it isn't of it."""
    if kind in ("number", "integer"):
        number = amount(value, options.mark, options.unit)
        return number if number is None or kind == "number" or number == number.to_integral_value() else None
    if kind == "boolean":
        return value if isinstance(value, bool) else _TRUTH.get(folded(str(value)))
    if kind == "date":
        return day(str(value), options.order)
    return folded(value) or None if isinstance(value, str) else str(value) if value is not None else None


def _cell(value: Any) -> Cell:
    """A cell of a list or row: a number, a truth value, nothing, or a text (one that is a number counts as one)."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float | Decimal):
        return amount(value)
    if not isinstance(value, str):
        return f"\0{type(value).__name__}"
    number = amount(value) if any(char.isdigit() for char in value) else None
    return day(value) or (number if number is not None else folded(value))


def _equal(left: Cell, right: Cell, options: Options) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        if options.places >= 0:
            return abs(left - right) <= Decimal(10) ** -options.places / 2 + Decimal("1e-12")
        whole = left == left.to_integral_value() and right == right.to_integral_value()
        return left == right if whole else abs(left - right) <= Decimal(options.tolerance) * max(abs(left), abs(right))
    return type(left) is type(right) and left == right


# ------------------------------------------------------------ rows


def _rows(got: Any, kind: str) -> list[list[Any]] | str:
    if not isinstance(got, list):
        return "the answer isn't a list"
    if len(got) > MAX_ROWS:
        return f"the answer has more than {MAX_ROWS} rows"
    if kind == "rows":
        got = [list(row.values()) if isinstance(row, dict) else row for row in got]
        if any(not isinstance(row, list) for row in got):
            return "the answer isn't a list of rows"
    return _listed(got, kind)


def _listed(value: list[Any], kind: str) -> list[list[Any]]:
    return [list(row) for row in value] if kind == "rows" else [[cell] for cell in value]


def _same_rows(data: Data, options: Options, got: list[list[Any]], right: list[list[Any]]) -> str:
    rows, wanted = [[_cell(c) for c in row] for row in got], [[_cell(c) for c in row] for row in right]
    tied = [[_cell(c) for c in row] for row in _listed(list(data.tied), data.type)]
    if options.distinct:
        rows, wanted = _distinct(rows), _distinct(wanted)
    if len(rows) != len(wanted) + data.choose:
        return f"there are {len(rows)} rows, right are {len(wanted) + data.choose}"
    if options.ordered:
        first, rest = rows[: len(wanted)], rows[len(wanted) :]
        fits = all(_same_row(a, b, options) for a, b in zip(first, wanted, strict=True))
        return "" if fits and _chosen(rest, tied, options) else "the rows are others, or in another order"
    left = _without(rows, wanted, options)
    return "" if left is not None and _chosen(left, tied, options) else "the rows are others"


def _same_row(left: list[Cell], right: list[Cell], options: Options) -> bool:
    return len(left) == len(right) and all(_equal(a, b, options) for a, b in zip(left, right, strict=True))


def _chosen(rows: list[list[Cell]], tied: list[list[Cell]], options: Options) -> bool:
    """Are these rows different ones of the tied?"""
    return not rows or _without(tied, rows, options) is not None


def _without(rows: list[list[Cell]], taken: list[list[Cell]], options: Options) -> list[list[Cell]] | None:
    """The rows without those taken; None when one of those isn't there."""
    left = sorted(rows, key=_key)
    for one in sorted(taken, key=_key):
        at = next((at for at, row in enumerate(left) if _same_row(row, one, options)), None)
        if at is None:
            return None
        del left[at]
    return left


def _distinct(rows: list[list[Cell]]) -> list[list[Cell]]:
    return list({tuple(_key(row)): row for row in rows}.values())


def _key(row: list[Cell]) -> list[tuple[str, str]]:
    return [
        ("n", f"{float(cell):+.6e}") if isinstance(cell, Decimal) else (type(cell).__name__, str(cell)) for cell in row
    ]
