"""Which engine takes a request, and when none does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltyard.gateway.engines import Engine, NoEngine, Pool, State, choose
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.gateway.weights import Wanted
from tiltyard_proto.messages import Policy

pytestmark = pytest.mark.anyio


def client(url: str) -> Any:
    return SimpleNamespace(url=url)


def make_pool(count: int = 2, version: int = 1, **settings: Any) -> Pool:
    pool = Pool([client(f"http://e{i}") for i in range(count)], GatewaySettings(**settings))
    pool.wanted = version
    for engine in pool.engines:
        engine.version = version
        pool.move(engine, State.READY)
    return pool


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=40, unique=True), st.integers(2, 6))
def test_a_group_keeps_its_engine_when_another_leaves(keys: list[str], count: int) -> None:
    """Losing an engine moves only the groups that it held."""
    pool = make_pool(count)
    lost = pool.engines[0]
    for key in keys:
        before = choose(pool.engines, key, pool.settings)
        after = choose(pool.engines[1:], key, pool.settings)
        assert after is before or before is lost


def test_groups_spread_over_engines() -> None:
    """No engine gets all groups."""
    pool = make_pool(3)
    chosen = [choose(pool.engines, f"run-t-{i}", pool.settings) for i in range(300)]
    assert all(60 < sum(c is engine for c in chosen) < 140 for engine in pool.engines)


def test_an_overloaded_engine_passes_work_on() -> None:
    """Beyond its fair share and the slack an engine's groups overflow; a full engine takes nothing."""
    pool = make_pool(2, affinity_slack=2, max_in_flight=10)
    home = choose(pool.engines, "g", pool.settings)
    assert home is not None
    other = next(engine for engine in pool.engines if engine is not home)
    home.in_flight = 2
    assert choose(pool.engines, "g", pool.settings) is home
    home.in_flight = 9
    assert choose(pool.engines, "g", pool.settings) is other
    home.in_flight = other.in_flight = 10
    assert choose(pool.engines, "g", pool.settings) is None


def test_an_engine_that_failed_this_request_comes_last() -> None:
    """A retry goes elsewhere, and back only when nothing else is there."""
    pool = make_pool(2)
    home = choose(pool.engines, "g", pool.settings)
    assert home is not None
    assert choose(pool.engines, "g", pool.settings, {home.url}) is not home
    assert choose([home], "g", pool.settings, {home.url}) is home


def test_only_ready_engines_on_the_newest_weights_are_routable() -> None:
    """An engine behind the wanted version or in any other state takes nothing."""
    pool = make_pool(2, version=4)
    assert pool.routable() == pool.engines
    pool.engines[0].version = 3
    assert pool.routable() == pool.engines[1:]
    for state in set(State) - {State.READY}:
        pool.move(pool.engines[1], state)
        assert pool.routable() == []
    assert make_pool(1, version=4).routable(min_version=5) == []


def test_the_breaker_counts_server_faults_in_a_row() -> None:
    """Answers in between reset the count; the set-aside time doubles from trip to trip."""
    pool = make_pool(1, breaker_faults=2, probe_s=1000)
    engine = pool.engines[0]
    for _ in range(5):
        pool.failed(engine, "boom")
        pool.worked(engine)
    assert engine.state is State.READY
    pool.failed(engine, "boom")
    pool.failed(engine, "boom")
    assert engine.state is State.SUSPECT
    assert engine.resting()
    rest = engine.rest_until
    pool.move(engine, State.READY)
    pool.failed(engine, "boom")
    assert engine.rest_until > rest + 900


async def test_requests_in_flight_are_bounded_and_released() -> None:
    """A lease waits for a free place and gives its own back, also after an error."""
    pool = make_pool(1, max_in_flight=1)
    with pytest.raises(RuntimeError):
        async with pool.lease("a", 0, (), 1):
            raise RuntimeError
    async with pool.lease("a", 0, (), 1):
        with pytest.raises(NoEngine, match="http://e0 ready v1"):
            async with pool.lease("b", 0, (), 0.01):
                pass
    assert pool.engines[0].in_flight == 0


async def test_a_held_request_goes_when_the_version_arrives() -> None:
    """A request for version 2 waits while version 1 is served and starts once an engine holds version 2."""
    pool = make_pool(1, version=1)
    got: list[Engine] = []

    async def ask() -> None:
        async with pool.lease("g", 2, (), 30) as engine:
            got.append(engine)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert got == []
        pool.wanted = pool.engines[0].version = 2
        pool.notify()
    assert got == pool.engines


def test_wanted_never_goes_back() -> None:
    """Announcements may come late, twice or out of order; the newest stays."""
    pool = make_pool(1)
    wanted = Wanted(pool)
    taken = [wanted.offer(Policy(run="run", version=v, path=f"/p{v}")) for v in (0, 2, 1, 2, 3)]
    assert taken == [True, True, False, False, True]
    assert (pool.wanted, wanted.policy and wanted.policy.path) == (3, "/p3")


@pytest.mark.parametrize(
    "wrong",
    [{"engines": ()}, {"engines": ("ftp://x",)}, {"engines": ("http://a", "http://a")}, {"tries": 0}, {"probe_s": 0}],
)
def test_settings_say_what_is_wrong(wrong: dict[str, Any]) -> None:
    """A setting that can't work is refused with its name."""
    with pytest.raises(ValueError, match=rf"gateway\.{next(iter(wrong))}"):
        GatewaySettings(**wrong)
