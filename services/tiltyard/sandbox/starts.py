"""One start for all members of a group: the environment's set-up runs once, the others begin from its snapshot.

Invariants: members that come while the set-up runs wait for it; where no snapshot can be had, or it has gone, a member
does the set-up itself, so that a snapshot saves time and never decides; a snapshot is forgotten when all members have
started, and those of groups that never come to that when there are too many. Left out: what a set-up is (`work`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import structlog

from . import metrics
from .backend import Backend, Sandbox, SandboxError, StartFailed, Want, killed_on_failure

log = structlog.get_logger()
GROUPS = 64
"""Groups remembered at a time."""
Claim = Callable[[Want], Awaitable[Sandbox]]
SetUp = Callable[[Sandbox], Awaitable[None]]


class Start(msgspec.Struct, kw_only=True):
    """The start of one group."""

    done: anyio.Event
    snapshot: str = ""
    left: int
    """Members that have not started from it."""


class Starts:
    """Starts by group. `claim` gives a fresh sandbox of a want; StartFailed when it can't."""

    def __init__(self, backend: Backend, claim: Claim) -> None:
        self.backend, self.claim = backend, claim
        self._kept: OrderedDict[str, Start] = OrderedDict()

    async def get(self, group: str, size: int, want: Want, set_up: SetUp) -> Sandbox:
        """A sandbox in which the set-up of this group of `size` members has run. Raises what `set_up` raises."""
        start = self._kept.get(group)
        if start is None:
            return await self._first(group, size, want, set_up)
        await start.done.wait()
        if start.snapshot:
            try:
                sandbox = await self.claim(msgspec.structs.replace(want, snapshot=start.snapshot))
            except StartFailed as error:
                log.warning("group_start_lost", group=group, why=str(error))
            else:
                async with killed_on_failure(sandbox):
                    await self._used(group, start)
                metrics.GROUP_STARTS.labels("snapshot").inc()
                return sandbox
        return await self._own(want, set_up)

    async def _first(self, group: str, size: int, want: Want, set_up: SetUp) -> Sandbox:
        start = self._kept[group] = Start(done=anyio.Event(), left=size - 1)
        try:
            sandbox = await self._own(want, set_up)
            if size > 1:
                async with killed_on_failure(sandbox):
                    start.snapshot = await self._snapshot(group, sandbox)
            if sandbox.alive:
                return sandbox
            await sandbox.kill()
            return await self._own(want, set_up)
        finally:
            if not start.snapshot:
                self._kept.pop(group, None)
            start.done.set()
            with anyio.CancelScope(shield=True):
                await self._trim()

    async def _snapshot(self, group: str, sandbox: Sandbox) -> str:
        """Id of a snapshot, empty where none can be had; the sandbox may be gone then."""
        try:
            return await self.backend.snapshot(sandbox)
        except SandboxError as error:
            log.info("group_start_not_shared", group=group, why=str(error))
            return ""

    async def _own(self, want: Want, set_up: SetUp) -> Sandbox:
        sandbox = await self.claim(want)
        async with killed_on_failure(sandbox):
            await set_up(sandbox)
        metrics.GROUP_STARTS.labels("set_up").inc()
        return sandbox

    async def _used(self, group: str, start: Start) -> None:
        start.left -= 1
        if start.left <= 0 and self._kept.get(group) is start:
            del self._kept[group]
            await self.backend.forget_snapshot(start.snapshot)

    async def _trim(self) -> None:
        while len(self._kept) > GROUPS:
            _, start = self._kept.popitem(last=False)
            if start.snapshot:
                await self.backend.forget_snapshot(start.snapshot)
