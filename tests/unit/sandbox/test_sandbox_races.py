"""What happens in between: quotas while results are fetched, set-ups that are given up, snapshots that have gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from support import build

from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.admission import Quota
from tiltyard.sandbox.backend import NotHere, Sandbox, StartFailed, Want
from tiltyard.sandbox.guard import Guard
from tiltyard.sandbox.null import NullBackend, NullSandbox
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.starts import Starts
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Command, Environment, Job, Rollout
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(backend="null", pool={}, queue_s=5.0, tenants={"*": Quota(sandboxes=1)})


class Gate:
    """Holds the first that comes to it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = anyio.Event(), anyio.Event()

    async def __call__(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.open.wait()


class Slow(NullSandbox):
    """Fetching results from it waits at a gate, and finds out there whether it is still alive."""

    gate: Gate

    async def export(self, under: str = "") -> bytes:
        await self.gate()
        return await super().export(under)

    async def listing(self, limit: int = 1 << 20) -> dict[str, bytes]:
        await self.gate()
        return await super().listing(limit)


class Backend(NullBackend):
    """Counts what is alive; its snapshots wait at `gate`, and starts from one that it does not have fail."""

    def __init__(self, settings: SandboxSettings = SETTINGS) -> None:
        super().__init__(settings)
        self.gate, self.snapshots = Gate(), {"gone"}
        self.made: list[NullSandbox] = []

    async def start(self, want: Want) -> NullSandbox:
        if want.snapshot:
            raise StartFailed(f"snapshot {want.snapshot!r} is gone")
        self._count += 1
        sandbox = Slow(f"null{self._count}", want.profile, self.settings)
        sandbox.gate = self.gate
        self.made.append(sandbox)
        return sandbox

    async def snapshot(self, sandbox: Sandbox) -> str:
        await self.gate()
        return "gone"

    @property
    def alive(self) -> int:
        return sum(sandbox.alive for sandbox in self.made)


@pytest.fixture
async def backend() -> Backend:
    return Backend()


@pytest.fixture
async def worker(backend: Backend, tmp_path: Path) -> AsyncIterator[Worker]:
    made = Worker(SETTINGS, Pool(backend, SETTINGS), BlobStore(tmp_path))
    yield made
    await made.sessions.close()


def act(member: int = 0) -> Rollout:
    task = build.task(turns=3, environment=Environment(interface="shell"))
    return build.rollout(task, member=member, turns=(build.turn(command=Command(argv=("true", "x"))),))


async def test_a_turn_whose_workspace_is_fetched_keeps_its_sandbox(worker: Worker, backend: Backend) -> None:
    """A quota that is full ends sessions that wait for a turn, never the one whose files are on their way out."""
    found: list[object] = []

    async def turn(member: int) -> None:
        found.append((await worker.turn(act(member))).message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn, 0)
        await backend.gate.reached.wait()
        tasks.start_soon(turn, 1)
        with anyio.fail_after(5):
            while not worker.guard.admission.waiting and backend.alive:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        backend.gate.open.set()
    outcomes = [one.turns[-1].execution for one in found if isinstance(one, Rollout) and one.turns]
    assert [execution.outcome for execution in outcomes if execution] == [Outcome.FINISHED] * 2


async def test_a_graded_sandbox_is_never_taken_for_a_session(worker: Worker, backend: Backend) -> None:
    """While its files are collected a grading job's sandbox counts as busy."""
    job = Job(rollout=act(), command=Command(argv=("true", "x")), profile="python", snapshot=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.job, job)
        await backend.gate.reached.wait()
        assert [entry.state for entry in worker.guard.live] == ["grading"]
        backend.gate.open.set()


async def test_a_session_that_gets_idle_makes_room_for_who_waits(worker: Worker, backend: Backend) -> None:
    """One that waits for a full quota goes on as soon as a session of it waits for its next turn."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.turn, act(0))
        await backend.gate.reached.wait()
        tasks.start_soon(worker.turn, act(1))
        with anyio.fail_after(5):
            while not worker.guard.admission.waiting:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        backend.gate.open.set()
        with anyio.fail_after(SETTINGS.queue_s / 5):
            while len(backend.made) < 2:  # noqa: ASYNC110
                await anyio.sleep(0.001)


async def test_a_set_up_that_is_given_up_leaves_no_sandbox(backend: Backend) -> None:
    """Cancelled while its snapshot is taken, the first member's sandbox is killed; the others set up themselves."""
    starts = Starts(backend, backend.start)

    async def set_up(sandbox: Sandbox) -> None:
        return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(starts.get, "group", 3, Want(), set_up)
        await backend.gate.reached.wait()
        assert backend.alive == 1
        tasks.cancel_scope.cancel()
    assert backend.alive == 0
    assert (await starts.get("group", 1, Want(), set_up)).alive


async def test_a_snapshot_that_has_gone_says_nothing_of_the_infrastructure(backend: Backend) -> None:
    """Members whose group's snapshot was displaced set up themselves, and the profile's breaker stays closed."""
    backend.gate.reached.set()
    pool = Pool(backend, SETTINGS)
    guard = Guard(SETTINGS, pool)
    starts = Starts(backend, guard.start)

    async def set_up(sandbox: Sandbox) -> None:
        assert pool.problem is None

    for _ in range(6):
        assert (await starts.get("group", 9, Want(), set_up)).alive
    assert guard.may_pull
    assert guard.may_refill("python")
    assert pool.problem is None


async def test_a_profile_that_is_not_here_stops_no_other(worker: Worker, backend: Backend) -> None:
    """The first messages of a service may name a profile that it has not: those of other profiles are still pulled."""

    async def start(want: Want) -> NullSandbox:
        if want.profile != "python":
            raise NotHere(f"no profile {want.profile!r}")
        return await Backend.start(backend, want)

    backend.start = start  # type: ignore[method-assign]
    guard = worker.guard
    for profile in ("nonsense", "nonsense", "geometry", "geometry"):
        with pytest.raises(StartFailed):
            await guard.start(Want(profile=profile))
    assert not guard.may_refill("geometry")
    assert guard.may_pull
    for _ in range(2):
        guard.count_backend("python", 1.0)
    assert not guard.may_pull, "all that is here fails"


async def test_every_end_of_a_turn_gives_its_seat_back(worker: Worker, backend: Backend) -> None:
    """After turns that fail at each step no sandbox is counted any more."""
    backend.gate.reached.set()
    backend.gate.open.set()
    await worker.turn(act(0))
    await worker.sessions.close()
    broken = msgspec.structs.replace(act(1), deadline=1.0)
    await worker.turn(broken)
    worker.guard.live.prune()
    assert not worker.guard.admission.running
