"""Programs that use up what they can: memory, CPU, processes, output, disk. Numbers are those of the abuse catalogue.

Each case also leaves nothing on the host (the fixture checks) and says whose fault it was.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import pytest

from tiltyard.sandbox.backend import Sandbox
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("case")]


LIMITS = ExecLimits(wall_s=5.0)


async def sh(sandbox: Sandbox, script: str, limits: ExecLimits = LIMITS) -> Execution:
    return await sandbox.run(Command(argv=("bash", "-c", script), limits=limits))


async def py(sandbox: Sandbox, source: str, limits: ExecLimits = LIMITS) -> Execution:
    return await sandbox.run(Command(argv=("python3", "main.py"), files={"main.py": source.encode()}, limits=limits))


async def assert_serves(sandbox: Sandbox) -> None:
    """The sandbox runs its next command as if nothing had been."""
    found = await sh(sandbox, "echo fine")
    assert (found.outcome, found.stdout) == (Outcome.FINISHED, b"fine\n")


@pytest.mark.parametrize(
    "source",
    [
        "block = b'x' * (4 << 30)",
        "import os\nif os.fork() == 0:\n    block = b'x' * (4 << 30)\nos.wait()",
        "blocks = []\nwhile True: blocks.append(bytearray(1 << 20))",
    ],
)
async def test_1_2_memory(sandbox: Sandbox, source: str) -> None:
    """More memory than allowed, in the main process or a child, ends the sandbox as the policy's fault, quickly."""
    begun = time.monotonic()
    found = await py(sandbox, "print('before', flush=True)\n" + source)
    assert found.outcome is Outcome.OUT_OF_MEMORY, found
    assert time.monotonic() - begun < 4
    assert not sandbox.alive


async def test_memory_limit_follows_the_command(sandbox: Sandbox) -> None:
    """What one command may use another may not, in the same sandbox."""
    eat = "block = b'x' * (150 << 20); print(len(block) >> 20)"
    assert (await py(sandbox, eat, ExecLimits(memory_bytes=256 << 20))).stdout == b"150\n"
    found = await py(sandbox, eat, ExecLimits(memory_bytes=16 << 20))
    assert found.outcome is Outcome.OUT_OF_MEMORY


async def test_4_busy_loop(sandbox: Sandbox) -> None:
    """A busy loop is stopped at the wall limit, its output kept, the sandbox usable."""
    found = await py(sandbox, "print('begun', flush=True)\nwhile True: pass", ExecLimits(wall_s=0.5))
    assert (found.outcome, found.stdout) == (Outcome.WALL_LIMIT, b"begun\n")
    assert found.wall_s < 1.5
    await assert_serves(sandbox)


async def test_4_cpu_limit(sandbox: Sandbox) -> None:
    """CPU time is limited besides wall time."""
    found = await py(sandbox, "while True: pass", ExecLimits(wall_s=20.0, cpu_s=1.0))
    assert found.outcome is Outcome.WALL_LIMIT
    assert "CPU" in found.detail
    assert 0.9 < found.cpu_s < 2.5


async def test_5_all_signals_ignored(sandbox: Sandbox) -> None:
    """Ignoring every signal does not help."""
    source = """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: time.sleep(1)
"""
    found = await py(sandbox, source, ExecLimits(wall_s=0.5))
    assert found.outcome is Outcome.WALL_LIMIT
    assert found.wall_s < 1.5
    await assert_serves(sandbox)


FORK_LOOP = """
import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(30)
    except OSError:
        raise SystemExit(1)
"""
THREADS = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(0.3,)).start()"


@pytest.mark.parametrize(
    "run",
    [
        lambda sandbox: sh(sandbox, ":(){ :|:& };:; sleep 1"),
        lambda sandbox: py(sandbox, FORK_LOOP),
        lambda sandbox: py(sandbox, THREADS),
    ],
    ids=["bash-bomb", "fork-loop", "threads"],
)
async def test_6_7_process_bombs(sandbox: Sandbox, run: Callable[[Sandbox], object]) -> None:
    """Fork and thread bombs meet the process limit, are named as such, and the sandbox goes on.

    A shell may cope with refused forks and end well before anybody counts; then its own words must tell.
    """
    found = await run(sandbox)  # type: ignore[misc]
    coped = found.outcome is Outcome.FINISHED and b"fork: " in found.stderr
    assert found.outcome is Outcome.PROCESS_LIMIT or coped, found
    assert sandbox.alive
    await assert_serves(sandbox)


