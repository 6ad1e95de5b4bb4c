"""Weights: which policy is wanted, and moving every engine to it.

Order of a move: pause, load without flushing, flush, verify, continue. Weights that were updated but not flushed
count as live: they are flushed again, never loaded again blindly.
Invariants: one engine is moved by one task; versions never go backwards within a run; an engine returns to rotation
only with the wanted version verified and its prefix cache empty (in mode `in_place`, where running requests hold the
cache, the requests' salt keeps old prefixes apart instead); an engine that reports anything but what was verified last
(it was restarted) is moved again before it serves; a failing engine is set aside and tried again while the others go
on serving; a paused engine that nobody resumes is resumed.
Left out: tensor and distributed updates, checksums across replicas (the engine reads the same file).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
import structlog

from tiltyard_proto.messages import Policy

from . import metrics
from .backend import EngineInfo
from .engines import Engine, Pool, State
from .settings import GatewaySettings
from .wire import EngineError, EngineFault

Newest = Callable[[], Awaitable[None]]
log = structlog.get_logger()


class Wanted:
    """The newest policy of the run; only ever moves up."""

    def __init__(self, pool: Pool) -> None:
        self.policy: Policy | None = None
        self._pool = pool
        self._moved = anyio.Event()

    def offer(self, policy: Policy) -> bool:
        """Take `policy` if it is newer than the present one."""
        if self.policy is not None and policy.version <= self.policy.version:
            return False
        self.policy = policy
        self._pool.wanted = policy.version
        metrics.WANTED.set(policy.version)
        self._moved.set()
        self._moved = anyio.Event()
        self._pool.notify()
        log.info("policy_wanted", version=policy.version, path=policy.path)
        return True

    async def changed(self, version: int, within_s: float) -> None:
        """Until a version above `version` is wanted, at most `within_s` seconds."""
        with anyio.move_on_after(within_s):
            while self.policy is None or self.policy.version <= version:
                await self._moved.wait()

    async def first(self) -> Policy:
        """The first policy, waited for."""
        while self.policy is None:
            await self._moved.wait()
        return self.policy


class Keeper:
    """Keeps one engine on the wanted weights."""

    def __init__(self, engine: Engine, pool: Pool, wanted: Wanted, refresh: Newest, settings: GatewaySettings) -> None:
        self.engine = engine
        self._client = engine.client
        self._pool = pool
        self._wanted = wanted
        self._refresh = refresh
        self._settings = settings
        self._verified: EngineInfo | None = None
        """What the engine reported when it was last verified."""
        self._unflushed: int | None = None
        """Version that is live while its flush is still owed."""
        self._paused_ticks = 0

    async def run(self) -> None:
        """For ever: look at the engine every `probe_s`, and at once when new weights are wanted."""
        while True:
            target = self._target()  # what is wanted while this look lasts waits for the next one, which comes at once
            await self.tick()
            await self._wanted.changed(target, self._settings.probe_s)

    def _target(self) -> int:
        return -1 if self._wanted.policy is None else self._wanted.policy.version

    async def tick(self) -> None:
        """One look: probe, move when needed, note failure."""
        try:
            info = await self._client.info()
            self.engine.probes_failed = 0
            policy = self._wanted.policy
            if policy is None:
                return
            if self._unflushed is not None or not self._holds(info, policy):
                await self._move_to(policy, info)
            elif await self._client.ready():
                self._serve(policy)
            else:
                await self._resume_left_paused()
        except EngineError as error:
            self._failed(error)

    def _holds(self, info: EngineInfo, policy: Policy) -> bool:
        """Does the engine hold the wanted weights, as verified before or by its own word?"""
        if self.engine.version == policy.version and self._verified == info:
            return True
        return info.version == str(policy.version) and info.model_path == policy.path

    def _serve(self, policy: Policy) -> None:
        self._paused_ticks = 0
        if self.engine.state is State.SUSPECT and self.engine.resting():
            return
        if self.engine.state is not State.READY or self.engine.version != policy.version:
            self.engine.version, self.engine.faults = policy.version, 0
            self._pool.move(self.engine, State.READY)
            log.info("engine_ready", engine=self.engine.url, version=policy.version)

    def _failed(self, error: EngineError) -> None:
        self.engine.probes_failed += 1
        lost = self.engine.probes_failed >= self._settings.lost_after
        state = State.LOST if lost else State.SUSPECT
        if self.engine.state is State.STARTING and not lost:
            state = State.STARTING
        if self.engine.state is not state:
            if self.engine.version < 0:
                log.info("engine_awaited", engine=self.engine.url)  # it may still be loading its model
            else:
                log.warning("engine_failed", engine=self.engine.url, state=state.value, error=str(error))
        self._pool.move(self.engine, state, str(error)[:300])

    async def _resume_left_paused(self) -> None:
        """Somebody paused it and holds the wanted weights: a mover that died is helped out after two looks."""
        self._paused_ticks += 1
        self._pool.move(self.engine, State.PAUSED, "paused by somebody else")
        if self._paused_ticks >= 2:
            await self._flush()
            await self._client.resume()
            self._paused_ticks = 0

    async def _move_to(self, policy: Policy, info: EngineInfo) -> None:
        if _ahead(info.version, policy.version):
            await self._refresh()  # another gateway may know a newer policy; if the stream doesn't, it isn't of our run
            policy = self._wanted.policy or policy
            if self._holds(info, policy):
                return
        started = time.monotonic()
        self._pool.move(self.engine, State.UPDATING, f"to version {policy.version}")
        try:
            await self._client.pause(self._settings.pause_mode)
            try:
                await self._load(policy)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._client.resume()
        except EngineError as error:
            metrics.SYNC_FAILED.labels(self.engine.url).inc()
            log.warning("sync_failed", engine=self.engine.url, version=policy.version, error=str(error))
            raise
        metrics.SYNC_SECONDS.observe(time.monotonic() - started)
        self._serve(policy)

    async def _load(self, policy: Policy) -> None:
        """Load, flush, verify; the engine is paused."""
        if self._unflushed != policy.version:
            self._verified, self.engine.version = None, -1
            clean = await self._client.update_weights(policy.path, str(policy.version))
            self._unflushed = policy.version
            if not clean:
                await self._client.set_version(str(policy.version))
        await self._flush()
        self._unflushed = None
        info = await self._client.info()
        if info.version != str(policy.version):
            raise EngineFault(f"reports version {info.version!r} after an update to {policy.version}")
        self._verified, self.engine.version = info, policy.version

    async def _flush(self) -> None:
        """Empty the prefix cache, with bounded patience; in place it can't be emptied under running requests."""
        wait = self._settings.flush_wait_s
        for left in reversed(range(self._settings.flush_tries)):
            if await self._client.flush() or self._settings.pause_mode == "in_place":
                return
            if left == 1:
                await self._client.abort_all()  # their cache entries hold old weights: better sampled again
            if left:
                await anyio.sleep(wait)
                wait *= 2
        raise EngineFault(f"prefix cache not flushed in {self._settings.flush_tries} tries")


def _ahead(reported: str, version: int) -> bool:
    return reported.isascii() and reported.isdigit() and int(reported) > version
