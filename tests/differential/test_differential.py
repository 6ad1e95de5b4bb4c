"""The same benign programs under bubblewrap (the host's kernel) and under gVisor end in the same way.

Compared: how it ended, exit status or signal, both streams byte for byte, and every file left in the workspace. Each
program starts in an empty workspace; a sandbox is used for the next one after it has been emptied.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import anyio
import pytest
from differential import families, library, scripts, shell, tools

from tiltyard.sandbox.backend import Backend, Sandbox, Want
from tiltyard.sandbox.bubblewrap import BubblewrapBackend
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings()
LIMITS = ExecLimits(wall_s=20.0, cpu_s=20.0, processes=64)
EMPTY = """
import os
def clear(folder):
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            clear(entry.path)
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)
for folder in ("/workspace", "/tmp", "/dev/shm"):
    clear(folder)
"""
PID = re.compile(rb"(bash: line \d+:) +\d+ ")
"""In what bash says of a job."""
STDIN = b"first line\nsecond\n\nlast"
Ending = dict[str, object]


def tables(module: object) -> dict[str, str]:
    """All programs of a module, by name."""
    return {name: text for key, table in vars(module).items() if key.isupper() for name, text in table.items()}


PYTHON = tables(scripts) | tables(library) | families.python()
SHELL = tables(shell) | tables(tools) | families.shell()
PROGRAMS = [("python", name) for name in PYTHON] + [("shell", name) for name in SHELL]


def command(kind: str, name: str) -> Command:
    if kind == "python":
        files = {"main.py": PYTHON[name].encode()}
        return Command(argv=("python3", "main.py"), files=files, stdin=STDIN, limits=LIMITS)
    return Command(argv=("bash", "-c", SHELL[name]), stdin=STDIN, limits=LIMITS)


class Side:
    """A back-end and the sandbox in use on it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.sandbox: Sandbox | None = None

    async def run(self, asked: Command) -> Ending:
        """How a program ends in an empty workspace."""
        if self.sandbox is None or not self.sandbox.alive:
            self.sandbox = await self.backend.start(Want())
        found = await self.sandbox.run(asked)
        ending: Ending = {
            "outcome": found.outcome,
            "exit_code": found.exit_code,
            "signal": found.signal,
            "stdout": found.stdout,
            "stderr": PID.sub(rb"\1 ", found.stderr),
            "files": await self.sandbox.export(),
        }
        clear = {"clear.py": EMPTY.encode()}
        emptied = await self.sandbox.run(Command(argv=("python3", "clear.py"), files=clear, limits=LIMITS))
        if emptied.exit_code:
            await self.sandbox.kill()
        return ending


@pytest.fixture(scope="module")
async def sides() -> AsyncIterator[list[Side]]:
    found = [Side(BubblewrapBackend.open(SETTINGS)), Side(GVisorBackend.open(SETTINGS))]
    yield found
    for side in found:
        await side.backend.close()
        assert side.backend.leaked == 0


def test_there_are_enough() -> None:
    """At least 200 programs, each with a name of its own."""
    assert len(PROGRAMS) >= 200
    parts = [tables(scripts), tables(library), families.python(), tables(shell), tables(tools), families.shell()]
    assert len(PROGRAMS) == sum(map(len, parts))


async def both(sides: list[Side], asked: Command) -> list[Ending]:
    """How a program ends on either side."""
    endings: list[Ending] = [{}, {}]

    async def run(number: int) -> None:
        endings[number] = await sides[number].run(asked)

    async with anyio.create_task_group() as tasks:
        for number in range(2):
            tasks.start_soon(run, number)
    return endings


@pytest.mark.parametrize(("kind", "name"), PROGRAMS, ids=[f"{kind}-{name}" for kind, name in PROGRAMS])
async def test_equal_endings(sides: list[Side], kind: str, name: str) -> None:
    """Outcome, status, output and files are the same on both."""
    linux, gvisor = await both(sides, command(kind, name))
    assert gvisor == linux


DIFFERENCES = {
    "a read-only file system is no permission": (
        "touch /usr/x 2>&1 | grep -o '[A-Z].*'",
        "Read-only file system",
        "Permission denied",
    ),
    "no copy_file_range": (
        'python3 -c \'import os; a, b = (os.open(n, os.O_RDWR | os.O_CREAT) for n in "ab"); os.write(a, b"x"); '
        "os.lseek(a, 0, 0); print(os.copy_file_range(a, b, 1))' 2>&1 | tail -n 1",
        "1",
        "OSError: [Errno 38] Function not implemented",
    ),
    "blocks of small files": ("echo x > f; stat -c %b f", "8", "1"),
}
"""Program, what Linux says, what gVisor says where it has not yet learnt better."""


@pytest.mark.parametrize("name", DIFFERENCES)
async def test_known_differences(sides: list[Side], name: str) -> None:
    """Where gVisor is known to differ from Linux it does so in the known way, or not at all."""
    script, expected, known = DIFFERENCES[name]
    linux, gvisor = await both(sides, Command(argv=("bash", "-c", script), limits=LIMITS))
    assert linux["stdout"] == f"{expected}\n".encode()
    assert gvisor["stdout"] in (f"{expected}\n".encode(), f"{known}\n".encode())
