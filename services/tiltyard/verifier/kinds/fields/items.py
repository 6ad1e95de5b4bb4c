"""Lists of items, such as the lines of an invoice: paired so that as many cells as possible are right.

Invariants: the pairing is optimal (`networkx.max_weight_matching`), by position only where the order counts;
an item that is missing, too many or doubled costs all its cells. Left out: items within items.
"""

from __future__ import annotations

from typing import Any

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.typed_values import is_null

from .compare import cell, matches
from .data import Field

MAX_ITEMS = 120
"""Items of an answer that are read; more are too many for any document."""


class Count(Part, frozen=True):
    """Values that are right, were given, were wanted."""

    right: int = 0
    given: int = 0
    wanted: int = 0


def compare(field: Field, value: object) -> tuple[Count, str]:
    """The counts over all cells, and what is wrong in words."""
    wanted = sum(text is not None for row in field.rows for text in row.values())
    if not isinstance(value, list):
        return Count(given=0 if is_null(value) else 1, wanted=wanted), "it isn't a list"
    if len(value) > MAX_ITEMS:
        return Count(given=len(value), wanted=wanted), f"it has more than {MAX_ITEMS} items"
    given = sum(_cells(item) for item in value)
    right = _best(field, value)
    wrong = ""
    if len(value) != len(field.rows):
        wrong = f"it has {len(value)} items, right are {len(field.rows)}"
    elif right < max(wanted, given):
        wrong = f"{max(wanted, given) - right} of its values are wrong"
    return Count(right=right, given=given, wanted=wanted), wrong


def _cells(item: object) -> int:
    """Values that an item states; one that is no object states one."""
    return max(1, sum(not is_null(value) for value in item.values())) if isinstance(item, dict) else 1


def _best(field: Field, value: list[Any]) -> int:
    """The most cells that can be right at once."""
    if not value or not field.rows:
        return 0
    rows = [{key: cell(field.columns[key], text) for key, text in row.items()} for row in field.rows]
    if field.ordered:
        return sum(_agreement(row, item) for row, item in zip(rows, value, strict=False))
    table = [[_agreement(row, item) for item in value] for row in rows]
    return _assigned(table)


def _assigned(table: list[list[int]]) -> int:
    """The largest sum of a row and an item each at most once. No row needs more items than there are rows."""
    import networkx  # slow to import, and only items need it

    graph = networkx.Graph()
    for row, agreements in enumerate(table):
        best = sorted(range(len(agreements)), key=agreements.__getitem__, reverse=True)[: len(table)]
        graph.add_weighted_edges_from((("row", row), ("item", i), agreements[i]) for i in best if agreements[i])
    return sum(graph.edges[pair]["weight"] for pair in networkx.max_weight_matching(graph))


def _agreement(row: dict[str, Field], item: object) -> int:
    if not isinstance(item, dict):
        return 0
    return sum(matches(field, item[key]) for key, field in row.items() if field.value is not None and key in item)
