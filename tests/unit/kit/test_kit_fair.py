"""Deficit round robin: what it promises, decided without a bus."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tiltyard.kit.fair import Scheduler, split


def serve(scheduler: Scheduler, slots: int, rounds: int) -> Counter[str]:
    """Serve `slots` messages a round; what each flow got."""
    got: Counter[str] = Counter()
    for _ in range(rounds):
        for flow, count in scheduler.share(slots).items():
            got[flow] += count
            scheduler.set(flow, scheduler.work(flow) - count)
    return got


def test_a_flood_delays_others_by_one_round() -> None:
    """With one flow of a million and 299 of one message, all small ones are served within 300 turns."""
    scheduler = Scheduler()
    scheduler.set("flood", 10**6)
    for index in range(299):
        scheduler.set(f"small{index}", 1)
    got = serve(scheduler, 1, 300)
    assert sum(count for flow, count in got.items() if flow != "flood") == 299
    assert got["flood"] == 1


def test_shares_follow_weights() -> None:
    """While both have work, a flow of weight 3 gets three times what a flow of weight 1 gets; half a weight, half."""
    scheduler = Scheduler()
    scheduler.weights = {"a": 3.0, "c": 0.5}
    for flow in ("a", "b", "c"):
        scheduler.set(flow, 10**6)
    got = serve(scheduler, 7, 900)
    assert abs(got["a"] / got["b"] - 3) < 0.05
    assert abs(got["c"] / got["b"] - 0.5) < 0.05


def test_a_weight_that_is_taken_back_leaves_no_credit() -> None:
    """A domain that had a weight of a million by mistake shares as others do as soon as that is mended."""
    scheduler = Scheduler()
    scheduler.set("a", 1000)
    scheduler.set("b", 1000)
    scheduler.weights = {"a": 1e6}
    assert scheduler.share(10) == {"a": 10}
    scheduler.weights = {}
    assert scheduler.share(100)["b"] >= 45


def test_evaluation_goes_first() -> None:
    """While an evaluation has work, nothing else is served, whichever domain it is of."""
    scheduler = Scheduler()
    scheduler.set("a", 100)
    scheduler.set("b-eval", 5)
    scheduler.set("a-eval", 5)
    assert sum(scheduler.share(10).values()) == 10
    scheduler = Scheduler()
    scheduler.set("a", 100)
    scheduler.set("b-eval", 5)
    assert scheduler.share(4) == {"b-eval": 4}
    scheduler.set("b-eval", 1)
    assert scheduler.share(4) == {"b-eval": 1, "a": 3}
    assert split("b-eval") == ("b", "eval")


@given(
    work=st.dictionaries(st.sampled_from([f"d{i}" for i in range(8)] + ["d0-eval"]), st.integers(0, 50)),
    weights=st.dictionaries(st.sampled_from([f"d{i}" for i in range(8)]), st.floats(0, 5)),
    free=st.integers(0, 60),
)
def test_never_more_than_there_is_and_never_less_than_possible(
    work: dict[str, int], weights: dict[str, float], free: int
) -> None:
    """A share never exceeds a flow's work or the free slots, and no slot stays empty while there is work."""
    scheduler = Scheduler()
    scheduler.weights = weights
    for flow, count in work.items():
        scheduler.set(flow, count)
    taken = scheduler.share(free)
    assert all(0 < count <= work[flow] for flow, count in taken.items())
    assert sum(taken.values()) == min(free, sum(work.values()))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 9)), max_size=60), st.integers(1, 4))
def test_any_order_of_news_keeps_the_account(news: list[tuple[str, int]], free: int) -> None:
    """However often a flow's work is corrected, everything that waits is served in the end."""
    scheduler, now = Scheduler(), {}
    for flow, count in news:
        scheduler.set(flow, count)
        now[flow] = max(0, count)
    got = serve(scheduler, free, sum(now.values()) + 1)
    assert got == Counter({flow: count for flow, count in now.items() if count})
