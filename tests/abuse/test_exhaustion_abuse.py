"""Programs that use up what is counted in pieces: address space, files, names, descriptors, commands, shares of CPU."""

from __future__ import annotations

import os
import time

import anyio
import pytest

from tiltyard.sandbox.backend import Sandbox, SandboxError, Want, WorkspaceTooLarge
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("case")]
LIMITS = ExecLimits(wall_s=15.0, cpu_s=15.0)


async def sh(sandbox: Sandbox, script: str, limits: ExecLimits = LIMITS) -> Execution:
    return await sandbox.run(Command(argv=("bash", "-c", script), limits=limits))


async def py(sandbox: Sandbox, source: str, limits: ExecLimits = LIMITS) -> Execution:
    return await sandbox.run(Command(argv=("python3", "main.py"), files={"main.py": source.encode()}, limits=limits))


async def assert_serves(sandbox: Sandbox) -> None:
    found = await sh(sandbox, "echo fine")
    assert (found.outcome, found.stdout) == (Outcome.FINISHED, b"fine\n")


async def test_3_address_space(sandbox: Sandbox) -> None:
    """A program that limits its own address space gets a MemoryError, and the sandbox lives."""
    found = await sh(sandbox, "ulimit -v 300000; python3 -c 'x = bytearray(1 << 30)'")
    assert (found.outcome, found.exit_code) == (Outcome.NONZERO_EXIT, 1)
    assert b"MemoryError" in found.stderr
    await assert_serves(sandbox)


async def test_12_binary_output(sandbox: Sandbox) -> None:
    """Bytes of every value, and no text in any encoding, arrive as they were written, on both streams."""
    everything = bytes(range(256)) * 8 + b"\xff\xfe\x00\xed\xa0\x80"
    source = f"import os\ndata = {everything!r}\nos.write(1, data)\nos.write(2, data[::-1])"
    found = await py(sandbox, source)
    assert (found.stdout, found.stderr) == (everything, everything[::-1])


async def test_15_many_files(sandbox: Sandbox) -> None:
    """Files without end are bounded by memory or time; the workspace is refused as a whole and goes, quickly."""
    source = """
import os
try:
    for directory in range(1000):
        os.mkdir(str(directory))
        for number in range(400):
            os.close(os.open(f"{directory}/{number}", os.O_CREAT | os.O_WRONLY))
except OSError as error:
    raise SystemExit(error.errno)
"""
    found = await py(sandbox, source, ExecLimits(wall_s=6.0, cpu_s=20.0, memory_bytes=128 << 20))
    assert found.outcome in (Outcome.WALL_LIMIT, Outcome.DISK_LIMIT, Outcome.OUT_OF_MEMORY, Outcome.NONZERO_EXIT), found
    begun = time.monotonic()
    if sandbox.alive:
        with pytest.raises(WorkspaceTooLarge):
            await sandbox.export()
    await sandbox.kill()
    assert time.monotonic() - begun < 5


async def test_15_names(sandbox: Sandbox) -> None:
    """Names of any bytes are carried as they are."""
    names = [b"n" * 255, b"line\nbreak", b"\xff\xfe", b" ", b"-rf", b"..."]
    await py(sandbox, f"for name in {names!r}:\n    open(name, 'wb').write(name)")
    await sandbox.restore(await sandbox.export())
    listed = await sandbox.listing()
    assert {name: listed[os.fsdecode(name)] for name in names} == {name: name for name in names}


async def test_15_deep_tree(sandbox: Sandbox) -> None:
    """A tree 300 deep is refused as a whole, and goes quickly with its sandbox."""
    source = "import os\nfor _ in range(300):\n    os.mkdir('d')\n    os.chdir('d')\nprint(os.getcwd().count('/d'))"
    assert (await py(sandbox, source)).stdout == b"300\n"
    begun = time.monotonic()
    with pytest.raises(WorkspaceTooLarge):
        await sandbox.export()
    await assert_serves(sandbox)
    await sandbox.kill()
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "make",
    [
        "os.open('/dev/null', os.O_RDONLY)",
        "socket.socket()",
        "os.pipe()",
        "os.dup(0)",
        "os.eventfd(0)",
    ],
)
async def test_16_descriptors(sandbox: Sandbox, make: str) -> None:
    """Descriptors of every kind have an end, said by errno; those of the host stay where they were."""
    source = f"import errno, os, socket\nheld = []\ntry:\n    while True: held.append({make})\n"
    source += "except OSError as error:\n    print(errno.errorcode[error.errno], len(held) <= 4096)"
    assert (await py(sandbox, source)).stdout in (b"EMFILE True\n", b"ENFILE True\n")
    await assert_serves(sandbox)


async def test_16_mappings(sandbox: Sandbox) -> None:
    """Mappings without end meet a limit or the wall, and the next command runs."""
    source = """
import mmap
held = []
try:
    while True: held.append(mmap.mmap(-1, 4096))
except (OSError, MemoryError):
    print("refused")
"""
    found = await py(sandbox, source, ExecLimits(wall_s=4.0, cpu_s=10.0))
    assert found.outcome in (Outcome.FINISHED, Outcome.WALL_LIMIT, Outcome.OUT_OF_MEMORY), found
    if sandbox.alive:
        await assert_serves(sandbox)


async def test_25_64_commands_at_once(sandbox: Sandbox) -> None:
    """They run one after the other or are refused by a typed error; none gets another's output, none hangs."""
    results: dict[int, bytes | None] = {}

    async def one(number: int) -> None:
        try:
            found = await sh(sandbox, f"echo {number}", ExecLimits(wall_s=50.0))
        except SandboxError:
            results[number] = None
            return
        assert found.outcome is Outcome.FINISHED, found
        results[number] = found.stdout

    async with anyio.create_task_group() as tasks:
        for number in range(64):
            tasks.start_soon(one, number)
    assert len(results) == 64
    assert all(text in (None, f"{number}\n".encode()) for number, text in results.items())
    assert sum(text is not None for text in results.values()) >= 8
    await assert_serves(sandbox)


async def test_26_hogs_share(gvisor: GVisorBackend) -> None:
    """Four endless loops on the machine's cores all get on, none at the others' cost; a neighbour still answers."""
    hogs = [await gvisor.start(Want()) for _ in range(4)]
    used: list[float] = []

    async def burn(sandbox: Sandbox) -> None:
        before = sandbox.counters().cpu_s  # type: ignore[attr-defined]
        await py(sandbox, "while True: pass", ExecLimits(wall_s=3.0, cpu_s=60.0))
        used.append(sandbox.counters().cpu_s - before)  # type: ignore[attr-defined]
        await sandbox.kill()

    async with anyio.create_task_group() as tasks:
        for sandbox in hogs:
            tasks.start_soon(burn, sandbox)
    assert min(used) > 0.1
    assert max(used) < 10 * min(used), used  # about the same on a quiet machine
