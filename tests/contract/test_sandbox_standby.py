"""Scripts run in a fork that waits for them: they see no difference, and nobody sees the fork."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from support.sandboxes import BACKENDS, bash, open_named

from tiltyard.sandbox.backend import Backend, Sandbox, Want
from tiltyard.sandbox.process import ProcessBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(allow_untrusted_process=True)
SHOW = """
import os, random, sys
print(sys.argv[1:], sys.stdin.read(), os.environ["COLOUR"], os.getcwd(), os.getuid(), os.umask(0))
print(random.random())
print(sorted(os.listdir("/proc/self/fd")), file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(scope="module", params=BACKENDS)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    opened = open_named(request.param, SETTINGS)
    yield opened
    await opened.close()
    assert opened.leaked == 0


@pytest.fixture
async def sandbox(backend: Backend) -> AsyncIterator[Sandbox]:
    made = await backend.start(Want())
    yield made
    await made.kill()


async def script(sandbox: Sandbox, source: str, *arguments: str, stdin: bytes = b"") -> Execution:
    argv = ("python3", "-c", source, *arguments)
    return await sandbox.run(
        Command(argv=argv, stdin=stdin, env={"COLOUR": "green"}, files={"deep/x": b""}, cwd="deep")
    )


async def test_a_script_sees_no_difference(sandbox: Sandbox) -> None:
    """The first is forked, those after it had waited: arguments, streams, variables, directory, descriptors are the
    same, and random numbers are not."""
    found = [await script(sandbox, SHOW, "a", "b c", stdin=b"given") for _ in range(3)]
    assert [(one.outcome, one.exit_code) for one in found] == [(Outcome.NONZERO_EXIT, 7)] * 3
    words = [one.stdout.split() for one in found]
    assert words[0][:-1] == words[1][:-1] == words[2][:-1]
    assert len({line[-1] for line in words}) == 3
    assert found[0].stderr == found[1].stderr == found[2].stderr


async def test_large_and_failing_scripts(sandbox: Sandbox) -> None:
    """One larger than a pipe arrives whole; a directory that is not there is said as usual."""
    await script(sandbox, "")
    large = f"text = {'x' * 100_000!r}\nprint(len(text))"
    assert (await script(sandbox, large)).stdout == b"100000\n"
    lost = await sandbox.run(Command(argv=("python3", "-c", "print(1)"), cwd="nowhere"))
    assert (lost.exit_code, lost.stdout) == (127, b"")
    assert b"nowhere" in lost.stderr
    assert (await script(sandbox, "print(2)")).stdout == b"2\n"


async def test_the_waiting_fork_is_not_counted(sandbox: Sandbox) -> None:
    """Neither as something that goes on, nor against a limit; what a command leaves is swept around it."""
    await script(sandbox, "")
    assert await sandbox.rest()
    found = await sandbox.run(Command(argv=("bash", "-c", "exit 3"), limits=ExecLimits(processes=2)))
    assert (found.outcome, found.exit_code) == (Outcome.NONZERO_EXIT, 3)
    await bash(sandbox, "setsid sleep 60 > /dev/null 2>&1 &")
    assert await sandbox.rest()
    assert (await script(sandbox, "print(2)")).stdout == b"2\n"


def descendants(pid: int) -> list[int]:
    """Processes below one, the oldest first."""
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found


def dead(pid: int) -> bool:
    """Has it ended, reaped or not?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


async def test_one_that_died_is_replaced() -> None:
    """A fork that is gone when its script comes costs that script a fork, and nothing else."""
    backend = ProcessBackend(SETTINGS)
    try:
        sandbox = await backend.start(Want())
        (cell,) = backend.live
        before = set(descendants(cell.process.pid))
        await script(sandbox, "")
        with anyio.fail_after(10):
            while not (found := set(descendants(cell.process.pid)) - before):  # noqa: ASYNC110  (made after the answer)
                await anyio.sleep(0.01)
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            while not all(dead(pid) for pid in found):  # noqa: ASYNC110  (nobody announces it)
                await anyio.sleep(0.01)
        for number in range(3):
            assert (await script(sandbox, f"print({number})")).stdout == b"%d\n" % number
        await sandbox.kill()
    finally:
        await backend.close()
