"""The back-end that runs nothing still keeps workspaces as the others do."""

from __future__ import annotations

import pytest

from tiltyard.sandbox.backend import SandboxLost, Want, WorkspaceTooLarge
from tiltyard.sandbox.null import NullBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command
from tiltyard_proto.outcomes import Outcome

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(backend="null", workspace_bytes=1000, workspace_entries=5)


async def test_a_workspace_is_carried_on() -> None:
    """Files and the last command come back from an archive in another sandbox."""
    backend = NullBackend(SETTINGS)
    one, two = await backend.start(Want(disk_bytes=1)), await backend.start(Want(disk_bytes=1))
    found = await one.run(Command(argv=("sh", "-c", "echo 1"), files={"a/b.txt": b"x"}))
    assert (found.outcome, found.exit_code) == (Outcome.FINISHED, 0)
    await two.restore(await one.export())
    assert await two.listing() == {"a/b.txt": b"x", "command": b"echo 1"}
    assert await two.read(["command", "none"]) == {"command": b"echo 1"}


async def test_what_is_refused_elsewhere_is_refused_here() -> None:
    """Bad paths, workspaces over the caps and killed sandboxes."""
    sandbox = await NullBackend(SETTINGS).start(Want(disk_bytes=1))
    with pytest.raises(ValueError, match="workspace path"):
        await sandbox.write({"../out": b""})
    await sandbox.write({"big": b"x" * 1001})
    with pytest.raises(WorkspaceTooLarge):
        await sandbox.export()
    await sandbox.kill()
    with pytest.raises(SandboxLost):
        await sandbox.listing()
    assert (await sandbox.run(Command(argv=("true",)))).outcome is Outcome.SANDBOX_LOST
