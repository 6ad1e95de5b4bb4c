"""The pure parts of the load test: latencies, schedules, percentiles, charts."""

from __future__ import annotations

import random
import statistics
import xml.etree.ElementTree as ElementTree

import pytest
from load.charts import bars, lines, nice
from load.command import main
from load.hops import Journeys, spread
from load.inject import Phase, due
from load.scenario import Scenario
from rig.latency import parse

from tiltyard_proto.messages import GroupRecord, Purpose


@pytest.mark.parametrize("text", ["constant:0.02", "exponential:0.5", "lognormal:0.5,0.8", "longtail:0.2,1.5,60"])
def test_a_latency_has_its_mean(text: str) -> None:
    """Each distribution is read, written the same, and draws what its mean says."""
    latency, chance = parse(text), random.Random(1)
    assert str(latency) == text
    drawn = statistics.fmean(latency.draw(chance) for _ in range(50_000))
    assert drawn == pytest.approx(latency.mean(), rel=0.05)


def test_a_long_tail_ends() -> None:
    """No answer takes longer than the most, and some take that long."""
    latency, chance = parse("longtail:0.1,0.5,3"), random.Random(1)
    drawn = [latency.draw(chance) for _ in range(2000)]
    assert (min(drawn) >= 0.1, max(drawn)) == (True, 3.0)


@pytest.mark.parametrize(
    "text", ["", "constant", "constant:x", "lognormal:1", "longtail:0,1,2", "uniform:1", "constant:-1"]
)
def test_a_wrong_latency_is_refused(text: str) -> None:
    """The message says which forms there are."""
    with pytest.raises(ValueError, match=r"longtail:LEAST,ALPHA,MOST|LEAST above 0"):
        parse(text)


def test_groups_are_due_at_their_rate() -> None:
    """Rates hold phase by phase, the domains take turns, and the flood comes from the first one on top."""
    tasks = tuple(Scenario(name="x", title="", rollouts=0, domains=10).tasks())
    found = list(due((Phase(seconds=2, rate=40), Phase(seconds=1, rate=40, flood=80)), tasks, 4))
    times = [at for at, _ in found]
    assert times == sorted(times)
    assert (sum(at < 2 for at in times), sum(at >= 2 for at in times)) == (20, 10 + 20)
    assert [task.domain for at, task in found if at < 1] == [f"load.d{index}" for index in range(10)]
    assert sum(task.domain == "load.d0" for at, task in found if at >= 2) == 21


def test_journeys_are_read_from_times() -> None:
    """Hops are the times between stages, and what has no verdict or group is lost."""
    journeys = Journeys()
    journeys.times["run-t-0-0"] = [(3.0, "verdict"), (1.0, "generate"), (2.5, "verify")]
    journeys.times["run-t-0-1"] = [(1.0, "generate")]
    journeys.domains["run-t-0-0"] = "load__d0"
    journeys.groups["run-t-0"] = 4.0
    for index, members in enumerate([(0,), ()]):
        journeys.records[f"run-t-{index}"] = record(index, members)
    hops = journeys.hops()
    assert (hops["generate"], hops["verify"], hops["whole rollout"]) == ([1.5], [0.5], [2.0])
    assert hops["last verdict to group"] == [1.0]
    assert journeys.lost() == 1 + 2 + 1
    assert spread(range(100)).p95 == 95


def record(index: int, members: tuple[int, ...]) -> GroupRecord:
    return GroupRecord(
        id=f"run-t-{index}", run="run", domain="load.d0", task_id="t", template="", purpose=Purpose.TRAIN, version=0,
        size=2, deadline=9.0, opened=1.0, members=members,
    )  # fmt: skip


def test_charts_are_wellformed() -> None:
    """Both kinds of chart are XML, whatever the names, and hold their values."""
    for chart in (lines("a & b", {"<x>": [(0, 1), (2, 3)]}, "ms"), lines("none", {}, ""), bars("c", {"d": 0.0}, "ms")):
        ElementTree.fromstring(chart)
    assert [nice(value) for value in (0, 0.03, 1, 7, 1200)] == [1.0, 0.05, 1.0, 10.0, 2000.0]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nope"], "no scenario 'nope'"),
        (["steady", "--scale", "0"], "--scale: '0': expected a number above 0"),
        (["steady", "--scale", "-1"], "--scale: '-1': expected"),
        (["steady", "--scale", "nan"], "--scale: 'nan': expected"),
        (["steady", "--latency", "nonsense"], "--latency: "),
        (["steady", "--servers", "nats://127.0.0.1:1"], "load: nats://127.0.0.1:1: "),
    ],
)
def test_mistakes_of_a_load_are_named_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    """A wrong scenario, size or latency is one line and status 2."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    assert part in capsys.readouterr().err
