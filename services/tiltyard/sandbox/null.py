"""The back-end that runs nothing, for load tests of everything around the sandbox.

A command's only effect is on the workspace: its files are written, and its last argument becomes the file `command`,
so that different commands leave different workspaces. Invariants: workspaces are kept, carried and refused as in the
real back-ends (same archives, same caps), and are gone when a sandbox is killed. Left out: execution, so every
verdict that depends on a program's output is wrong; nobody trains on this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from tiltyard_proto.messages import Command, Execution
from tiltyard_proto.outcomes import Outcome

from . import patching
from .archive import Entry, contents, pack, unpack
from .backend import (
    Absent,
    Background,
    FileInfo,
    Sandbox,
    SandboxLost,
    SnapshotFailed,
    Want,
    WorkspaceTooLarge,
    check_path,
)
from .settings import SandboxSettings
from .workspace import text

COMMAND_FILE = "command"


class NullSandbox:
    """See `backend.Sandbox`."""

    def __init__(self, name: str, profile: str, settings: SandboxSettings) -> None:
        self.id, self.profile, self.start_s, self.alive = name, profile, 0.0, True
        self._settings = settings
        self._entries: dict[bytes, Entry] = {}

    @property
    def gone(self) -> bool:
        return not self.alive

    def _files(self) -> dict[bytes, Entry]:
        if not self.alive:
            raise SandboxLost(f"sandbox {self.id} is gone")
        return self._entries

    async def run(self, command: Command) -> Execution:
        try:
            await self.write({**command.files, COMMAND_FILE: command.argv[-1].encode()})
        except SandboxLost as error:
            return Execution(outcome=Outcome.SANDBOX_LOST, detail=str(error))
        return Execution(outcome=Outcome.FINISHED, exit_code=0, node="null")

    async def interrupt(self) -> None:
        return

    async def jobs(self) -> list[Background]:
        return []

    async def output(self, job: int) -> Execution:
        raise Absent("there is no background command of that number")

    async def signal(self, job: int, number: int) -> None:
        raise Absent("there is no background command of that number")

    async def restart_shell(self) -> None:
        return

    async def write(self, files: Mapping[str, bytes], user: str = "policy") -> None:
        for path, data in files.items():
            clean = check_path(path)
            self._files()[clean] = ("f", 0o644, clean, data)

    async def restore(self, archive: bytes, under: str = "", user: str = "policy") -> None:
        caps = (self._settings.workspace_bytes, self._settings.workspace_entries)
        below = check_path(under) + b"/" if under else b""
        found = [(kind, mode, below + path, data) for kind, mode, path, data in unpack(archive, *caps)]
        self._files().update({entry[2]: entry for entry in found})

    def _below(self, under: str) -> list[Entry]:
        prefix = check_path(under) + b"/" if under else b""
        found = [(k, m, p[len(prefix) :], d) for k, m, p, d in self._files().values() if p.startswith(prefix)]
        if under and not found:
            raise Absent(f"there is nothing at {under!r}")
        return found

    async def entries(self, under: str = "") -> list[FileInfo]:
        prefix = f"{under}/" if under else ""
        found = [(prefix + text(path), kind, mode, data) for kind, mode, path, data in self._below(under)]
        return [FileInfo(path=path, kind=kind, mode=mode, size=len(data)) for path, kind, mode, data in sorted(found)]

    async def patch(self, diff: bytes) -> list[str]:
        patches = patching.parse(diff)
        old = {one.path: self._files().get(check_path(one.path)) for one in patches}
        new = {one.path: patching.apply(one, found[3] if (found := old[one.path]) else None) for one in patches}
        for path, data in new.items():
            self._files().pop(check_path(path), None)
            if data is not None:
                await self.write({path: data})
        return list(new)

    async def export(self, under: str = "") -> bytes:
        entries = self._below(under)
        size = sum(len(entry[3]) for entry in entries)
        if size > self._settings.workspace_bytes or len(entries) > self._settings.workspace_entries:
            raise WorkspaceTooLarge(f"the workspace has {size} bytes in {len(entries)} entries")
        return pack(entries)

    async def read(self, paths: Iterable[str], limit: int = 1 << 20) -> dict[str, bytes]:
        return contents(pack(self._files().values()), paths, limit, (1 << 40, 1 << 30))

    async def listing(self, limit: int = 1 << 20) -> dict[str, bytes]:
        return contents(pack(self._files().values()), None, limit, (1 << 40, 1 << 30))

    async def rest(self) -> bool:
        return self.alive

    async def kill(self) -> None:
        self.alive = False
        self._entries = {}


class NullBackend:
    """See `backend.Backend`."""

    def __init__(self, settings: SandboxSettings) -> None:
        structlog.get_logger().warning("null_sandbox", why="sandbox.backend is 'null': nothing is run")
        self.settings = settings
        self.leaked = 0
        self._count = 0

    async def start(self, want: Want) -> NullSandbox:
        self._count += 1
        return NullSandbox(f"null{self._count}", want.profile, self.settings)

    async def snapshot(self, sandbox: Sandbox) -> str:
        raise SnapshotFailed("the back-end 'null' takes no snapshots")

    async def forget_snapshot(self, snapshot: str) -> None:
        return

    async def close(self) -> None:
        return
