"""The report's statistics against published and hand-computed values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.cli.stats import paired_rise, percentile, sparkline, wilson


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_against_published_values(passed: int, total: int, low: float, high: float) -> None:
    """The score method's column of table I in Newcombe 1998, Statistics in Medicine 17."""
    found = wilson(passed, total)
    assert (found.value, round(found.low, 4), round(found.high, 4)) == (passed / total, low, high)


@given(total=st.integers(1, 500), data=st.data())
def test_wilson_holds_the_rate_within_the_unit_interval(total: int, data: st.DataObject) -> None:
    """The interval lies in [0, 1], holds the rate, and mirrors when passes and failures swap."""
    passed = data.draw(st.integers(0, total))
    found, mirror = wilson(passed, total), wilson(total - passed, total)
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1
    assert found.low == pytest.approx(1 - mirror.high, abs=1e-12)


def test_wilson_without_observations() -> None:
    """No rollouts, no rate."""
    assert all(math.isnan(value) for value in (wilson(0, 0).value, wilson(0, 0).low, wilson(0, 0).high))


def test_paired_rise_by_hand() -> None:
    """Rises 0.5, 0.25, 0: mean 0.25, standard error 0.25 / sqrt(3); tasks seen once are left out."""
    before = {"a": 0.0, "b": 0.5, "c": 1.0, "only before": 0.0}
    after = {"a": 0.5, "b": 0.75, "c": 1.0, "only after": 1.0}
    found = paired_rise(before, after)
    half = 1.959964 * 0.25 / math.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25 - half, 0.25 + half))


@pytest.mark.parametrize(("before", "after"), [({}, {}), ({"a": 0.0}, {"a": 1.0}), ({"a": 0.0, "b": 1.0}, {"c": 1.0})])
def test_a_rise_needs_two_tasks(before: dict[str, float], after: dict[str, float]) -> None:
    """One task has no spread, so there is no interval."""
    assert math.isnan(paired_rise(before, after).value)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.01, 1.0), (0.5, 5.0), (0.51, 6.0), (0.95, 10.0), (1.0, 10.0)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    """Of 1 to 10, in any order."""
    assert percentile([10.0, 1.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 9.0, 8.0], share) == expected


def test_percentile_of_nothing() -> None:
    """No values, no percentile; one value is every percentile."""
    assert math.isnan(percentile([], 0.5))
    assert {percentile([3.0], share) for share in (0.0, 0.5, 1.0)} == {3.0}


def test_sparkline() -> None:
    """Low to high in eight bars; what lies outside is clipped."""
    assert sparkline([0.0, 0.5, 1.0, -3.0, 9.0]) == "▁▄█▁█"
    assert sparkline([]) == ""
    assert sparkline([2.0, 3.0], 2.0, 2.0) == "▁█"
