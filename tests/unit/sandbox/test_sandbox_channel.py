"""The pipes to a sandbox: whose descriptors they are."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tiltyard.sandbox.backend import SandboxLost
from tiltyard.sandbox.channel import connect

CHANNELS = 3000


async def closed_once(folder: Path) -> None:
    """Open and close channels while threads use files, which get the numbers that pipes had a moment before."""
    done = False

    def use_files() -> None:
        while not done:
            fd = os.open(folder / "file", os.O_CREAT | os.O_WRONLY)
            os.write(fd, b"still mine")
            os.close(fd)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, use_files)
        for _ in range(CHANNELS):
            (there, stdin), (stdout, back) = os.pipe(), os.pipe()
            (await connect(os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), 1 << 10)).close()
            os.close(there)
            os.close(back)
            await anyio.lowlevel.checkpoint()
        done = True


@pytest.mark.parametrize("uvloop", [True, False])
def test_a_pipe_is_closed_once(uvloop: bool, tmp_path: Path) -> None:
    """A number that a closed channel's pipe had belongs to whoever opens a file next, on either loop."""
    options = {"use_uvloop": uvloop}
    anyio.run(anyio.sleep, 0, backend_options=options)  # what the loop opens once for all
    before = len(os.listdir("/proc/self/fd"))
    anyio.run(closed_once, tmp_path, backend_options=options)
    assert len(os.listdir("/proc/self/fd")) == before


async def frames_and_end() -> None:
    (there, stdin), (stdout, back) = os.pipe(), os.pipe()
    channel = await connect(os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), 1 << 10)
    os.close(there)
    os.write(back, b"\0\0\0\7\0\0\0\3one" + b"\0\0\0\4\0\0\0\1")
    assert await channel.receive() == [b"one"]
    with pytest.raises(SandboxLost, match="malformed"):
        await channel.receive()
    os.close(back)
    with pytest.raises(SandboxLost, match="gone"):
        await channel.receive()
    channel.close()


@pytest.mark.parametrize("uvloop", [True, False])
def test_the_end_of_a_pipe_is_a_lost_sandbox(uvloop: bool) -> None:
    """Answers come whole; an odd one and an end are both named."""
    anyio.run(frames_and_end, backend_options={"use_uvloop": uvloop})
