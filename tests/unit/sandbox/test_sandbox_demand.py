"""How large the pools are made, and who may wait for whom."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiltyard.sandbox.demand import BURST_HALF_S, Bounds, Meter, Need, allot, target

RATES = st.floats(0, 50)
BURSTS = st.floats(0, 100)
SECONDS = st.floats(0.05, 5)
AT_ONCE = st.integers(1, 8)
BOUNDS = st.builds(Bounds, least=st.integers(0, 20), most=st.integers(0, 60))
NEEDS = st.lists(
    st.builds(Need, least=st.integers(0, 10), target=st.integers(0, 40), bytes=st.integers(1, 50)), max_size=6
)


@given(RATES, BURSTS, SECONDS, AT_ONCE, BOUNDS)
def test_a_target_is_within_its_bounds(rate: float, burst: float, refill: float, at_once: int, bounds: Bounds) -> None:
    """Never fewer than the least, never more than the most unless the least is more."""
    assert bounds.least <= target(rate, burst, refill, at_once, bounds) <= max(bounds.least, bounds.most)


@given(RATES, BURSTS, SECONDS, AT_ONCE, BOUNDS, st.floats(0, 10), st.floats(0, 10), st.floats(0, 3))
def test_more_claims_never_lower_a_target(
    rate: float, burst: float, refill: float, at_once: int, bounds: Bounds, more: float, larger: float, slower: float
) -> None:
    """A target does not fall when claims come faster, bursts are larger or refills slower."""
    before = target(rate, burst, refill, at_once, bounds)
    assert target(rate + more, burst + larger, refill + slower, at_once, bounds) >= before


def test_the_rule_of_the_pool_size() -> None:
    """Claims during one refill, and a group with a quarter more."""
    assert target(4.0, 16.0, 0.5, 2, Bounds(least=2, most=100)) == 21
    assert target(0.0, 0.0, 0.5, 2, Bounds(least=2, most=100)) == 2


@given(st.integers(1, 64), st.floats(0, 1e6))
def test_a_burst_is_remembered_and_forgotten(size: int, begun: float) -> None:
    """A group that came at once is expected again, half as much after each half-life, and not for ever."""
    meter = Meter()
    for _ in range(size):
        meter.claim(begun)
    assert meter.burst(begun) == size
    assert abs(meter.burst(begun + BURST_HALF_S) - (size / 2 if size > 1 else 0.5)) < 1e-3 * size
    assert meter.burst(begun + 20 * BURST_HALF_S) == 0
    assert meter.rate(begun + 3600) < 1e-9


@given(st.floats(0.2, 20))
def test_a_steady_rate_is_found(rate: float) -> None:
    """After minutes of steady claims the rate is known within a tenth, or within a claim per averaging time."""
    meter = Meter()
    count = int(rate * 200)
    for number in range(count):
        meter.claim(number / rate)
    assert abs(meter.rate((count - 1) / rate) - rate) < 0.1 * rate + 0.05


@given(NEEDS, st.integers(0, 3000))
def test_pools_share_the_memory(needs: list[Need], budget: int) -> None:
    """All fits the budget; none gets more than it asked for; none waits that would still fit."""
    given_ = allot(needs, budget)
    used = sum(count * need.bytes for count, need in zip(given_, needs, strict=True))
    assert used <= budget
    for count, need in zip(given_, needs, strict=True):
        wish = max(need.least, need.target)
        assert 0 <= count <= wish
        assert count == wish or used + need.bytes > budget


@given(NEEDS)
def test_the_least_come_first(needs: list[Need]) -> None:
    """Where all the least fit the memory, every pool has its least, whatever the others would like."""
    budget = sum(need.least * need.bytes for need in needs)
    assert all(count >= need.least for count, need in zip(allot(needs, budget), needs, strict=True))
