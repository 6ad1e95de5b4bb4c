"""The report's statistics: rates with intervals, paired differences, percentiles. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

Z95 = 1.959964


class Estimate(msgspec.Struct, frozen=True):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(passed: int, total: int) -> Estimate:
    """A pass rate with its Wilson score interval (Wilson 1927); NaN without observations."""
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    rate = passed / total
    denominator = 1 + Z95**2 / total
    centre = (rate + Z95**2 / (2 * total)) / denominator
    half = Z95 * math.sqrt(rate * (1 - rate) / total + Z95**2 / (4 * total**2)) / denominator
    return Estimate(rate, max(0.0, centre - half), min(1.0, centre + half))


def paired_rise(before: dict[str, float], after: dict[str, float]) -> Estimate:
    """The mean rise over tasks seen both times, with a normal interval over tasks.

    Rollouts of one task are not independent, so the unit is the task: its rate after minus its rate before.
    """
    rises = [after[task] - before[task] for task in sorted(before.keys() & after.keys())]
    if len(rises) < 2:
        return Estimate(math.nan, math.nan, math.nan)
    mean = statistics.fmean(rises)
    half = Z95 * statistics.stdev(rises) / math.sqrt(len(rises))
    return Estimate(mean, mean - half, mean + half)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie (nearest rank); NaN without values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1 if share > 0 else 0)]


def sparkline(values: Sequence[float], low: float = 0.0, high: float = 1.0) -> str:
    """Values as a row of bars."""
    bars = "▁▂▃▄▅▆▇█"
    span = (high - low) or 1.0
    return "".join(bars[min(7, max(0, int((value - low) / span * 7.999)))] for value in values)
