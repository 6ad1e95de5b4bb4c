"""Sandboxes whose root file system is one file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiltyard.sandbox import packs
from tiltyard.sandbox.backend import StartFailed, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command
from tiltyard_proto.outcomes import Outcome

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(packs.program() is None, reason="no mkfs.erofs (package erofs-utils)"),
]
LOOK = "stat -c '%n %A %U %Y' /usr/bin/python3.11 /etc/passwd /root /bin; wc -c /etc/passwd; touch /usr/x; echo $?"
NOTHING = {"dev.gvisor.spec.rootfs.source": "/no/such/file", "dev.gvisor.spec.rootfs.type": "erofs"}


@pytest.fixture
async def backend() -> AsyncIterator[GVisorBackend]:
    opened = GVisorBackend.open(SandboxSettings())
    yield opened
    await opened.close()
    assert opened.leaked == 0


def helpers(backend: GVisorBackend, name: str) -> int:
    """Helper processes for file systems that a sandbox has."""
    cell, _ = backend._live[name]
    return sum(Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"runsc-gofer") for pid in cell.group.pids())


async def looked(backend: GVisorBackend) -> tuple[int, bytes]:
    """How many helpers there are, and what a command sees of the files."""
    sandbox = await backend.start(Want())
    found = await sandbox.run(Command(argv=("bash", "-c", LOOK)))
    count = helpers(backend, sandbox.id)
    await sandbox.kill()
    return count, found.stdout


async def test_files_are_the_same_from_either(backend: GVisorBackend) -> None:
    """Kind, mode, owner, time and size are those of the directory; nothing can be written; a helper is saved."""
    count, packed = await looked(backend)
    assert backend.packs
    assert count == 0
    backend.packs = False
    backend._plans.clear()
    count, plain = await looked(backend)
    assert count == 1
    assert packed == plain
    assert packed.splitlines()[-1] == b"1"


async def test_what_runsc_cannot_use_is_left(backend: GVisorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runsc that takes no such file costs one failed start; from then on it gets the directory."""
    monkeypatch.setattr(packs, "root_of", lambda pack: NOTHING)
    count, _ = await looked(backend)
    assert (count, backend.packs) == (1, False)
    assert (await looked(backend))[0] == 1


async def test_once_it_worked_a_failure_is_a_failure(backend: GVisorBackend) -> None:
    """A start that fails later doesn't give the files up."""
    sandbox = await backend.start(Want())
    assert (await sandbox.run(Command(argv=("true",)))).outcome is Outcome.FINISHED
    await sandbox.kill()
    backend.runsc = "/bin/false"
    with pytest.raises(StartFailed):
        await backend.start(Want())
    assert backend.packs
