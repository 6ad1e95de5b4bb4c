"""The scenarios of the sandbox benchmark on the gVisor back-end, each a few dozen operations and its samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
from sandbox_costs import Accounts, Samples

from tiltyard.sandbox.backend import Sandbox, Want
from tiltyard.sandbox.cgroups import Tree
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import GROUP
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command
from tiltyard_proto.outcomes import Outcome

TRUE = Command(argv=("true",))
PASS = Command(argv=("python3", "-c", "pass"))
NUMPY = Command(argv=("python3", "main.py"), files={"main.py": b"import numpy\nassert numpy.arange(4).sum() == 6"})
NUMPY_FRESH = Command(argv=("python3", "-c", "import numpy; assert numpy.arange(4).sum() == 6"))


async def must(sandbox: Sandbox, command: Command) -> None:
    """Run a command that must succeed."""
    found = await sandbox.run(command)
    if found.outcome is not Outcome.FINISHED:
        raise RuntimeError(f"{command.argv}: {found.outcome.value} {found.detail} {found.stderr[-200:]!r}")


async def claims(backend: GVisorBackend, account: Accounts, rounds: int, paused: bool) -> Samples:
    """Claim a warm sandbox and get an answer, a group of 16 at a time; with refills under way unless `paused`."""
    pool, stop, samples = Pool(backend, backend.settings), anyio.Event(), Samples(account)
    shelf = pool.shelves[Want()]

    async def claim() -> Sandbox:
        sandbox = await pool.claim(Want())
        await sandbox.read(())
        return sandbox

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.serve, stop)
        for _ in range(rounds):
            while len(shelf.idle) < max(16, shelf.target) or shelf.starting:  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.02)
            pool.may_refill = lambda _: not paused
            claimed = [await samples.of(claim) for _ in range(16)]
            pool.may_refill = lambda _: True
            for sandbox in claimed:
                await sandbox.kill()
        stop.set()
    return samples


async def runs(
    backend: GVisorBackend, account: Accounts, want: Want, command: Command, sizes: tuple[int, int]
) -> Samples:
    """A command in sandboxes that are there: how many sandboxes, how often in each (the first does not count)."""
    samples = Samples(account)
    for _ in range(sizes[0]):
        sandbox = await backend.start(want)
        await must(sandbox, command)
        for _ in range(sizes[1]):
            await samples.of(lambda sandbox=sandbox: must(sandbox, command))  # type: ignore[misc]
        await sandbox.kill()
    return samples


async def starts(backend: GVisorBackend, account: Accounts, want: Want, count: int) -> tuple[Samples, Samples]:
    """One start after another to an answering agent, and the end of each."""
    begun, ended = Samples(account), Samples(account)
    await (await backend.start(want)).kill()
    for _ in range(count):
        sandbox = await begun.of(lambda: backend.start(want))
        await ended.of(sandbox.kill)
    return begun, ended


async def creations(backend: GVisorBackend, count: int, at_once: int) -> float:
    """Sandboxes started a second, `at_once` at a time, each at rest when it is ready, as in the pool."""
    made: list[Sandbox] = []
    limiter = anyio.Semaphore(at_once)

    async def one() -> None:
        async with limiter:
            sandbox = await backend.start(Want())
            await sandbox.rest()
            made.append(sandbox)

    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    seconds = time.perf_counter() - begun
    for sandbox in made:
        await sandbox.kill()
    return count / seconds


async def idle_mib(backend: GVisorBackend, want: Want, count: int) -> float:
    """MiB charged for each of `count` idle sandboxes, all of them alive at the end."""
    made: list[Sandbox] = []
    limiter = anyio.Semaphore(4)

    async def one() -> None:
        async with limiter:
            sandbox = await backend.start(want)
            await sandbox.rest()  # as in the pool
            made.append(sandbox)

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    await anyio.sleep(1.0)  # let them come to rest
    total = sum(charged(backend, sandbox.id) for sandbox in made)
    for sandbox in made:
        await sandbox.read(())
        await sandbox.kill()
    return total / count / (1 << 20)


def charged(backend: GVisorBackend, name: str) -> int:
    """Bytes charged to a sandbox's group now."""
    folder = backend.tree.group(backend.instance.group_name(name)).paths["memory"]
    return int((folder / ("memory.current" if backend.tree.version == 2 else "memory.usage_in_bytes")).read_text())


async def killed_service(settings: SandboxSettings, count: int) -> tuple[float, int]:
    """Seconds from SIGKILL of a service with busy sandboxes to their last process, and what a restart finds left."""
    command = [sys.executable, str(Path(__file__).with_name("sandbox_busy.py"))]
    command += [msgspec.json.encode(settings).decode(), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: ASYNC220
    assert process.stdout is not None
    instance = process.stdout.readline().strip()
    assert process.stdout.readline().strip() == "ready"
    tree = Tree.find()
    groups = [tree.group(f"{GROUP}/{instance}/{name}") for name in tree.names(f"{GROUP}/{instance}")]
    assert sum(len(group.pids()) for group in groups) >= 2 * count
    begun = time.perf_counter()
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(group.pids() for group in groups):  # noqa: ASYNC110
        await anyio.sleep(0.005)
    seconds = time.perf_counter() - begun
    process.stdout.close()
    backend = GVisorBackend.open(settings)
    left = len(tree.names(f"{GROUP}/{instance}")) + (Path(settings.home) / "run" / instance).exists() + backend.leaked
    await backend.close()
    return seconds, left


class Rollouts:
    """The same work on our path: a sandbox from the pool or started cold, a command, and nothing left."""

    def __init__(self, backend: GVisorBackend) -> None:
        self.backend = backend
        pools = {"python": 2, "with-numpy": 2}
        self.pool = Pool(backend, msgspec.structs.replace(backend.settings, pool=pools, pool_most=2))
        self.stop = anyio.Event()
        self.want = Want()
        """What comes from the pool: for work with numpy the profile that has it loaded."""

    async def from_pool(self, argv: tuple[str, ...]) -> None:
        await self._use(await self.pool.claim(self.want), argv)

    async def cold(self, argv: tuple[str, ...]) -> None:
        await self._use(await self.backend.start(Want()), argv)

    async def _use(self, sandbox: Sandbox, argv: tuple[str, ...]) -> None:
        await must(sandbox, Command(argv=argv))
        await sandbox.kill()

    async def settled(self) -> None:
        """Wait until the pool is full, so that no refill runs beside what is measured next."""
        while any(len(shelf.idle) < shelf.least for shelf in self.pool.shelves.values()):  # noqa: ASYNC110
            await anyio.sleep(0.01)


Way = Callable[[tuple[str, ...]], Awaitable[None]]


async def beside(
    account: Accounts, ways: dict[str, Way], argv: tuple[str, ...], rounds: int, rollouts: Rollouts
) -> dict[str, Samples]:
    """The same work by every way in turn, `rounds` times."""
    found = {name: Samples(account) for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            await rollouts.settled()
            sample = found[name] if number else Samples(account)  # the first of each warms its caches
            await sample.of(lambda way=way: way(argv))  # type: ignore[misc]
    return found
