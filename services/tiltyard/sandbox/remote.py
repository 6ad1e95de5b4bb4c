"""A sandbox as the service sees it: an agent behind a channel, in a cell that can be limited, counted and destroyed.

All back-ends with an agent build this and differ only in the cell. Invariants: one request at a time, the others wait
in order and not without end; an exchange that does not come to its end (cancelled, timed out, malformed) makes the
sandbox unusable, since what is inside is unknown; partial output survives the sandbox. Left out: starting it
(`gvisor`, `process`), files (`workspace`).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

import anyio
import msgspec

from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

from . import commands
from .attribution import Ending, attribute_loss, unanswered
from .backend import Absent, Background, Busy, LimitBusy, SandboxError, SandboxLost, WorkspaceFull, WorkspaceTooLarge
from .cgroups import Counters
from .channel import Channel
from .settings import SandboxSettings
from .workspace import Files

REQUEST_S = 30.0
"""A request other than a command that takes longer has failed."""
GRACE_S = 3.5
"""After the wall limit: TERM, KILL and sweep inside, before the sandbox itself is killed."""
LIMIT_TRIES = 40
LIMIT_WAIT_S = 0.05
WAITING = 64
"""Requests that may wait for one sandbox."""
LONG_S = 0.5
"""A command that runs longer gives way to others where there are too few processors for all."""
LONG_WEIGHT = 20
"""Its share then, in percent of the usual one."""
BACKGROUND = 16
"""Background commands of one sandbox."""
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


def variables_of(image: Mapping[str, str], profile: Mapping[str, str]) -> dict[str, str]:
    """Variables of every command: ours, with the search path that the image has, and what the profile says."""
    path = {"PATH": image["PATH"]} if image.get("PATH") else {}
    return {**image, **ENVIRONMENT, **path, **profile}


class Cell(Protocol):
    """What holds the processes of one sandbox."""

    def set_memory(self, size: int) -> None: ...
    def set_weight(self, percent: int) -> None: ...
    def rest(self) -> None: ...
    def wake(self) -> None: ...
    def counters(self) -> Counters: ...
    async def destroy(self) -> None: ...


class RemoteSandbox(Files):
    """See `backend.Sandbox`."""

    def __init__(
        self,
        name: str,
        profile: str,
        channel: Channel,
        cell: Cell,
        settings: SandboxSettings,
        start_s: float,
    ) -> None:
        self.id, self.profile, self.start_s = name, profile, start_s
        self.node = socket.gethostname()
        self._channel, self._cell, self._settings = channel, cell, settings
        self.environment: Mapping[str, str] = ENVIRONMENT
        """Variables of every command."""
        self.born = time.monotonic()
        self._usable, self._killed = True, False
        self.refused_forks: Callable[[], int] = lambda: 0
        """Forks refused inside so far; 0 where nobody counts them."""
        self._lock = anyio.Lock()
        self._waiting, self._kept = 0, 0
        self._running = False
        self.resting = False
        """Is it stopped, until the next request?"""

    @property
    def alive(self) -> bool:
        return self._usable and not self._killed and not self._channel.ended

    @property
    def gone(self) -> bool:
        return self._killed

    def counters(self) -> Counters:
        """What the kernel has counted for it; zeros where nobody counts."""
        return self._cell.counters()

    # ------------------------------------------------------------ commands

    async def run(self, command: Command) -> Execution:
        request = commands.request(command, self.environment, self._settings.output_hard_bytes)
        if command.background and self._kept >= BACKGROUND:
            raise Busy(f"sandbox {self.id} has {BACKGROUND} background commands")
        async with self._turn():
            found = await self._run(command, request)
        return msgspec.structs.replace(found, node=self.node, start_s=self.start_s)

    async def _run(self, command: Command, request: dict[str, Any]) -> Execution:
        if not self.alive:
            return Execution(outcome=Outcome.SANDBOX_LOST, detail=f"sandbox {self.id} is gone")
        before, begun = self._cell.counters(), anyio.current_time()
        forks = self.refused_forks()
        partial: commands.Partial = (bytearray(), bytearray())
        limits = command.limits
        try:
            await self._limit_memory(limits.memory_bytes)
            with anyio.fail_after(limits.wall_s + GRACE_S):
                self._running = True
                with self._giving_way():
                    fields = await self._exchange(request, partial)
            refused = self.refused_forks() - forks
            return await self._confirmed(self._answered(fields, command, partial, refused), before, limits)
        except WorkspaceFull as error:
            return Execution(outcome=Outcome.DISK_LIMIT, detail=str(error))
        except TimeoutError:
            ending = unanswered(limits)
        except SandboxLost as error:
            ending = attribute_loss(before, self._cell.counters(), limits)
            if ending.outcome is Outcome.SANDBOX_LOST:
                ending = ending._replace(detail=f"{ending.detail}: {error}")
        finally:
            self._running = False
        return await self._lost(command, ending, before, partial, anyio.current_time() - begun)

    @contextmanager
    def _giving_way(self) -> Iterator[None]:
        """Lower its share of the processors once the command has run for long; the usual one again at its end."""
        later = asyncio.get_running_loop().call_later(LONG_S, self._cell.set_weight, LONG_WEIGHT)
        begun = time.monotonic()
        try:
            yield
        finally:
            later.cancel()
            if time.monotonic() - begun >= LONG_S:
                self._cell.set_weight(100)

    async def _confirmed(self, found: Execution, before: Counters, limits: ExecLimits) -> Execution:
        """Unless the kernel killed a part of the sandbox for memory: then what the agent saw says nothing."""
        if found.outcome is Outcome.FINISHED:
            return found
        after = self._cell.counters()
        if after.oom_kills == before.oom_kills:
            return found
        await self.kill()
        outcome, detail, attribution = attribute_loss(before, after, limits)
        changes = {"outcome": outcome, "detail": detail, "attribution": attribution, "exit_code": None, "signal": None}
        return msgspec.structs.replace(found, **changes)

    def _answered(
        self, fields: list[bytes], command: Command, partial: commands.Partial, refused_forks: int
    ) -> Execution:
        if fields[0] == b"kept" and len(fields) == 2:
            self._kept += 1
            return Execution(outcome=Outcome.FINISHED, job=commands.number(fields[1]), detail="runs in the background")
        try:
            found, flags = commands.execution(fields, command.limits, partial, refused_forks)
        except SandboxLost:
            self._usable = False
            raise
        if "unswept" in flags:
            self._usable = False
        return found

    async def _lost(
        self, command: Command, ending: Ending, before: Counters, partial: commands.Partial, wall_s: float
    ) -> Execution:
        after = self._cell.counters()
        await self.kill()
        size = command.limits.output_bytes
        return Execution(
            outcome=ending.outcome,
            attribution=ending.attribution,
            stdout=bytes(partial[0][:size]),
            stderr=bytes(partial[1][:size]),
            wall_s=wall_s,
            cpu_s=max(0.0, after.cpu_s - before.cpu_s),
            peak_memory_bytes=after.memory_peak,
            detail=ending.detail,
        )

    async def _limit_memory(self, size: int) -> None:
        """Set the memory limit; what an earlier command freed may still be on its way back, so a lower one may wait."""
        for _ in range(LIMIT_TRIES):
            try:
                self._cell.set_memory(size)
                return
            except LimitBusy:
                await anyio.sleep(LIMIT_WAIT_S)
        raise SandboxLost(f"can't limit memory to {size} bytes: more than that stays in use")

    async def interrupt(self) -> None:
        if self._running and self.alive:
            await self._channel.send({"op": "interrupt"})

    # ------------------------------------------------------------ background commands and the shell

    async def jobs(self) -> list[Background]:
        return commands.jobs((await self._request({"op": "jobs"}))[1:])

    async def output(self, job: int) -> Execution:
        fields = await self._request({"op": "output", "job": job})
        empty = (bytearray(), bytearray())
        found, flags = commands.execution(fields, Command(argv=()).limits, empty)
        if "running" in flags:
            found = msgspec.structs.replace(found, exit_code=None, detail="runs in the background")
        return msgspec.structs.replace(found, node=self.node, start_s=self.start_s, job=job)

    async def signal(self, job: int, number: int) -> None:
        if not 1 <= number <= 64:
            raise ValueError(f"signal {number}: expected 1 to 64")
        await self._request({"op": "signal", "job": job, "number": number})

    async def restart_shell(self) -> None:
        await self._request({"op": "restart"})

    # ------------------------------------------------------------ exchange

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for the sandbox; Busy when too many wait already."""
        if self._waiting >= WAITING:
            raise Busy(f"sandbox {self.id} has {WAITING} requests waiting")
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()

    async def _request(self, request: dict[str, Any]) -> list[bytes]:
        """Ask for something other than a command; SandboxLost when there is no answer."""
        async with self._turn():
            try:
                with anyio.fail_after(REQUEST_S):
                    return await self._exchange(request, None)
            except TimeoutError as error:
                raise SandboxLost(f"no answer to {request['op']!r} within {REQUEST_S:g} s") from error

    async def _exchange(self, request: dict[str, Any], partial: commands.Partial | None) -> list[bytes]:
        if not self.alive:
            raise SandboxLost(f"sandbox {self.id} is gone")
        done = False
        self._wake()
        try:
            await self._channel.send(request)
            while True:
                fields = await self._channel.receive()
                if fields[0] != b"part" or partial is None:
                    break
                commands.keep(partial, fields, self._settings.output_hard_bytes)
            done = True
        finally:
            self._usable = self._usable and done
        if fields[0] in (b"refused", b"error"):
            raise _guest_error(fields, request["op"])
        return fields

    async def rest(self) -> bool:
        try:
            async with self._turn():
                if not self.resting:
                    with anyio.fail_after(REQUEST_S):
                        self.resting = await self._idle()
                    if self.resting:
                        self._cell.rest()
                return self.resting and self.alive
        except (SandboxError, TimeoutError):
            return False

    async def _idle(self) -> bool:
        """Does nothing go on inside, but the agent and a shell that waits?"""
        fields = await self._exchange({"op": "count"}, None)
        if len(fields) != 2:
            self._usable = False
            raise SandboxLost("the agent sent a malformed count")
        return commands.number(fields[1]) == 0

    def _wake(self) -> None:
        if self.resting:
            self.resting = False
            self._cell.wake()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No request is under way inside, once a running one has ended; SandboxLost when it is gone."""
        async with self._lock:
            if not self.alive:
                raise SandboxLost(f"sandbox {self.id} is gone")
            self._wake()
            self._usable = False
            yield
            self._usable = True

    def _distrust(self) -> None:
        self._usable = False

    async def kill(self) -> None:
        if self._killed:
            return
        self._killed = True
        with anyio.CancelScope(shield=True):
            await self._cell.destroy()


def _guest_error(fields: list[bytes], op: str) -> SandboxError:
    text = fields[-1].decode("utf-8", "surrogateescape")[:200]
    if fields[0] == b"refused":
        if text == "job":
            return Absent("there is no background command of that number")
        return WorkspaceTooLarge(f"the workspace is over the limit of {text}")
    errno = commands.number(fields[1]) if len(fields) > 1 else 0
    if errno in (28, 122, 27):  # ENOSPC, EDQUOT, EFBIG
        return WorkspaceFull(f"no room in the workspace for the files of the task: {text}")
    if op == "tree" and errno in (2, 20):  # ENOENT, ENOTDIR
        return Absent(f"there is nothing there: {text}")
    return SandboxLost(f"the agent failed: {text}")
