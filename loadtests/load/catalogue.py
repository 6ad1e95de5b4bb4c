"""The scenarios, each with what it is run for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from load import goals, storm
from load.drive import After
from load.figures import Table, throughput
from load.inject import Phase
from load.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A scenario in its full size and what its rows must show."""

    scenario: Scenario
    targets: Callable[[Table], None] | None = None
    bare: int = 0
    """Rollouts of the bare client afterwards."""
    after: After | None = None


def steady() -> Entry:
    title = "single turn, 1 KiB prompts, as fast as it goes"
    scenario = Scenario(name="steady", title=title, rollouts=20_000)
    return Entry(scenario=scenario, targets=throughput(800, 2.4), bare=8_000)


def turns() -> Entry:
    title = "four turns, each a command in the null sandbox"
    scenario = Scenario(name="turns", title=title, rollouts=6_000, turns=4, groups=50)
    return Entry(scenario=scenario, targets=throughput(250, None))


def in_flight() -> Entry:
    title = "16,000 rollouts in flight"
    scenario = Scenario(
        name="in-flight",
        title=title,
        rollouts=32_000,
        groups=1000,
        staleness=1,
        slots=16_384,
        latency="lognormal:1,0.5",
    )
    return Entry(scenario=scenario, targets=goals.in_flight())


def long_tail() -> Entry:
    title = "a few answers take a hundred times as long as most"
    scenario = Scenario(
        name="long-tail", title=title, rollouts=8_000, groups=50, slots=4096, latency="longtail:0.05,1.1,30"
    )
    return Entry(scenario=scenario)


def million() -> Entry:
    title = "rollouts of 1,000,000 tokens"
    scenario = Scenario(
        name="million-tokens",
        title=title,
        rollouts=8,
        size=2,
        groups=2,
        staleness=0,
        tokens=1_000_000,
        context=1 << 21,
        slots=4,
    )
    return Entry(scenario=scenario)


def flood() -> Entry:
    title = "one domain of 300 floods an engine that takes 320 a second"
    phases = (Phase(seconds=30, rate=90, flood=600),)
    scenario = Scenario(
        name="flood", title=title, rollouts=0, domains=300, phases=phases, slots=32, latency="constant:0.1", size=2
    )
    return Entry(scenario=scenario, targets=goals.fair("load__d0"))


def dead_letters() -> Entry:
    title = "the engine refuses a third; then it is mended and all letters are sent again"
    scenario = Scenario(name="dead-letters", title=title, rollouts=6_000, groups=50, refuse=0.33)
    return Entry(scenario=scenario, targets=goals.storm, after=storm.replay)


def soak() -> Entry:
    title = "half of what the machine carries, for long; shortened to a tenth unless --scale says more"
    phases = (Phase(seconds=70, rate=300),)
    scenario = Scenario(name="soak", title=title, rollouts=0, phases=phases, keep_s=10, limit_s=3600)
    return Entry(scenario=scenario, targets=goals.flat)


ALL: dict[str, Callable[[], Entry]] = {
    "steady": steady,
    "turns": turns,
    "in-flight": in_flight,
    "long-tail": long_tail,
    "million-tokens": million,
    "flood": flood,
    "dead-letters": dead_letters,
    "soak": soak,
}
