"""Snapshots of profiles: found, or taken of a sandbox that is started for it; given up after some failures.

Invariants: a failure costs a cold start and is said; one build of a snapshot at a time in a service, and whoever comes
meanwhile starts cold. Left out: what lies on disk (`snapshots`), restoring (`gvisor`).
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import structlog

from .backend import SnapshotFailed, StartFailed
from .plans import Plan
from .remote import RemoteSandbox
from .snapshots import Store

log = structlog.get_logger()
TRIES = 3
"""Failures in a row after which this service starts a profile cold."""
Cold = Callable[[Plan], Awaitable[RemoteSandbox]]
Checkpoint = Callable[[RemoteSandbox, Path], Awaitable[None]]


class Imprints:
    """The snapshots of plans with a key. `cold` starts a sandbox, `checkpoint` writes its state and may end it."""

    def __init__(self, store: Store, folder: Path, cold: Cold, checkpoint: Checkpoint) -> None:
        self.store, self.folder, self.cold, self.checkpoint = store, folder, cold, checkpoint
        self._failed: dict[str, int] = {}
        self._building: set[str] = set()

    async def get(self, plan: Plan) -> Path | None:
        """The snapshot of a plan, made now if nobody has; None when there is none to be had now."""
        if not plan.key:
            return None
        found = await anyio.to_thread.run_sync(self.store.find, plan.key)
        if found or plan.key in self._building or self._failed.get(plan.key, 0) >= TRIES:
            return found
        self._building.add(plan.key)
        try:
            await self._build(plan)
        except (StartFailed, SnapshotFailed, OSError) as error:
            self._count_failure(plan)
            log.warning("snapshot_not_built", profile=plan.profile.name, why=str(error))
            return None
        finally:
            self._building.discard(plan.key)
        return await anyio.to_thread.run_sync(self.store.find, plan.key)

    def good(self, plan: Plan) -> None:
        """A restore worked."""
        self._failed.pop(plan.key, None)

    async def bad(self, plan: Plan, why: str) -> None:
        """A restore did not work: the snapshot is removed."""
        self._count_failure(plan)
        await anyio.to_thread.run_sync(self.store.drop, plan.key, why)

    def _count_failure(self, plan: Plan) -> None:
        self._failed[plan.key] = self._failed.get(plan.key, 0) + 1

    async def _build(self, plan: Plan) -> None:
        """Start a sandbox, let it import what the profile asks for, keep what it is then."""
        begun = time.monotonic()
        sandbox = await self.cold(plan)
        made = self.folder / f"image-{sandbox.id}"
        try:
            made.mkdir(mode=0o700)
            await self.checkpoint(sandbox, made)
            await anyio.to_thread.run_sync(self.store.add, plan.key, made)
        finally:
            await sandbox.kill()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(functools.partial(shutil.rmtree, made, ignore_errors=True))
        log.info("snapshot_built", profile=plan.profile.name, key=plan.key, seconds=round(time.monotonic() - begun, 2))
