"""Kind fields: items, identifiers, names, locales and nested keys."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard_proto.messages import Task, Verification

COLUMNS = {"goods": {"type": "text"}, "price": {"type": "decimal"}}
ROWS = [{"goods": "lamp", "price": "10.50"}, {"goods": "desk", "price": "99"}, {"goods": "lamp", "price": "12.00"}]


def task(**fields: dict[str, Any]) -> Task:
    verification = Verification(kind="fields", data={"fields": fields})
    return Task(id="t", domain="documents.test", prompt=(), verification=verification)


def items(rows: Any = None, **more: Any) -> Task:
    return task(items={"type": "items", "columns": COLUMNS, "rows": ROWS if rows is None else rows, **more})


def score(wanted: Task, **answer: Any) -> float | None:
    return grade(wanted, json.dumps(answer)).score


def test_items_pass_in_any_order() -> None:
    """However they are shuffled, unless their order counts."""
    rng = random.Random(2)
    for _ in range(10):
        shuffled = rng.sample(ROWS, len(ROWS))
        assert score(items(), items=shuffled) == 1.0
    assert score(items(ordered=True), items=ROWS[::-1]) != 1.0
    assert score(items(ordered=True), items=ROWS) == 1.0


def test_pairing_is_the_best_there_is() -> None:
    """Items that are half right are paired so that as much as possible is right, not by position."""
    given = [{"goods": "lamp", "price": "12"}, {"goods": "lamp", "price": "1"}, {"goods": "desk", "price": "99.00"}]
    assert score(items(), items=given) == pytest.approx(5 / 6, abs=1e-5)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], 0.0),
        (ROWS[:2], 0.8),
        ([*ROWS, ROWS[0]], 12 / 14),
        ([{**row, "made_up": 1} for row in ROWS], 12 / 15),
        ("lamp", 0.0),
        ([1, 2, 3], 0.0),
    ],
)
def test_items_missing_or_made_up_cost(given: Any, wanted: float) -> None:
    """Recall and precision over all cells."""
    assert score(items(), items=given) == pytest.approx(wanted, abs=1e-5)


def test_far_too_many_items_are_not_read() -> None:
    """A list of thousands scores nothing, quickly."""
    assert score(items(), items=[{"goods": "a"}] * 900) == 0.0


def test_no_items_is_an_answer() -> None:
    """A document without items: an empty list, null or nothing."""
    wanted = task(items={"type": "items", "columns": COLUMNS}, total={"type": "decimal", "value": "1"})
    assert score(wanted, total=1, items=[]) == score(wanted, total=1, items=None) == score(wanted, total=1) == 1.0
    assert score(wanted, total=1, items=[{"goods": "lamp"}]) != 1.0


@pytest.mark.parametrize(
    ("field", "given", "right"),
    [
        ({"type": "decimal", "value": "1234.5", "mark": ","}, "1.234,50", True),
        ({"type": "decimal", "value": "5", "unit": "USD"}, "\u20ac5", False),
        ({"type": "decimal", "value": "5", "tolerance": "0.01"}, "5.01", True),
        ({"type": "decimal", "value": "5", "tolerance": "0.01"}, "5.02", False),
        ({"type": "integer", "value": "5"}, "5.5", False),
        ({"type": "integer", "value": "5"}, 5.0, True),
        ({"type": "boolean", "value": "yes"}, True, True),
        ({"type": "boolean", "value": "yes"}, "no", False),
        ({"type": "id", "value": "DE 12-3"}, "de123", True),
        ({"type": "id", "value": "DE123"}, "DE124", False),
        ({"type": "name", "value": "Brightwater Logistics"}, "Brightwater Logistic", True),
        ({"type": "name", "value": "Able Holding"}, "Unable Holding", False),
        ({"type": "name", "value": "Warehouse 12 North"}, "Warehouse 13 North", False),
        ({"type": "name", "value": "ACME"}, "ACNE", False),
        ({"type": "name", "value": "A.C.M.E., Inc."}, "a c m e inc", True),
        ({"value": "blue", "others": ["navy"]}, "Navy", True),
    ],
)
def test_types_compare_as_they_should(field: dict[str, Any], given: object, right: bool) -> None:
    """Locale, currency, tolerance, truth values, identifiers, names, alternatives."""
    assert grade(task(x=field), json.dumps({"x": given})).passed is right


def test_nested_objects_are_read_by_path() -> None:
    """A key with a point is a key of an inner object, or the key as it stands."""
    wanted = task(**{"seller.name": {"value": "ACME"}, "seller.city": {"value": "Ulm"}})
    assert score(wanted, seller={"name": "ACME", "city": "Ulm"}) == 1.0
    assert score(wanted, **{"seller.name": "ACME", "seller.city": "Ulm"}) == 1.0
    assert score(wanted, seller={"name": "ACME", "city": "Ulm", "made_up": 1}) == pytest.approx(0.8)


@pytest.mark.parametrize(
    "field",
    [
        {"type": "id", "value": "DE89370400440532013001", "scheme": "iban"},
        {"type": "boolean", "value": "perhaps"},
        {"type": "decimal", "value": "5", "tolerance": "some"},
        {"type": "items", "columns": COLUMNS, "rows": [{"colour": "red"}]},
        {"type": "items", "columns": COLUMNS, "rows": [{"price": "much"}]},
        {"value": "x", "others": ["y"], "type": "decimal"},
    ],
)
def test_broken_references_are_the_tasks_fault(field: dict[str, Any]) -> None:
    """Check digits, types of cells, columns that aren't there."""
    with pytest.raises(BrokenTask):
        grade(task(x=field), '{"x": 1}')
