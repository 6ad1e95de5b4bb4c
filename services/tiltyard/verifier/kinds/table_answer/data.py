"""What a task of kind `table_answer` holds."""

from __future__ import annotations

from typing import Any, Literal

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.typed_values import DateOrder, DecimalMark


class Data(Part, frozen=True):
    """`verification.data`."""

    type: Literal["number", "integer", "text", "boolean", "date", "null", "list", "rows"]
    """'list': plain values; 'rows': lists of cells. Their cells are typed by their own values."""
    value: Any = None
    """A number (or its text, for exact ones), a text, a list, a list of lists."""
    others: tuple[Any, ...] = ()
    """Further right values."""
    tied: tuple[Any, ...] = ()
    """Of lists and rows: of these, which the data ranks alike, `choose` must be there besides `value`, any of them."""
    choose: int = 0
    sorted_by: int | None = None
    """Of ordered rows: the column that decides their order."""


class Options(Part, frozen=True):
    """`verification.options`."""

    ordered: bool = False
    """The order of lists and rows counts."""
    distinct: bool = False
    """Repeats in lists and rows don't count."""
    tolerance: float = 1e-6
    """Relative, for numbers that aren't integers."""
    places: int = -1
    """Decimal places that were asked for; a number may differ by half of the last one. -1: none were."""
    unit: str = ""
    order: DateOrder = ""
    mark: DecimalMark = ""
    answer: Literal["line", "any"] = "any"
    """'line': the answer must stand behind 'Answer:'."""
