"""Quotas: how many at a time, how many a second, who waits for how long, and what is said at once."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.sandbox.admission import Admission, Bucket, Busy, Owner, Quota, TooLate, quota_of

pytestmark = pytest.mark.anyio
CODE = Owner(tenant="run-1", domain="code.python.functions")
MATH = Owner(tenant="run-1", domain="math.arithmetic")
OTHER = Owner(tenant="run-2", domain="code.python.functions")


def admission(
    tenants: dict[str, Quota] | None = None, domains: dict[str, Quota] | None = None, queue: int = 8, wait: float = 5.0
) -> Admission:
    return Admission(tenants or {}, domains or {}, queue=queue, queue_s=wait)


def test_the_most_particular_quota_holds() -> None:
    """Its own name, then the longest dotted beginning, then everybody's; none without."""
    quotas = {name: Quota(sandboxes=count) for count, name in enumerate(("code", "code.python", "*"), 1)}
    assert quota_of(quotas, "code.python.functions") == Quota(sandboxes=2)
    assert quota_of(quotas, "code.c") == Quota(sandboxes=1)
    assert quota_of(quotas, "codec") == Quota(sandboxes=3)
    assert quota_of({"code": Quota()}, "math") is None


async def test_without_quotas_nobody_waits() -> None:
    """Whatever is running and whatever the deadline."""
    found = admission()
    for _ in range(500):
        await found.acquire(CODE, -1.0)
    assert found.running["tenant", "run-1"] == 500


async def test_one_too_many_waits_for_a_release() -> None:
    """The limit holds at every moment, those who wait go in order, and another run is not held up."""
    found, went = admission(tenants={"*": Quota(sandboxes=2)}), list[int]()

    async def work(number: int) -> None:
        await found.acquire(CODE)
        went.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(work, number)
            await anyio.wait_all_tasks_blocked()
        assert (went, found.waiting) == ([0, 1], 3)
        await found.acquire(OTHER)
        for count in (3, 4, 5):
            found.release(CODE)
            await anyio.wait_all_tasks_blocked()
            assert went == list(range(count))
            assert found.running["tenant", "run-1"] == 2
    assert found.waiting == 0


async def test_domains_and_runs_are_counted_both() -> None:
    """A domain that is full holds up that domain in every run, and no other domain."""
    found = admission(domains={"code": Quota(sandboxes=1)}, wait=0.05)
    await found.acquire(CODE)
    await found.acquire(MATH)
    with pytest.raises(Busy) as caught:
        await found.acquire(OTHER)
    assert (caught.value.reason, found.full(OTHER), found.waiting) == ("domain", "domain", 0)


async def test_what_cannot_be_in_time_is_refused_at_once() -> None:
    """By the rate that is known, or when the deadline comes while it waits."""
    found = admission(tenants={"*": Quota(rate=0.1, burst=1)}, domains={"math": Quota(sandboxes=1)})
    await found.acquire(CODE)
    with pytest.raises(TooLate, match="at the earliest"):
        await found.acquire(CODE, 3.0)
    with pytest.raises(Busy, match="rate"):
        await found.acquire(CODE)
    slow = admission(domains={"math": Quota(sandboxes=1)})
    await slow.acquire(MATH)
    with pytest.raises(TooLate):
        await slow.acquire(MATH, 0.05)


async def test_the_queue_is_bounded() -> None:
    """One more than it holds is handed back at once, and a cancelled waiter leaves its place."""
    found = admission(tenants={"*": Quota(sandboxes=1)}, queue=2)
    await found.acquire(CODE)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(found.acquire, CODE)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(Busy) as caught:
            await found.acquire(MATH)
        assert caught.value.reason == "queue"
        tasks.cancel_scope.cancel()
    assert found.waiting == 0
    found.release(CODE)
    await found.acquire(MATH)


async def test_quotas_change_while_it_runs() -> None:
    """A new quota holds from the next claim on."""
    found = admission(wait=0.05)
    await found.acquire(CODE)
    found.quotas = {"tenant": {"*": Quota(sandboxes=1)}, "domain": {}}
    with pytest.raises(Busy):
        await found.acquire(CODE)


async def test_a_rate_is_kept_with_its_burst() -> None:
    """So many at once, then as the rate lets them."""
    now = [0.0]
    found = Admission({"*": Quota(rate=2.0, burst=3)}, {}, queue=4, queue_s=0.2, clock=lambda: now[0])
    for _ in range(3):
        await found.acquire(CODE)
    assert found.rate_wait_s(CODE) == pytest.approx(0.5)
    now[0] = 0.5
    await found.acquire(CODE)
    now[0] = 100.0
    for _ in range(3):
        await found.acquire(CODE)
    assert found.rate_wait_s(CODE) > 0


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 20), st.integers(1, 20))
def test_a_bucket_never_gives_more_than_rate_and_burst(waits: list[float], rate: float, burst: int) -> None:
    """Over any time, at most the burst and the rate times that time."""
    bucket, now, taken = Bucket(rate, burst, 0.0), 0.0, 0
    for wait in waits:
        now += wait
        while bucket.wait_s(now) <= 0:
            bucket.take()
            taken += 1
        assert taken <= burst + rate * now + 1e-6
        assert 0 <= bucket.wait_s(now) <= 1 / rate + 1e-6
