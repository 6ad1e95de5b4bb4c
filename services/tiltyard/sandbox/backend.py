"""The outside world of the service: something that starts sandboxes, and a sandbox.

Two back-ends keep the same contract (one test suite for both): `gvisor` and, for tests, `process`. Invariants: `run`
never raises for what the code inside did; how it ended is data. File operations raise `SandboxLost` when the sandbox
is gone. Left out: pools, sessions and messages.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import msgspec

from tiltyard_proto.messages import Command, Execution


class SandboxError(Exception):
    """Base of what back-ends raise."""


class StartFailed(SandboxError):
    """No sandbox could be started; the infrastructure's fault."""


class NotHere(StartFailed):
    """This machine has no such profile, or not its image: it says nothing about the others."""


class SandboxLost(SandboxError):
    """The sandbox is gone; the infrastructure's fault unless counters say otherwise."""


class SnapshotFailed(SandboxError):
    """No snapshot could be taken of a sandbox, which may be gone now."""


class LimitBusy(SandboxError):
    """The memory in use is above the limit that was asked for, for now."""


class WorkspaceTooLarge(SandboxError):
    """The workspace is over the caps for carrying it on; the fault of the code inside."""


class WorkspaceFull(SandboxError):
    """A file could not be written because the workspace has no room left."""


class Busy(SandboxError):
    """More is asked of one sandbox at a time than it takes; ask again later."""


class Absent(SandboxError):
    """There is no such file, directory or background command."""


class PatchRefused(ValueError):
    """A patch that does not fit the files exactly; the message says which line."""


class ArchiveRefused(ValueError):
    """An archive holds what may not be unpacked."""


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a back-end. Sandboxes are interchangeable exactly when their wants are equal."""

    profile: str = "python"
    disk_bytes: int = 64 << 20
    """Size of the workspace."""
    egress: tuple[str, ...] = ()
    """Hosts ('name' or 'name:port') that may be reached through the filtering proxy; none: no network at all."""
    snapshot: str = ""
    """Id of a session's snapshot to start from; empty: the profile's clean state."""

    def __post_init__(self) -> None:
        if self.disk_bytes < 1:
            raise ValueError(f"disk_bytes: expected at least 1, got {self.disk_bytes}")


class Background(msgspec.Struct, frozen=True, kw_only=True):
    """A background command."""

    number: int
    program: str
    running: bool
    stdout_bytes: int
    stderr_bytes: int
    """Written so far."""


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the workspace."""

    path: str
    kind: str
    """'d' directory, 'f' file, 'l' link, 'o' another (pipe, socket)."""
    mode: int
    size: int


class Sandbox(Protocol):
    """One running sandbox with its workspace.

    One request runs at a time; others wait in order, and `Busy` turns away what the queue has no room for.
    """

    id: str
    profile: str
    start_s: float
    """Seconds from the request to ready."""

    @property
    def alive(self) -> bool:
        """Can it be used now? Not in the middle of an exchange."""
        ...

    @property
    def gone(self) -> bool:
        """Has it been killed?"""
        ...

    async def run(self, command: Command) -> Execution:
        """Write the command's files, run it, wait for its end; one in the background is only started (`job`).

        Never raises for what the code did. ValueError for a command that can't be run, Busy when too many wait.
        """
        ...

    async def interrupt(self) -> None:
        """End the command that runs now, if there is one, as at its wall limit: its output is kept."""
        ...

    async def jobs(self) -> list[Background]:
        """The background commands, those that have ended included."""
        ...

    async def output(self, job: int) -> Execution:
        """What a background command has given so far; Absent for a number that there is not.

        While it runs, `exit_code` and `signal` are None and the detail says so.
        """
        ...

    async def signal(self, job: int, number: int) -> None:
        """Signal a background command; a kill (9) reaches everything it started. Absent when there is none."""
        ...

    async def restart_shell(self) -> None:
        """End the persistent shell and its jobs; files stay, and the next command in a shell gets a new one."""
        ...

    async def write(self, files: Mapping[str, bytes], user: str = "policy") -> None:
        """Write files, relative path to content; what is in the way is replaced. ValueError for a bad path."""
        ...

    async def restore(self, archive: bytes, under: str = "", user: str = "policy") -> None:
        """Unpack an archive (tar) into the workspace or the directory `under`.

        ArchiveRefused for links outside, devices, names given twice, or over the caps.
        """
        ...

    async def export(self, under: str = "") -> bytes:
        """The workspace or what is below `under` as a tar, the same bytes for the same content.

        WorkspaceTooLarge over the caps, Absent when there is no `under`.
        """
        ...

    async def entries(self, under: str = "") -> list[FileInfo]:
        """What there is in the workspace or below `under`, sorted; errors as of `export`."""
        ...

    async def patch(self, diff: bytes) -> list[str]:
        """Apply a unified diff, all of it or nothing; the paths that changed. PatchRefused unless it fits exactly."""
        ...

    async def read(self, paths: Iterable[str], limit: int = 1 << 20) -> dict[str, bytes]:
        """Contents of the regular files among `paths`; missing ones, links and devices are left out."""
        ...

    async def listing(self, limit: int = 1 << 20) -> dict[str, bytes]:
        """Contents of all regular files, as many as fit `limit` bytes, in path order."""
        ...

    async def rest(self) -> bool:
        """Cost no CPU until the next request; False when something that the user started goes on inside, or it is gone.

        Waits for a running command.
        """
        ...

    async def kill(self) -> None:
        """End it and remove every trace; harmless when it is gone already."""
        ...


class Backend(Protocol):
    """Starts sandboxes."""

    leaked: int
    """Sandboxes of which something was left behind."""

    async def start(self, want: Want) -> Sandbox:
        """A ready sandbox as wanted, its workspace empty unless it starts from a snapshot; StartFailed otherwise."""
        ...

    async def snapshot(self, sandbox: Sandbox) -> str:
        """Id for `Want.snapshot`: sandboxes started so begin with its files and background processes, their random
        numbers apart. Waits for a running command; the sandbox goes on. SnapshotFailed where this can't be done,
        SandboxLost when the sandbox is gone. Kept until it is forgotten, too many are newer, or the back-end closes."""
        ...

    async def forget_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot; harmless when it has gone."""
        ...

    async def close(self) -> None:
        """Kill what is left and remove the back-end's own traces."""
        ...


@asynccontextmanager
async def killed_on_failure(sandbox: Sandbox) -> AsyncIterator[None]:
    """Whatever goes wrong inside, a cancellation included, the sandbox is killed: nobody else knows of it yet."""
    try:
        yield
    except BaseException:
        with anyio.CancelScope(shield=True):
            await sandbox.kill()
        raise


def check_path(path: str) -> bytes:
    """A relative workspace path as bytes; ValueError for one that is absolute, empty, has '..', NUL or is too long."""
    raw = path.encode("utf-8", "surrogateescape")
    parts = raw.split(b"/")
    if not raw or b"\0" in raw or raw.startswith(b"/") or b".." in parts or len(raw) > 1000:
        raise ValueError(f"workspace path {path!r}: expected a relative path without '..', at most 1000 bytes")
    clean = posixpath.normpath(raw)
    if clean == b"." or any(len(part) > 255 for part in parts):
        raise ValueError(f"workspace path {path!r}: expected the name of a file, parts of at most 255 bytes")
    return clean
