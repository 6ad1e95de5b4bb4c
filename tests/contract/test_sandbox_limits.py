"""What every back-end that isolates promises: limits hold, each is told apart, and nothing of the host is inside."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import anyio
import pytest
from support.sandbox_host import processes_of, traces
from support.sandboxes import ISOLATING, open_named

from tiltyard.sandbox import gvisor
from tiltyard.sandbox.backend import Backend, Sandbox, SnapshotFailed, StartFailed, Want, WorkspaceFull
from tiltyard.sandbox.bubblewrap import BubblewrapBackend
from tiltyard.sandbox.docker import DockerBackend
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(allow_untrusted_process=True)


@pytest.fixture(scope="module", params=ISOLATING)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    opened = open_named(request.param, SETTINGS)
    yield opened
    await opened.close()
    assert opened.leaked == 0
    if not isinstance(opened, GVisorBackend | BubblewrapBackend | DockerBackend):
        raise TypeError(request.param)
    assert not opened.instance.path.exists()
    assert processes_of(opened.instance.id) == []


@pytest.fixture
async def sandbox(backend: Backend) -> AsyncIterator[Sandbox]:
    made = await backend.start(Want(disk_bytes=16 << 20))
    yield made
    await made.kill()
    assert await left_of(backend, made) == []


async def left_of(backend: Backend, sandbox: Sandbox) -> list[str]:
    """What is left of a sandbox that was killed."""
    if not isinstance(backend, DockerBackend):
        return traces(backend, sandbox.id)  # type: ignore[arg-type]
    containers = await backend.docker.call("GET", "/containers/json", all="1")
    return [item["Names"][0] for item in containers if sandbox.id in item["Names"][0]]


async def py(sandbox: Sandbox, source: str, **limits: float) -> Execution:
    chosen = ExecLimits(**{"disk_bytes": 16 << 20, **limits})  # type: ignore[arg-type]
    return await sandbox.run(Command(argv=("python3", "m.py"), files={"m.py": source.encode()}, limits=chosen))


async def test_memory(sandbox: Sandbox) -> None:
    """Too much memory, in the main process or in a child, is told from any other kill."""
    found = await py(sandbox, "b = b'x' * (1 << 30)", memory_bytes=64 << 20)
    assert found.outcome is Outcome.OUT_OF_MEMORY
    assert "memory" in found.detail


async def test_processes(sandbox: Sandbox) -> None:
    """At the limit of processes a fork fails inside, the limit is named, and the sandbox goes on."""
    source = "import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(9)\n        os._exit(0)\n"
    found = await py(sandbox, source, processes=12)
    assert found.outcome is Outcome.PROCESS_LIMIT
    assert b"BlockingIOError" in found.stderr
    assert (await py(sandbox, "print(1)", processes=12)).stdout == b"1\n"


async def test_the_process_limit_is_each_sandboxs_own(backend: Backend, sandbox: Sandbox) -> None:
    """Processes of one sandbox take nothing from the limit of another."""
    other = await backend.start(Want(disk_bytes=16 << 20))
    source = (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        time.sleep(0.5)\n        os._exit(0)\n"
    )
    try:
        first = py(sandbox, source + "time.sleep(0.3)", processes=10)
        found = await _both(first, py(other, source, processes=10))
        assert [one.outcome for one in found] == [Outcome.FINISHED, Outcome.FINISHED]
    finally:
        await other.kill()


async def _both(*runs: object) -> list[Execution]:
    found: dict[int, Execution] = {}

    async def keep(number: int, run: object) -> None:
        found[number] = await run  # type: ignore[misc]

    async with anyio.create_task_group() as tasks:
        for number, run in enumerate(runs):
            tasks.start_soon(keep, number, run)
    return [found[number] for number in sorted(found)]


async def test_a_long_command_gives_way(backend: Backend, sandbox: Sandbox) -> None:
    """While a command runs for long its sandbox has a smaller share of the processors, and the usual one afterwards."""
    if isinstance(backend, DockerBackend):
        pytest.skip("the engine owns the control groups")
    group = backend.tree.group(backend.instance.group_name(sandbox.id))  # type: ignore[attr-defined]
    weight = group.paths["cpu"] / ("cpu.weight" if group.version == 2 else "cpu.shares")
    usual = int(weight.read_text())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.run, Command(argv=("sleep", "30")))
        with anyio.fail_after(10):
            while int(weight.read_text()) >= usual:  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.05)
        await sandbox.interrupt()
    assert int(weight.read_text()) == usual


async def test_plans_are_remembered_within_bounds(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that each ask for a disk of their own size leave neither files nor ever more plans behind."""
    if not isinstance(backend, GVisorBackend):
        pytest.skip("the others make none")
    monkeypatch.setattr(gvisor, "PLANS", 2)
    before = set(backend.instance.path.iterdir())
    for size in range(4):
        await (await backend.start(Want(disk_bytes=(64 + size) << 20))).kill()
    assert len(backend._plans) >= 2
    assert Want(disk_bytes=64 << 20) not in backend._plans
    assert set(backend.instance.path.iterdir()) == before


