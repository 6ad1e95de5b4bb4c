"""Warm sandboxes: a claim takes one that is ready, the background makes the next.

There is a pool for every profile that asks for one and for whatever is claimed again and again; `demand` says how
large. Invariants: a sandbox is handed out once and never comes back; one that died waiting is not handed out; a claim
that finds none starts its own, or takes one that gets ready first; starts at a time are bounded, and claims go before
refills; a failing back-end slows the refill down instead of spinning. Left out: what a claimer does with it, and its
end.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import anyio
import structlog

from . import images, metrics, profiles
from .backend import Backend, Sandbox, StartFailed, Want, killed_on_failure
from .demand import Bounds, Meter, Need, allot, target
from .settings import SandboxSettings

log = structlog.get_logger()
BACK_OFF_S = 2.0
TICK_S = 1.0
MOST_POOLS = 16
"""Pools at a time, besides those that the settings ask for."""
IDLE_BYTES, PRELOADED_BYTES = 24 << 20, 36 << 20
"""About what an idle sandbox takes, without and with imported modules."""


class Shelf:
    """The ready sandboxes of one want."""

    def __init__(self, want: Want, least: int, idle_bytes: int, now: float) -> None:
        self.want, self.least, self.idle_bytes, self.used = want, least, idle_bytes, now
        self.idle: deque[Sandbox] = deque()
        self.meter = Meter()
        self.refill_s = 0.5
        """How long a start takes, averaged."""
        self.starting, self.target = 0, least


class Pool:
    """Ready sandboxes of every kind that is asked for. Run `serve` in a task group."""

    def __init__(
        self, backend: Backend, settings: SandboxSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.backend, self.settings, self.clock = backend, settings, clock
        self.problem: str | None = None
        """Why the last start failed; None when it worked."""
        self.may_refill: Callable[[str], bool] = lambda _: True
        """Asked before a sandbox of a profile is started for the pool; a claim starts its own without asking."""
        self.profiles = profiles.load(images.profile_folders(settings))
        self.shelves: dict[Want, Shelf] = {}
        self._starts = anyio.Semaphore(settings.starts)
        self._refills = anyio.Semaphore(min(settings.refill, settings.starts))
        self._changed = anyio.Event()
        for name in {**self.profiles, **settings.pool}:
            profile = self.profiles.get(name)
            least = settings.pool.get(name, profile.pool if profile else 0)
            if least:
                self._shelf(Want(profile=name, disk_bytes=profile.disk_bytes if profile else 64 << 20), least)

    def _shelf(self, want: Want, least: int = 0) -> Shelf:
        profile = self.profiles.get(want.profile)
        cost = PRELOADED_BYTES if profile and profile.preload else IDLE_BYTES
        self.shelves[want] = Shelf(want, least, cost, self.clock())
        return self.shelves[want]

    # ------------------------------------------------------------ claims

    async def claim(self, want: Want) -> Sandbox:
        """A fresh sandbox; StartFailed when none can be started."""
        begun = time.monotonic()
        shelf = self._meet(want)
        sandbox = await self._ready(shelf)
        warm = sandbox is not None
        if sandbox is None:
            async with self._starts:
                sandbox = await self._ready(shelf) or await self._start(want, shelf)
        metrics.CLAIMS.labels("warm" if warm else "cold").inc()
        metrics.CLAIM_SECONDS.observe(time.monotonic() - begun)
        return sandbox

    def _meet(self, want: Want) -> Shelf | None:
        """Note the claim. A snapshot's clones are wanted once, so there is no pool of them."""
        if want.snapshot:
            return None
        shelf = self.shelves.get(want)
        if shelf is None:
            self._forget_unused()
            if len(self.shelves) >= MOST_POOLS + len(self.settings.pool):
                return None
            shelf = self._shelf(want)
        shelf.used = self.clock()
        shelf.meter.claim(shelf.used)
        self._notify(want.profile)
        return shelf

    async def _ready(self, shelf: Shelf | None) -> Sandbox | None:
        while shelf is not None and shelf.idle:
            sandbox = shelf.idle.popleft()
            self._notify(shelf.want.profile)
            if sandbox.alive:
                return sandbox
            await sandbox.kill()
        return None

    # ------------------------------------------------------------ refills

    async def serve(self, stop: anyio.Event) -> None:
        """Keep the pools at their targets until `stop`; then kill what is idle."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wake_at, stop)
                while not stop.is_set():
                    self._changed = anyio.Event()
                    self.aim()
                    for shelf in list(self.shelves.values()):
                        await self._shrink(shelf)
                        if self.may_refill(shelf.want.profile):
                            for _ in range(shelf.target - len(shelf.idle) - shelf.starting):
                                shelf.starting += 1
                                tasks.start_soon(self._refill, shelf)
                    with anyio.move_on_after(TICK_S):
                        await self._changed.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.drain()

    def aim(self) -> None:
        """Set every pool's target from the claims so far."""
        now, settings = self.clock(), self.settings
        shelves = list(self.shelves.values())
        needs = []
        for shelf in shelves:
            meter, bounds = shelf.meter, Bounds(least=shelf.least, most=settings.pool_most)
            size = target(meter.rate(now), meter.burst(now), shelf.refill_s, settings.refill, bounds)
            if not shelf.least and (meter.claims < 2 or now - shelf.used > settings.pool_idle_s):
                size = 0
            needs.append(Need(least=shelf.least, target=size, bytes=shelf.idle_bytes))
        for shelf, size in zip(shelves, allot(needs, settings.pool_bytes), strict=True):
            shelf.target = size
        for name in {shelf.want.profile for shelf in shelves}:
            metrics.POOL_TARGET.labels(name).set(sum(one.target for one in shelves if one.want.profile == name))

    async def trial(self, want: Want) -> None:
        """Start one, whatever is ready, and end it; StartFailed when that doesn't work."""
        async with self._starts:
            sandbox = await self._start(want, None)
        await sandbox.kill()

    async def _shrink(self, shelf: Shelf) -> None:
        """Kill what is too much, and remove what died waiting, so that it is replaced before it is claimed."""
        while dead := next((one for one in shelf.idle if not one.alive), None):
            shelf.idle.remove(dead)
            self._notify(shelf.want.profile)
            await dead.kill()
        while len(shelf.idle) > shelf.target:
            sandbox = shelf.idle.pop()
            self._notify(shelf.want.profile)
            await sandbox.kill()

    def _forget_unused(self) -> None:
        for want, shelf in list(self.shelves.items()):
            if not (shelf.least or shelf.idle or shelf.starting or shelf.target):
                del self.shelves[want]

    async def drain(self) -> None:
        """Kill the idle sandboxes."""
        for shelf in list(self.shelves.values()):
            while shelf.idle:
                await shelf.idle.popleft().kill()
            metrics.READY.labels(shelf.want.profile).set(0)

    async def _refill(self, shelf: Shelf) -> None:
        try:
            async with self._refills, self._starts:
                if len(shelf.idle) < shelf.target:
                    sandbox = await self._start(shelf.want, shelf)
                    async with killed_on_failure(sandbox):
                        await sandbox.rest()
                    shelf.idle.append(sandbox)
        except StartFailed as error:
            log.error("sandbox_start_failed", profile=shelf.want.profile, error=str(error))
            await anyio.sleep(BACK_OFF_S)
        finally:
            shelf.starting -= 1
            self._notify(shelf.want.profile)

    async def _start(self, want: Want, shelf: Shelf | None) -> Sandbox:
        try:
            sandbox = await self.backend.start(want)
        except StartFailed as error:
            if not want.snapshot:
                self.problem = str(error)
                metrics.STARTS_FAILED.inc()
            raise
        self.problem = None
        metrics.START_SECONDS.observe(sandbox.start_s)
        if shelf is not None:
            shelf.refill_s += 0.2 * (sandbox.start_s - shelf.refill_s)
        return sandbox

    def _notify(self, profile: str) -> None:
        ready = sum(len(shelf.idle) for shelf in self.shelves.values() if shelf.want.profile == profile)
        metrics.READY.labels(profile).set(ready)
        metrics.LEAKED.set(self.backend.leaked)
        self._changed.set()

    async def _wake_at(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._changed.set()
