"""Kind fields: typed comparison, one object only, F1."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.grading import grade

from tiltyard.verifier.kinds.base import BrokenTask
from tiltyard_proto.messages import Task, Verification


def task(fields: dict[str, dict[str, str | None]], base: float = 0.0) -> Task:
    verification = Verification(kind="fields", data={"fields": fields}, options={"base": base})
    return Task(id="t", domain="documents.test", prompt=(), verification=verification)


TOTAL: dict[str, dict[str, str | None]] = {"total": {"type": "decimal", "value": "5"}}


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        ("decimal", "1234.5", "$1,234.50"),
        ("decimal", "1234.5", 1234.5),
        ("decimal", "12", "12"),
        ("decimal", "12", 12),
        ("decimal", "12", "12.00 EUR"),
        ("decimal", "0.05", "5%"),
        ("decimal", "-3", "\u22123"),
        ("decimal", "0.1", 0.1),
        ("date", "2024-01-02", "2024-01-02"),
        ("iso_date", "2024-01-02", "2024-01-02 "),
        ("date", "2024-01-02", "2 January 2024"),
        ("date", "2024-01-02", "Jan 2, 2024"),
        ("text", "ACME Corp", "ACME\u00a0Corp "),
        ("text", "ACME Corp", "acme corp"),
        ("text", "1042", "1042"),
    ],
)
def test_equal_values_match(kind: str, value: str, given: object) -> None:
    """A value matches in the usual ways of writing it."""
    assert grade(task({"x": {"type": kind, "value": value}}), json.dumps({"x": given})).passed


@pytest.mark.parametrize(
    ("kind", "value", "given"),
    [
        ("decimal", "1000", "1001"),
        ("decimal", "1000", "1.000"),
        ("decimal", "1", True),
        ("decimal", "42", "the total is 42 and the tax 7"),
        ("decimal", "5", [5]),
        ("decimal", "5", {"v": 5}),
        ("decimal", "0", "null"),
        ("decimal", "0", None),
        ("decimal", "1", "9" * 5000),
        ("decimal", "1", "1e5"),
        ("date", "2024-01-02", "02/01/2024"),
        ("iso_date", "2024-01-02", "2 January 2024"),
        ("iso_date", "2024-01-02", "2024-01-03"),
        ("date", "2024-01-02", "2024-02-01"),
        ("date", "2024-02-28", "2024-02-31"),
        ("date", "2024-01-02", 20240102),
        ("text", "Likely", "Unlikely"),
        ("text", "42", "all of the document, which says 42"),
        ("text", "x", ""),
    ],
)
def test_other_values_do_not_match(kind: str, value: str, given: object) -> None:
    """Near misses, containment and other types don't match."""
    verdict = grade(task({"x": {"type": kind, "value": value}}), json.dumps({"x": given}))
    assert verdict.score == 0.0
    assert verdict.reasons


def test_a_declared_order_reads_numeric_dates() -> None:
    """Numeric dates are read only when the task says which part comes first."""
    assert grade(task({"d": {"type": "date", "value": "2024-01-02", "order": "dmy"}}), '{"d": "02/01/2024"}').passed
    assert not grade(task({"d": {"type": "date", "value": "2024-01-02", "order": "mdy"}}), '{"d": "02/01/2024"}').passed


@pytest.mark.parametrize(
    "text",
    [
        '{"total": 5}',
        '```json\n{"total": 5}\n```',
        'JSON: {"total": "5"}\n',
        '<think>{"total": 4}</think>{"total": 5}',
        ' \n{\n"total": 5.0}',
    ],
)
def test_one_object_may_be_wrapped(text: str) -> None:
    """Fences, prose and thinking around the one object are fine."""
    assert grade(task(TOTAL), text).passed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[5]",
        '{"total": 4}\n{"total": 5}',
        '{"total": 9, "total": 5}',
        '{"total": 5',
        '{"total": NaN}',
        '{"total": Infinity}',
        '{"total": 1' + "0" * 5000 + "}",
        '{"total":' * 3000,
        '{"total": ' + "[" * 9000,
        "x" * 5_000_000 + '{"total": 5}',
        '{"total": 5, "x": {"total": 5}}',
        "{'total': 5}",
        '<think>{"total": 5}',
        '{"total": "\ud800"}',
    ],
)
def test_unclear_answers_fail(text: str) -> None:
    """No object, several, duplicate keys, NaN, depth and length never pass and never raise."""
    verdict = grade(task(TOTAL), text)
    assert not verdict.passed
    assert verdict.score is not None
    assert verdict.reasons


def test_made_up_fields_cost_precision() -> None:
    """One right field and one made up: F1 is two thirds."""
    verdict = grade(task({"a": {"value": "1"}, "b": {"value": None}}), '{"a": "1", "b": "7"}')
    assert verdict.components["f1"] == pytest.approx(2 / 3, abs=1e-5)
    assert not verdict.passed


@pytest.mark.parametrize("text", ['{"a": "1", "b": "N/A"}', '{"a": "1", "b": null}', '{"a": "1"}'])
def test_absent_fields_may_be_null_or_missing(text: str) -> None:
    """Words for 'no value' are no value."""
    assert grade(task({"a": {"value": "1"}, "b": {"value": None}}), text).passed


@pytest.mark.parametrize(
    ("text", "score"),
    [('{"a": "1", "b": "2"}', 1.0), ('{"a": "1"}', 0.1 + 0.9 * 2 / 3), ('{"a": "9"}', 0.1), ("{}", 0.0)],
)
def test_score_is_base_and_f1(text: str, score: float) -> None:
    """The base is paid for an object with an asked key, the rest by F1."""
    assert grade(task({"a": {"value": "1"}, "b": {"value": "2"}}, base=0.1), text).score == pytest.approx(
        score, abs=1e-5
    )


@pytest.mark.parametrize(
    "field", [{"type": "decimal", "value": "much"}, {"type": "date", "value": "soon"}, {"typ": "text"}]
)
def test_broken_references_are_the_tasks_fault(field: dict[str, str | None]) -> None:
    """A reference value that isn't of its type raises BrokenTask."""
    with pytest.raises(BrokenTask):
        grade(task({"x": field}), '{"x": 1}')


@given(st.one_of(st.text(max_size=200), st.text(alphabet='{}[]":,0123456789.eE-totalnu \\', max_size=200)))
def test_any_text_gives_a_verdict(text: str) -> None:
    """Whatever the text, there is a score in [0, 1]."""
    score = grade(task(TOTAL, base=0.1), text).score
    assert score is not None
    assert 0 <= score <= 1
