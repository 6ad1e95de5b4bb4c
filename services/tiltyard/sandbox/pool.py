"""Warm sandboxes per profile: a claim takes one that is ready, the background makes the next.

Invariants: a sandbox is handed out once and never comes back; claims of what has no pool, or finds it empty, start
their own; a failing back-end slows the refill down instead of spinning. Left out: what a claimer does with it, and
its end.
"""

from __future__ import annotations

import time
from collections import deque

import anyio
import structlog

from . import metrics
from .backend import Backend, Sandbox, StartFailed, Want
from .settings import SandboxSettings

log = structlog.get_logger()
BACK_OFF_S = 2.0


class Pool:
    """Ready sandboxes of every pooled profile. Run `serve` in a task group."""

    def __init__(self, backend: Backend, settings: SandboxSettings) -> None:
        self.backend, self.settings = backend, settings
        self.idle: dict[str, deque[Sandbox]] = {profile: deque() for profile in settings.pool}
        self.problem: str | None = None
        """Why the last start failed; None when it worked."""
        self._starting = dict.fromkeys(settings.pool, 0)
        self._changed = anyio.Event()

    async def claim(self, want: Want) -> Sandbox:
        """A fresh sandbox; StartFailed when none can be started."""
        begun = time.monotonic()
        profile = want.profile
        ready = self.idle.get(profile) if want == self._pooled(profile) else None
        while ready:
            sandbox = ready.popleft()
            self._notify(profile)
            if sandbox.alive:
                metrics.CLAIM_SECONDS.observe(time.monotonic() - begun)
                return sandbox
            await sandbox.kill()
        sandbox = await self._start(want)
        metrics.CLAIM_SECONDS.observe(time.monotonic() - begun)
        return sandbox

    async def serve(self, stop: anyio.Event) -> None:
        """Keep the pools filled until `stop`; then kill what is idle."""
        limiter = anyio.Semaphore(max(1, self.settings.refill))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wake_at, stop)
                while not stop.is_set():
                    self._changed = anyio.Event()
                    for profile, size in self.settings.pool.items():
                        for _ in range(size - len(self.idle[profile]) - self._starting[profile]):
                            self._starting[profile] += 1
                            tasks.start_soon(self._refill, profile, limiter)
                    await self._changed.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.drain()

    async def drain(self) -> None:
        """Kill the idle sandboxes."""
        for profile, ready in self.idle.items():
            while ready:
                await ready.popleft().kill()
            metrics.READY.labels(profile).set(0)

    def _pooled(self, profile: str) -> Want:
        return Want(profile=profile, disk_bytes=self.settings.disk_bytes)

    async def _refill(self, profile: str, limiter: anyio.Semaphore) -> None:
        try:
            async with limiter:
                self.idle[profile].append(await self._start(self._pooled(profile)))
        except StartFailed as error:
            log.error("sandbox_start_failed", profile=profile, error=str(error))
            await anyio.sleep(BACK_OFF_S)
        finally:
            self._starting[profile] -= 1
            self._notify(profile)

    async def _start(self, want: Want) -> Sandbox:
        try:
            sandbox = await self.backend.start(want)
        except StartFailed as error:
            self.problem = str(error)
            metrics.STARTS_FAILED.inc()
            raise
        self.problem = None
        metrics.START_SECONDS.observe(sandbox.start_s)
        return sandbox

    def _notify(self, profile: str) -> None:
        metrics.READY.labels(profile).set(len(self.idle[profile]))
        metrics.LEAKED.set(self.backend.leaked)
        self._changed.set()

    async def _wake_at(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._changed.set()
