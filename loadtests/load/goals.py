"""What single scenarios are run for, as rows with targets."""

from __future__ import annotations

from collections.abc import Callable

from load.figures import Table, ours
from load.hops import spread
from load.meter import Sample

from tiltyard.cli.size import model
from tiltyard.cli.size.model import Costs, Work

Goals = Callable[[Table], None]
WITHIN = (0.8, 1.2)
MOST_MEMORY_MB = 600.0
FIRST_ANSWER_S = 2.0
FLAT = 1.10
"""What grows by less than a tenth is flat."""
SLACK_MB = 20.0
"""And what grows by less than this: an allocator's habits."""
SLACK_FILES = 64
"""Connections between gateway and engine come and go with what is in flight."""


def in_flight() -> Goals:
    """As many rollouts under way as the staleness allows, first answers soon, memory bounded."""

    def goals(table: Table) -> None:
        result, scenario = table.result, table.result.scenario
        least = round(0.9 * scenario.groups * scenario.size * (scenario.staleness + 1))
        most = max(sum(each.waiting.values()) for each in result.samples)
        table.least("rollouts in flight, most", most, "", least)
        table.most(
            "first verdict after the first rollout was sent", result.journeys.first_verdict(), "s", FIRST_ANSWER_S
        )
        for name, most_bytes in result.memory().items():
            if name not in ("engine", "nats"):
                table.most(f"memory of {name}", most_bytes / 1e6, "MB", MOST_MEMORY_MB)

    return goals


def predicted(costs: Costs, work: Work) -> Goals:
    """CPU and rate are what the capacity model says, within a fifth."""

    def goals(table: Table) -> None:
        means = model.rollout_ms(costs, work)
        expected, rate = sum(means.values()), model.capacity(costs, [work])
        table.note("CPU of a rollout, predicted", expected, "ms")
        table.within("CPU of a rollout against the prediction", ours(table.result) / expected, "x", *WITHIN)
        table.note("rollouts per second of the whole machine, predicted", rate, "1/s")
        table.note("rollouts per second, had nobody else used it", table.result.rate_alone(), "1/s")
        table.within("rollouts per second against the prediction", table.result.rate_alone() / rate, "x", *WITHIN)

    return goals


def drained(capacity: float) -> Goals:
    """A burst is worked off in the time that the capacity predicts, plus a fifth."""

    def goals(table: Table) -> None:
        result = table.result
        calm, burst = result.scenario.phases
        ours = max(0.05, 1 - result.machine()[1])
        predicted = max(burst.seconds, burst.seconds * burst.rate / (capacity * ours))
        table.note("rollouts per second, predicted for the share of the machine that was there", capacity * ours, "1/s")
        begun = result.notes["begun"] + calm.seconds
        table.note("rollouts a second before the burst", calm.rate, "1/s")
        table.note("time from the begin of the burst to rest, predicted", predicted, "s")
        table.most("time from the begin of the burst to rest", result.rest_at - begun, "s", round(1.2 * predicted, 1))

    return goals


def fair(flooding: str) -> Goals:
    """One domain floods; the others hardly notice."""

    def goals(table: Table) -> None:
        journeys = table.result.journeys
        whole = journeys.whole()
        others = [seconds for name, seconds in whole.items() if journeys.domains[name] != flooding]
        flood = [seconds for name, seconds in whole.items() if journeys.domains[name] == flooding]
        table.note("domains", len(set(journeys.domains.values())), "")
        table.note("rollouts of the flooding domain", len(flood), "")
        table.note("time to verdict, flooding domain, p50", spread(flood).p50 * 1e3, "ms")
        table.note("time to verdict, other domains, p50", spread(others).p50 * 1e3, "ms")
        table.most("time to verdict, other domains, p99", spread(others).p99 * 1e3, "ms", 1000)

    return goals


def flat(table: Table) -> None:
    """Memory, open files and latency at the end are those of the begin."""
    result = table.result
    half, last = tenth(result.samples, 5), tenth(result.samples, 10)
    for name in sorted(last.memory):
        grown = (last.memory[name] - half.memory.get(name, 0)) / 1e6
        most = max(SLACK_MB, (FLAT - 1) * half.memory.get(name, 0) / 1e6)
        table.most(f"memory of {name}, growth over the second half", grown, "MB", round(most, 1))
    for name in sorted(last.files):
        grown = last.files[name] - half.files.get(name, 0)
        table.most(f"open files of {name}, growth over the second half", grown, "", SLACK_FILES)
    seconds = result.journeys.group_seconds()
    count = max(1, len(seconds) // 10)
    begin, end = (spread(part).p50 for part in (seconds[count : 2 * count], seconds[-count:]))
    table.note("time of a group, second tenth, p50", begin * 1e3, "ms")
    table.most("time of a group, last tenth, p50, against the second's", end / begin, "x", FLAT)


def tenth(samples: list[Sample], number: int) -> Sample:
    """The look at which so many tenths of the verdicts were there."""
    last = samples[-1].verdicts
    return next(each for each in samples if each.verdicts >= number / 10 * last)


def storm(table: Table) -> None:
    """Every refused rollout became a dead letter, and every replay was accounted for."""
    notes, journeys = table.result.notes, table.result.journeys
    table.least(
        "dead letters", notes["letters"], "", max(1, round(0.5 * table.result.scenario.refuse * len(journeys.times)))
    )
    table.least("letters replayed", notes["sent"], "", notes["letters"])
    table.most("replays not accounted for", notes["letters"] - notes["ended"], "", 0)
    table.note("replays a second, sent and handled", notes["rate"], "1/s")
