"""The scenarios, each with what it is run for.

What a scenario asks of the system may depend on what the system carries: `Known` has the costs that this very command
measured before, else those that are shipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from load import goals, storm
from load.drive import After
from load.figures import Table, throughput
from load.inject import Phase
from load.scenario import Scenario

from tiltyard.cli.size import SHIPPED, model, read_costs
from tiltyard.cli.size.model import Costs, Work

ANSWER = Work(domain="load")


@dataclass
class Known:
    """What is known about the machine."""

    costs: Costs | None = None
    """Measured by this command; None: not yet."""

    def capacity(self) -> float:
        """Rollouts of one turn that this machine carries in a second."""
        return model.capacity(self.costs or read_costs(SHIPPED), [ANSWER])


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A scenario in its full size and what its rows must show."""

    scenario: Scenario
    targets: Callable[[Table], None] | None = None
    bare: int = 0
    """Rollouts of the bare client afterwards."""
    after: After | None = None


def steady(_: Known) -> Entry:
    title = "single turn, 1 KiB prompts, as fast as it goes"
    scenario = Scenario(name="steady", title=title, rollouts=20_000)
    return Entry(scenario=scenario, targets=throughput(800, 2.4), bare=8_000)


def turns(_: Known) -> Entry:
    title = "four turns, each a command in the null sandbox"
    scenario = Scenario(name="turns", title=title, rollouts=6_000, turns=4, groups=25)
    return Entry(scenario=scenario, targets=throughput(250, None))


def predicted(count: int, groups: int) -> Callable[[Known], Entry]:
    """A load that the capacity model has not seen."""

    def made(known: Known) -> Entry:
        name, title = f"{count}-turns", f"{count} turns, against what `tiltyard size` predicts from the two loads above"
        scenario = Scenario(name=name, title=title, rollouts=24_000 // count, turns=count, groups=groups)
        work = Work(domain="load", turns=count, executed=count)
        return Entry(scenario=scenario, targets=goals.predicted(known.costs, work) if known.costs else None)

    return made


def burst(known: Known) -> Entry:
    capacity = known.capacity()
    base, calm, most = capacity / 4, 15.0, 60.0
    phases = (Phase(seconds=calm, rate=base), Phase(seconds=most, rate=10 * base))
    title = "ten times the rate for a minute"
    scenario = Scenario(name="burst", title=title, rollouts=0, phases=phases, limit_s=1800)
    return Entry(scenario=scenario, targets=goals.drained(capacity))


def in_flight(_: Known) -> Entry:
    title = "16,000 rollouts in flight, 4,096 of them at the engine"
    scenario = Scenario(
        name="in-flight", title=title, rollouts=32_000, groups=1000, staleness=1, slots=4096,
        latency="lognormal:0.5,0.5",
    )  # fmt: skip
    return Entry(scenario=scenario, targets=goals.in_flight())


def long_tail(_: Known) -> Entry:
    title = "a few answers take a hundred times as long as most"
    scenario = Scenario(
        name="long-tail", title=title, rollouts=8_000, groups=50, slots=4096, latency="longtail:0.05,1.1,30"
    )
    return Entry(scenario=scenario)


def million(_: Known) -> Entry:
    title = "rollouts of 1,000,000 tokens"
    scenario = Scenario(
        name="million-tokens", title=title, rollouts=8, size=2, groups=2, staleness=0, tokens=1_000_000,
        context=1 << 21, slots=4,
    )  # fmt: skip
    return Entry(scenario=scenario)


def flood(_: Known) -> Entry:
    title = "one domain of 300 floods an engine that takes 320 a second"
    phases = (Phase(seconds=20, rate=90, flood=600),)
    scenario = Scenario(
        name="flood", title=title, rollouts=0, size=2, domains=300, phases=phases, slots=32, latency="constant:0.1",
        check_s=2.0,
    )  # fmt: skip
    return Entry(scenario=scenario, targets=goals.fair("load__d0"))


def dead_letters(_: Known) -> Entry:
    title = "the engine refuses a third; then it is mended and all letters are sent again"
    scenario = Scenario(name="dead-letters", title=title, rollouts=6_000, groups=50, refuse=0.33)
    return Entry(scenario=scenario, targets=goals.storm, after=storm.replay)


def soak(known: Known) -> Entry:
    title = "20,000 rollouts at two fifths of what the machine carries; ten times as many with --scale 10"
    rate = 0.4 * known.capacity()
    scenario = Scenario(
        name="soak", title=title, rollouts=0, phases=(Phase(seconds=20_000 / rate, rate=rate),), keep_s=10,
        check_s=1.0, limit_s=7200,
    )  # fmt: skip
    return Entry(scenario=scenario, targets=goals.flat)


CHAOS = "chaos"
"""`loadtests/chaos`, run as it is."""
ALL: dict[str, Callable[[Known], Entry]] = {
    "steady": steady,
    "turns": turns,
    "2-turns": predicted(2, 25),
    "6-turns": predicted(6, 16),
    "burst": burst,
    "in-flight": in_flight,
    "long-tail": long_tail,
    "million-tokens": million,
    "flood": flood,
    "dead-letters": dead_letters,
    "soak": soak,
}