async def test_8_daemon(sandbox: Sandbox) -> None:
    """A twice forked daemon in its own session is gone after the command."""
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in (0, 1, 2): os.close(fd)
        while True:
            time.sleep(0.01)
            open('alive', 'w').write(str(time.time()))
    os._exit(0)
time.sleep(0.1)
"""
    assert (await py(sandbox, source)).outcome is Outcome.FINISHED
    found = await sh(sandbox, "ls /proc | grep -c '^[0-9]'; rm -f alive; sleep 0.1; ls alive")
    assert b"No such file" in found.stderr


async def test_9_orphans(sandbox: Sandbox) -> None:
    """A thousand orphans, one after another, leave no zombies and do not use up the process limit."""
    script = "for ((i = 0; i < 1000; i++)); do ( : & ); done; echo made"
    found = await sh(sandbox, script, ExecLimits(wall_s=50.0, cpu_s=50.0))
    assert (found.outcome, found.stdout) == (Outcome.FINISHED, b"made\n"), found
    found = await py(sandbox, "import os; print(sum(n.isdigit() for n in os.listdir('/proc')))")
    assert found.stdout == b"2\n"


async def test_10_background_child_holds_stdout(sandbox: Sandbox) -> None:
    """A background child that keeps stdout open does not delay the answer."""
    begun = time.monotonic()
    found = await sh(sandbox, "sleep 30 & echo done")
    assert found.stdout == b"done\n"
    assert time.monotonic() - begun < 1.0


@pytest.mark.parametrize(
    "script",
    ["yes", "yes >&2", "head -c 100M /dev/zero | tr '\\0' a", "while :; do head -c 1M /dev/urandom; done"],
)
async def test_11_output_flood(sandbox: Sandbox, script: str) -> None:
    """A flood of output is cut off and counted; memory of the service stays flat; the sandbox goes on."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = await sh(sandbox, script, ExecLimits(wall_s=8.0, output_bytes=4096))
    assert found.outcome is Outcome.OUTPUT_LIMIT, found
    assert max(len(found.stdout), len(found.stderr)) == 4096
    assert found.stdout_dropped + found.stderr_dropped > 1 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10
    await assert_serves(sandbox)


async def test_13_stdin_reader(sandbox: Sandbox) -> None:
    """A program that reads stdin meets its end at once."""
    found = await sh(sandbox, "cat; read line; echo $?")
    assert found.stdout == b"1\n"


@pytest.mark.parametrize(
    ("script", "full"),
    [
        ("head -c 200M /dev/zero > one", True),
        ("i=0; while head -c 1M /dev/zero > f$i; do i=$((i+1)); done; exit 1", True),
        ("exec 3> gone; rm gone; head -c 200M /dev/zero >&3", False),
        ("head -c 200M /dev/zero > /tmp/one", True),
        ("head -c 200M /dev/zero > /dev/shm/one", False),
        ("truncate -s 1T sparse", False),
        ("echo > /dev/new || echo > /etc/new || echo > /usr/new", False),
    ],
    ids=["one-file", "many-files", "unlinked", "tmp", "shm", "sparse", "elsewhere"],
)
async def test_14_disk_fill(sandbox: Sandbox, script: str, full: bool) -> None:
    """The disk has an end everywhere, named as such while it is full; memory is not used up by it."""
    found = await sh(sandbox, script, ExecLimits(wall_s=10.0, cpu_s=10.0))
    if full:
        assert found.outcome is Outcome.DISK_LIMIT, found
        assert b"No space left" in found.stderr or b"File size limit" in found.stderr
    else:
        assert found.outcome in (Outcome.NONZERO_EXIT, Outcome.DISK_LIMIT), found
    assert sandbox.alive
    await sh(sandbox, "rm -rf /workspace/* /tmp/* /dev/shm/*")
    await assert_serves(sandbox)
