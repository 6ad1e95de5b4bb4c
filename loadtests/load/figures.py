"""From a scenario's result to rows {measure, value, unit, target, holds}. Pure.

Targets of wall time and CPU hold for two cores that nothing else uses; the rows say so by the machine's load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from load.drive import NOT_OURS, Result
from load.hops import ROLLOUT, spread
from load.meter import SERVER

from tiltyard.cli.report import Row

HOP_ORDER = ("generate", "execute", "verify", "verdict")


class Table:
    """Rows of one scenario."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.rows: list[Row] = []

    def note(self, measure: str, value: float | None, unit: str) -> None:
        """A figure without a target."""
        self._add(measure, value, unit, "", None)

    def least(self, measure: str, value: float, unit: str, target: float) -> None:
        self._add(measure, value, unit, f">= {target:g}", value >= target)

    def most(self, measure: str, value: float, unit: str, target: float) -> None:
        self._add(measure, value, unit, f"<= {target:g}", value <= target)

    def within(self, measure: str, value: float, unit: str, low: float, high: float) -> None:
        self._add(measure, value, unit, f"{low:g} to {high:g}", low <= value <= high)

    def _add(self, measure: str, value: float | None, unit: str, target: str, holds: bool | None) -> None:
        name = f"{self.result.scenario.name}: {measure}"
        shown = None if value is None else round(value, 3)
        self.rows.append(Row(measure=name, value=shown, unit=unit, target=target, holds=holds))


def ours(result: Result) -> float:
    """CPU milliseconds of a rollout over all services and the server."""
    return sum(value for name, value in result.cpu_ms().items() if name != NOT_OURS)


def rows(result: Result, targets: Callable[[Table], None] | None = None) -> list[Row]:
    """All rows of a scenario; `targets` adds those that it is run for."""
    table = Table(result)
    table.note("rollouts", result.rollouts, "")
    table.most("rollouts and groups lost", result.journeys.lost(), "", 0)
    if not result.scenario.refuse:
        table.most("dead letters", result.journeys.letters, "", 0)
    if targets is not None:
        targets(table)
    _costs(table)
    _hops(table)
    table.note("deliveries repeated", result.redelivered, "")
    for name, most in result.memory().items():
        table.note(f"memory of {name}, most", most / 1e6, "MB")
    idle, others = result.machine()
    table.note("share of the machine that nobody used", idle, "share")
    table.note("share of the machine that others used", others, "share")
    table.note("wall time", result.wall_s, "s")
    _bare(table)
    return table.rows


def throughput(least_rate: float, most_ms: float | None) -> Callable[[Table], None]:
    """Targets of a scenario that is run for its rate."""

    def targets(table: Table) -> None:
        table.least("rollouts per second", table.result.rate(), "1/s", least_rate)
        if most_ms is not None:
            table.most("CPU of a rollout, all services and the server", ours(table.result), "ms", most_ms)

    return targets


def _costs(table: Table) -> None:
    costs = table.result.cpu_ms()
    for name in sorted(costs, key=lambda name: (name in (SERVER, NOT_OURS), name)):
        table.note(f"CPU of a rollout in {name}", costs[name], "ms")


def _hops(table: Table) -> None:
    hops = table.result.journeys.hops()
    for name in sorted(filter(hops.get, hops), key=_order):
        found = spread(hops[name])
        what = name if name not in HOP_ORDER else f"from {name} to the next stage"
        for share in ("p50", "p95", "p99"):
            table.note(f"{what}, {share}", getattr(found, share) * 1e3, "ms")


def _order(name: str) -> tuple[int, str]:
    return (HOP_ORDER.index(name), "") if name in HOP_ORDER else (len(HOP_ORDER) + (name == ROLLOUT), name)


def _bare(table: Table) -> None:
    bare = table.result.bare
    if bare is None:
        return
    table.note("limit: a bare client does the same bus operations", bare.rate, "1/s")
    table.note("limit: CPU of the bare client", bare.client_ms, "ms")
    table.note("limit: CPU of the server for the bare client", bare.server_ms, "ms")
    table.note("share of the bare client's rate", table.result.rate() / bare.rate, "share")


def text(found: Sequence[Row]) -> str:
    """The table for people."""
    width = max(len(each.measure) for each in found)
    lines = []
    for each in found:
        held = "" if each.holds is None else "holds" if each.holds else "FAILS"
        value = "-" if each.value is None else f"{each.value:.10g}"
        lines.append(f"{each.measure:{width}}  {value:>12} {each.unit:6} {each.target:10} {held}".rstrip())
    return "\n".join(lines)
