"""A sandbox as the service sees it: an agent behind a channel, in a cell that can be limited, counted and destroyed.

Both back-ends build this and differ only in the cell. Invariants: one request at a time; an exchange that does not
come to its end (cancelled, timed out, malformed) makes the sandbox unusable, since what is inside is unknown; partial
output survives the sandbox. Left out: starting it (`gvisor`, `process`).
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import msgspec

from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

from . import archive
from .attribution import attribute, attribute_loss
from .backend import LimitBusy, SandboxError, SandboxLost, WorkspaceFull, WorkspaceTooLarge, check_path
from .cgroups import Counters
from .channel import Channel
from .settings import SandboxSettings

FILES_S = 30.0
"""A file operation that takes longer has failed."""
GRACE_S = 3.5
LIMIT_TRIES = 40
LIMIT_WAIT_S = 0.05
"""After the wall limit: TERM, KILL and sweep inside, before the sandbox itself is killed."""
OPEN_FILES = 512
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/workspace",
    "TMPDIR": "/tmp",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Cell(Protocol):
    """What holds the processes of one sandbox."""

    def set_memory(self, size: int) -> None: ...
    def counters(self) -> Counters: ...
    async def destroy(self) -> None: ...


class RemoteSandbox:
    """See `backend.Sandbox`."""

    def __init__(
        self, name: str, profile: str, channel: Channel, cell: Cell, settings: SandboxSettings, start_s: float
    ) -> None:
        self.id, self.profile, self.start_s = name, profile, start_s
        self.node = socket.gethostname()
        self._channel, self._cell, self._settings = channel, cell, settings
        self._usable, self._killed = True, False
        self._lock = anyio.Lock()

    @property
    def alive(self) -> bool:
        return self._usable and not self._killed and not self._channel.ended

    # ------------------------------------------------------------ commands

    async def _limit_memory(self, size: int) -> None:
        """Set the memory limit; what an earlier command freed may still be on its way back, so a lower one may wait."""
        for _ in range(LIMIT_TRIES):
            try:
                self._cell.set_memory(size)
                return
            except LimitBusy:
                await anyio.sleep(LIMIT_WAIT_S)
        raise SandboxLost(f"can't limit memory to {size} bytes: more than that stays in use")

    async def run(self, command: Command) -> Execution:
        entries = [("f", 0o644, check_path(path), data) for path, data in command.files.items()]
        if not self.alive:
            detail = f"sandbox {self.id} is gone"
            return Execution(outcome=Outcome.SANDBOX_LOST, node=self.node, start_s=self.start_s, detail=detail)
        before = self._cell.counters()
        begun = anyio.current_time()
        partial: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        limits = command.limits
        try:
            await self._limit_memory(limits.memory_bytes)
            with anyio.fail_after(limits.wall_s + GRACE_S):
                fields = await self._ask(self._request(command, entries), partial)
            return await self._confirmed(self._execution(fields, limits, partial), before, limits)
        except WorkspaceFull as error:
            return Execution(outcome=Outcome.DISK_LIMIT, node=self.node, start_s=self.start_s, detail=str(error))
        except TimeoutError:
            outcome, detail = Outcome.WALL_LIMIT, f"stopped after {limits.wall_s:g} s; the sandbox had to be killed"
        except SandboxLost as error:
            after = self._cell.counters()
            outcome, detail = attribute_loss(before, after, limits)
            detail = f"{detail}: {error}" if outcome is Outcome.SANDBOX_LOST else detail
        after = self._cell.counters()
        await self.kill()
        return Execution(
            outcome=outcome,
            stdout=bytes(partial[0][: limits.output_bytes]),
            stderr=bytes(partial[1][: limits.output_bytes]),
            wall_s=anyio.current_time() - begun,
            cpu_s=max(0.0, after.cpu_s - before.cpu_s),
            peak_memory_bytes=after.memory_peak,
            start_s=self.start_s,
            node=self.node,
            detail=detail,
        )

    async def _confirmed(self, execution: Execution, before: Counters, limits: ExecLimits) -> Execution:
        """Unless the kernel killed a part of the sandbox for memory: then what the agent saw says nothing."""
        if execution.outcome is Outcome.FINISHED:
            return execution
        after = self._cell.counters()
        if after.oom_kills == before.oom_kills:
            return execution
        await self.kill()
        outcome, detail = attribute_loss(before, after, limits)
        return msgspec.structs.replace(execution, outcome=outcome, detail=detail, exit_code=None, signal=None)

    def _request(self, command: Command, entries: list[archive.Entry]) -> dict[str, Any]:
        limits = command.limits
        rlimits = (
            ("NPROC", limits.processes),
            ("NOFILE", OPEN_FILES),
            ("FSIZE", limits.disk_bytes),
            ("CPU", max(1, math.ceil(limits.cpu_s))),
            ("CORE", 0),
        )
        return {
            "op": "run",
            "argv": list(command.argv),
            "stdin": command.stdin,
            "entries": entries,
            "env": ENVIRONMENT,
            "wall": float(limits.wall_s),
            "output": limits.output_bytes,
            "output_hard": max(self._settings.output_hard_bytes, 2 * limits.output_bytes),
            "processes": limits.processes,
            "rlimits": list(rlimits),
        }

    def _execution(self, fields: list[bytes], limits: ExecLimits, partial: tuple[bytearray, bytearray]) -> Execution:
        if len(fields) != 12 or fields[0] != b"done":
            self._usable = False
            raise SandboxLost(f"the agent answered {fields[0][:40]!r}")
        flags = frozenset(fields[1].decode("ascii", "replace").split(","))
        status, wall_us, cpu_us, peak = (_number(field) for field in fields[2:6])
        if "unswept" in flags:
            self._usable = False
        outcome, detail = attribute(flags, status, cpu_us / 1e6, limits)
        stdout, stdout_dropped = _joined(partial[0], fields[6:9], limits.output_bytes)
        stderr, stderr_dropped = _joined(partial[1], fields[9:12], limits.output_bytes)
        return Execution(
            outcome=outcome,
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            stdout=stdout,
            stderr=stderr,
            stdout_dropped=stdout_dropped,
            stderr_dropped=stderr_dropped,
            wall_s=wall_us / 1e6,
            cpu_s=cpu_us / 1e6,
            peak_memory_bytes=peak,
            start_s=self.start_s,
            node=self.node,
            detail=detail,
        )

    # ------------------------------------------------------------ files

    async def write(self, files: Mapping[str, bytes]) -> None:
        await self._put([("f", 0o644, check_path(path), data) for path, data in files.items()])

    async def restore(self, archive_bytes: bytes) -> None:
        settings = self._settings
        await self._put(archive.unpack(archive_bytes, settings.workspace_bytes, settings.workspace_entries))

    async def export(self) -> bytes:
        fields = await self._tree(self._settings.workspace_bytes)
        return archive.pack(fields)

    async def read(self, paths: Iterable[str], limit: int = 1 << 20) -> dict[str, bytes]:
        wanted = [check_path(path) for path in paths]
        fields = await self._file_request({"op": "get", "paths": wanted, "limit": limit})
        found = dict(zip(fields[1::2], fields[2::2], strict=True))
        return {_text(path): found[path] for path in wanted if path in found}

    async def listing(self, limit: int = 1 << 20) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for kind, _, path, data in await self._tree(self._settings.workspace_bytes):
            if kind == "f" and len(data) <= limit:
                limit -= len(data)
                found[_text(path)] = data
        return found

    async def _tree(self, limit: int) -> list[archive.Entry]:
        request = {"op": "tree", "limit": limit, "entries": self._settings.workspace_entries}
        fields = (await self._file_request(request))[1:]
        if len(fields) % 4 or any(kind not in (b"d", b"f", b"l") for kind in fields[::4]):
            self._usable = False
            raise SandboxLost("the agent sent a malformed tree")
        groups = zip(fields[::4], fields[1::4], fields[2::4], fields[3::4], strict=True)
        return [(kind.decode(), _number(mode, 8), path, data) for kind, mode, path, data in groups]

    async def _put(self, entries: list[archive.Entry]) -> None:
        await self._file_request({"op": "put", "entries": entries})

    async def _file_request(self, request: dict[str, Any]) -> list[bytes]:
        try:
            with anyio.fail_after(FILES_S):
                return await self._ask(request, None)
        except TimeoutError as error:
            raise SandboxLost(f"no answer to {request['op']!r} within {FILES_S:g} s") from error

    # ------------------------------------------------------------ exchange

    async def _ask(self, request: dict[str, Any], partial: tuple[bytearray, bytearray] | None) -> list[bytes]:
        async with self._lock:
            if not self.alive:
                raise SandboxLost(f"sandbox {self.id} is gone")
            self._usable = False
            await self._channel.send(request)
            while True:
                fields = await self._channel.receive()
                if fields[0] != b"part" or partial is None:
                    break
                _keep(partial, fields, self._settings.output_hard_bytes)
            self._usable = True
        if fields[0] == b"refused":
            raise WorkspaceTooLarge(f"the workspace is over the limit of {_text(fields[-1])}")
        if fields[0] == b"error":
            raise _guest_error(fields)
        return fields

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No request is under way inside, once a running one has ended; SandboxLost when it is gone."""
        async with self._lock:
            if not self.alive:
                raise SandboxLost(f"sandbox {self.id} is gone")
            self._usable = False
            yield
            self._usable = True

    async def kill(self) -> None:
        if self._killed:
            return
        self._killed = True
        with anyio.CancelScope(shield=True):
            await self._cell.destroy()


def _guest_error(fields: list[bytes]) -> SandboxError:
    text = _text(fields[-1])[:200]
    if len(fields) > 1 and _number(fields[1]) in (28, 122, 27):  # ENOSPC, EDQUOT, EFBIG
        return WorkspaceFull(f"no room in the workspace for the files of the task: {text}")
    return SandboxLost(f"the agent failed: {text}")


def _keep(partial: tuple[bytearray, bytearray], fields: list[bytes], limit: int) -> None:
    if len(fields) == 3 and fields[1] in (b"1", b"2"):
        into = partial[int(fields[1]) - 1]
        if len(into) + len(fields[2]) <= limit:
            into += fields[2]


def _joined(partial: bytearray, parts: list[bytes], cap: int) -> tuple[bytes, int]:
    """The kept output, and how many bytes of it were dropped. `parts`: rest of the head, tail, total."""
    kept = (bytes(partial) + parts[0] + parts[1])[: 2 * cap]
    return kept, max(0, _number(parts[2]) - len(kept))


def _number(field: bytes, base: int = 10) -> int:
    try:
        return int(field, base)
    except ValueError as error:
        raise SandboxLost("the agent sent a malformed number") from error


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