async def test_disk(sandbox: Sandbox) -> None:
    """A full workspace and a full /tmp are seen inside as no space, and are named."""
    source = "for n in range(9):\n    open(f'{n}', 'wb').write(bytes(3 << 20))\n"
    found = await py(sandbox, source)
    assert found.outcome is Outcome.DISK_LIMIT
    assert b"No space left" in found.stderr
    found = await py(sandbox, "import os\nos.chdir('/tmp')\n" + source)
    assert (found.outcome, b"No space left" in found.stderr) == (Outcome.DISK_LIMIT, True)


async def test_a_file_that_does_not_fit_leaves_nothing(sandbox: Sandbox) -> None:
    """What is written before stays, the half of a file that filled the disk does not, and commands are as before."""
    await sandbox.write({"small": b"here"})
    with pytest.raises(WorkspaceFull, match="no room"):
        await sandbox.write({"big": bytes(20 << 20)})
    assert [entry.path for entry in await sandbox.entries()] == ["small"]
    found = await sandbox.run(Command(argv=("sh", "-c", "head -c 8000000 /dev/zero > more; exit 3")))
    assert (found.outcome, found.exit_code) == (Outcome.NONZERO_EXIT, 3)


def test_a_sandbox_has_a_disk() -> None:
    """No disk, or less than none, is the caller's mistake."""
    with pytest.raises(ValueError, match="disk_bytes: expected at least 1, got 0"):
        Want(disk_bytes=0)


async def test_no_network(sandbox: Sandbox) -> None:
    """Nothing outside is reached, and trying does not hang; the loopback works."""
    source = """
import socket
for family, address in ((2, "1.1.1.1"), (2, "169.254.169.254"), (10, "2606:4700:4700::1111")):
    try:
        socket.create_connection((address, 80), timeout=3)
    except TimeoutError:
        print("hangs")
    except OSError:
        print("refused")
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname()).sendall(b"hello")
print(server.accept()[0].recv(9))
"""
    assert (await py(sandbox, source)).stdout == b"refused\nrefused\nrefused\nb'hello'\n"


async def test_the_user_inside(sandbox: Sandbox) -> None:
    """A command is nobody: it can't touch its init, the protocol or the image, and has no way back to root."""
    source = """
import os, stat
def tries(name, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        print(name, error.strerror)
print(os.getresuid(), os.getresgid(), os.getgroups())
tries("kill", os.kill, 1, 9)
for number in range(30):
    try:
        if stat.S_ISFIFO(os.stat(os.open(f"/proc/1/fd/{number}", os.O_WRONLY | os.O_NONBLOCK)).st_mode):
            print("protocol", number)
    except OSError:
        continue
tries("memory", open, "/proc/1/mem", "r+b")
tries("image", open, "/usr/bin/new", "w")
tries("root", os.setuid, 0)
print([line for line in open("/proc/self/status") if line.startswith("CapEff")])
"""
    lines = (await py(sandbox, source)).stdout.decode().splitlines()
    assert lines[0] == "(1000, 1000, 1000) (1000, 1000, 1000) []"
    assert [line.split()[0] for line in lines[1:-1]] == ["kill", "memory", "image", "root"]
    assert lines[-1].endswith("0000000000000000\\n']")


async def test_nothing_of_the_host(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's environment, files, processes and name do not reach the inside, not even of the init."""
    source = """
import os, socket
print(sorted(os.environ), socket.gethostname(), sum(name.isdigit() for name in os.listdir("/proc")))
print(os.path.exists("/root/.cache"), os.path.exists("/var/run/docker.sock"), os.listdir("/home"))
"""
    found = await py(sandbox, source)
    names = "HOME LC_ALL OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH PYTHONDONTWRITEBYTECODE PYTHONHASHSEED TERM TMPDIR"
    first, second = found.stdout.decode().splitlines()
    assert first == f"{sorted(names.split())} sandbox 2"
    assert second == "False False []"
    assert set(os.environ) - set(names.split())


async def test_what_weaker_back_ends_refuse(backend: Backend, sandbox: Sandbox) -> None:
    """What shares the host's kernel is refused for a model's code unless it is allowed; what can't be done is said."""
    with pytest.raises(ValueError, match="host's kernel"):
        SandboxSettings(backend="bubblewrap")
    with pytest.raises(ValueError, match="host's kernel"):
        SandboxSettings(backend="docker", docker_runtime="runc")
    if not isinstance(backend, GVisorBackend):
        with pytest.raises(SnapshotFailed):
            await backend.snapshot(sandbox)
        with pytest.raises(StartFailed, match="way out"):
            await backend.start(Want(egress=("example.org",)))
