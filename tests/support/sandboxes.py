"""Back-ends for tests by name, and the shortest ways to run something in a sandbox."""

from __future__ import annotations

import os

import msgspec

from tiltyard.sandbox.backend import Backend, Sandbox
from tiltyard.sandbox.backends import open_backend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits, Execution

BACKENDS = tuple(os.environ.get("TILTYARD_TEST_BACKENDS", "gvisor bubblewrap process").split())
"""Those that the suites over all back-ends run over; `make sandbox-docker` runs them over 'docker'."""
ISOLATING = tuple(name for name in BACKENDS if name != "process")


def open_named(name: str, settings: SandboxSettings) -> Backend:
    """The back-end of that name."""
    if name == "docker":
        from .dockers import socket

        settings = msgspec.structs.replace(settings, docker_socket=socket())
    return open_backend(msgspec.structs.replace(settings, backend=name))


async def bash(sandbox: Sandbox, script: str, command: Command | None = None, **limits: float) -> Execution:
    """Run a script in a bash of its own; other fields as in `command`."""
    fields = {} if command is None else {name: getattr(command, name) for name in ("cwd", "env", "background", "user")}
    chosen = ExecLimits(**limits)  # type: ignore[arg-type]
    return await sandbox.run(Command(argv=("bash", "-c", script), limits=chosen, **fields))


async def shell(sandbox: Sandbox, script: str, **limits: float) -> Execution:
    """Run a script in the session's persistent shell."""
    return await sandbox.run(Command(argv=("sh", "-c", script), shell=True, limits=ExecLimits(**limits)))  # type: ignore[arg-type]
