"""The pools: they grow with claims, shrink when idle, and never hand out what is dead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.guard import Guard
from tiltyard.sandbox.null import NullBackend, NullSandbox
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(backend="null", pool={"python": 2}, pool_most=24, refill=2, starts=3)


class Counting(NullBackend):
    """Counts its sandboxes and the starts at a time; a start waits for `gate` when there is one."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.made: list[NullSandbox] = []
        self.now = self.most = 0
        self.gate: anyio.Event | None = None

    async def start(self, want: Want) -> NullSandbox:
        self.now += 1
        self.most = max(self.most, self.now)
        await (self.gate.wait() if self.gate else anyio.lowlevel.checkpoint())
        self.now -= 1
        self.made.append(await super().start(want))
        return self.made[-1]

    @property
    def alive(self) -> int:
        return sum(sandbox.alive for sandbox in self.made)


class Time:
    """A clock that a test turns."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110  (the pool announces it to nobody else)
            await anyio.sleep(0.005)


@pytest.fixture
async def tasks() -> AsyncIterator[TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group


async def test_a_burst_makes_room_for_the_next(tasks: TaskGroup) -> None:
    """After a group has come at once the pool holds a group and a quarter; after a long silence the least again."""
    backend, clock, stop = Counting(), Time(), anyio.Event()
    pool = Pool(backend, SETTINGS, clock)
    tasks.start_soon(pool.serve, stop)
    shelf = pool.shelves[Want()]
    await until(lambda: len(shelf.idle) == 2)
    for _ in range(12):
        await pool.claim(Want())
    await until(lambda: len(shelf.idle) >= 15)
    assert shelf.target <= 16
    clock.now = 3600.0
    pool.aim()
    assert shelf.target == 2
    await until(lambda: len(shelf.idle) == 2)
    assert backend.alive == 2 + 12
    stop.set()
    await until(lambda: backend.alive == 12)


async def test_what_is_claimed_again_gets_a_pool(tasks: TaskGroup) -> None:
    """A kind without a pool gets one with its second claim, and loses it when nobody comes any more."""
    backend, clock, stop = Counting(), Time(), anyio.Event()
    pool = Pool(backend, SETTINGS, clock)
    odd = Want(disk_bytes=1 << 20)
    tasks.start_soon(pool.serve, stop)
    await pool.claim(odd)
    await until(lambda: len(pool.shelves[Want()].idle) == 2)
    assert not pool.shelves[odd].idle
    await pool.claim(odd)
    await until(lambda: len(pool.shelves[odd].idle) >= 2)
    clock.now = SETTINGS.pool_idle_s + 1
    pool.aim()
    assert pool.shelves[odd].target == 0
    await until(lambda: not pool.shelves[odd].idle)
    await pool.claim(Want(disk_bytes=2 << 20))
    assert odd not in pool.shelves
    stop.set()


async def test_clones_of_a_snapshot_have_no_pool() -> None:
    """What starts from a session's snapshot is wanted once; it is started, and nothing is kept ready."""
    pool = Pool(Counting(), SETTINGS)
    for _ in range(3):
        await pool.claim(Want(snapshot="b1"))
    assert set(pool.shelves) == {Want()}


async def test_pools_fit_the_memory() -> None:
    """With little memory the targets shrink, the least of the settings before anything else."""
    pool = Pool(Counting(), SandboxSettings(backend="null", pool={"python": 2}, pool_bytes=5 * (24 << 20)), Time())
    for _ in range(12):
        await pool.claim(Want(profile="shell"))
    pool.aim()
    assert pool.shelves[Want()].target == 2
    assert pool.shelves[Want(profile="shell")].target == 3


async def test_starts_are_bounded_and_claims_go_before_refills(tasks: TaskGroup) -> None:
    """No more starts at a time than allowed, of which refills take only their part."""
    backend, stop = Counting(), anyio.Event()
    backend.gate = anyio.Event()
    pool = Pool(backend, SETTINGS)
    tasks.start_soon(pool.serve, stop)
    await until(lambda: backend.now == 2)
    for _ in range(6):
        tasks.start_soon(pool.claim, Want())
    await until(lambda: backend.now == 3)
    backend.gate.set()
    await until(lambda: len(pool.shelves[Want()].idle) >= 2 and backend.now == 0)
    assert backend.most == 3
    stop.set()


async def test_a_breaker_stops_refills(tasks: TaskGroup) -> None:
    """While refills of a profile are refused nothing of it is started but what is claimed."""
    backend, stop = Counting(), anyio.Event()
    pool = Pool(backend, SETTINGS)
    pool.may_refill = lambda profile: profile != "python"
    tasks.start_soon(pool.serve, stop)
    await pool.claim(Want())
    assert len(backend.made) == 1
    pool.may_refill = lambda profile: True
    await until(lambda: len(pool.shelves[Want()].idle) >= 2)
    stop.set()


async def test_what_died_waiting_is_replaced(tasks: TaskGroup) -> None:
    """A sandbox that dies in the pool is removed and another one is started, before anybody claims it."""
    backend, stop = Counting(), anyio.Event()
    pool = Pool(backend, SETTINGS)
    tasks.start_soon(pool.serve, stop)
    shelf = pool.shelves[Want()]
    await until(lambda: len(shelf.idle) == 2)
    dead = list(shelf.idle)
    for sandbox in dead:
        await sandbox.kill()
    await until(lambda: len(shelf.idle) == 2 and not any(sandbox in dead for sandbox in shelf.idle))
    stop.set()


async def test_claims_go_on_while_the_pools_are_emptied() -> None:
    """What still runs when the service stops may claim a kind that nobody has claimed before."""
    backend = Counting()
    pool = Pool(backend, SETTINGS)
    slow, emptying = anyio.Event(), anyio.Event()

    class Slow(NullSandbox):
        async def kill(self) -> None:
            emptying.set()
            await slow.wait()
            await super().kill()

    sandbox = Slow("slow", "python", SETTINGS)
    pool.shelves[Want()].idle.append(sandbox)
    async with anyio.create_task_group() as group:
        group.start_soon(pool.drain)
        await emptying.wait()
        await pool.claim(Want(profile="shell"))
        slow.set()
    assert not sandbox.alive


async def test_a_trial_is_a_start() -> None:
    """One that is ready says nothing of whether another can be started: a trial starts one, and takes none away."""
    backend = Counting()
    pool = Pool(backend, SETTINGS)
    guard = Guard(SETTINGS, pool, clock=(clock := Time()))
    clock.now = 1.0
    ready = NullSandbox("ready", "python", SETTINGS)
    pool.shelves[Want()].idle.append(ready)
    for _ in range(2):
        guard.count_backend("python", 1.0)
    assert not guard.may_pull
    clock.now = 10.0
    await guard.probe()
    assert guard.may_pull
    assert ready.alive
    assert [sandbox.alive for sandbox in backend.made] == [False]
