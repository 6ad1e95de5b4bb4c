"""The engine pool: what state each engine is in, and which one takes a request.

Routing: all members of a group, and so all turns of a rollout, go to the engine that holds their prefix, by
rendezvous hash on the group's id; an engine that carries more than its share passes new work to the next in rank.
Invariants: an engine takes requests only while it is ready and its version is the newest wanted one; requests in
flight per engine are bounded; only server faults and transport errors count against an engine, a refused request or
a full queue never does.
Left out: moving engines between versions and probing them is `weights`.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from enum import Enum

import anyio

from . import metrics
from .backend import EngineClient
from .settings import GatewaySettings


class State(str, Enum):
    STARTING = "starting"
    """Never answered a probe."""
    READY = "ready"
    PAUSED = "paused"
    """Healthy and paused by somebody else."""
    UPDATING = "updating"
    SUSPECT = "suspect"
    """Failing; probed until it answers and holds the wanted weights."""
    LOST = "lost"
    """Didn't answer several probes in a row."""


class NoEngine(Exception):
    """No engine could take the request before its deadline."""


class Engine:
    """One engine and what is known about it."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.url = client.url
        self.state = State.STARTING
        self.version = -1
        """Version of the weights that are live as far as the gateway knows; -1: unknown."""
        self.in_flight = 0
        self.faults = 0
        """Server faults in a row."""
        self.trips = 0
        """Times set aside since the last sample."""
        self.rest_until = 0.0
        """Not back in rotation before this monotonic time."""
        self.probes_failed = 0
        self.detail = ""

    def resting(self) -> bool:
        return time.monotonic() < self.rest_until

    def rank(self, key: str) -> bytes:
        """Weight of this engine for `key`; the highest has it."""
        return hashlib.blake2b(f"{key}|{self.url}".encode(), digest_size=8).digest()


def choose(
    engines: Sequence[Engine], key: str, settings: GatewaySettings, avoid: Collection[str] = ()
) -> Engine | None:
    """The engine for `key` among `engines` (all routable); None when each is full.

    The highest rank wins unless it carries more than 1.25 times the fair share plus the affinity slack.
    `avoid` holds URLs that failed this request: they come last.
    """
    free = [engine for engine in engines if engine.in_flight < settings.max_in_flight]
    if len(free) < 2:
        return free[0] if free else None
    share = (sum(engine.in_flight for engine in engines) + 1) / len(engines)
    bound = math.ceil(1.25 * share) + settings.affinity_slack
    ranked = sorted(free, key=lambda engine: (engine.url not in avoid, engine.rank(key)), reverse=True)
    return next((engine for engine in ranked if engine.in_flight < bound), ranked[0])


class Pool:
    """Every configured engine, and who waits for one."""

    def __init__(self, clients: Sequence[EngineClient], settings: GatewaySettings) -> None:
        self.settings = settings
        self.engines = [Engine(client) for client in clients]
        self.wanted = -1
        """Newest policy version; an engine with another one is not routable."""
        self._waiting: deque[anyio.Event] = deque()
        """Requests that wait for room, in the order in which they came."""
        self._early: deque[anyio.Event] = deque()
        """Those that wait for a newer version."""

    def notify(self) -> None:
        """Something changed that every waiting request may care about."""
        for queue in (self._waiting, self._early):
            while queue:
                queue.popleft().set()

    def _freed(self) -> None:
        """There is room for one more request."""
        if self._waiting:
            self._waiting.popleft().set()

    def move(self, engine: Engine, state: State, detail: str = "") -> None:
        """Put an engine into a state."""
        engine.state, engine.detail = state, detail
        metrics.show_engine(engine.url, state.value, engine.version)
        self.notify()

    def routable(self, min_version: int = 0) -> list[Engine]:
        """Engines that may take a request that needs at least `min_version`."""
        if self.wanted < max(0, min_version):
            return []
        return [engine for engine in self.engines if engine.state is State.READY and engine.version == self.wanted]

    @asynccontextmanager
    async def lease(
        self, key: str, min_version: int, avoid: Collection[str], timeout_s: float
    ) -> AsyncIterator[Engine]:
        """An engine for one request; waits for one. NoEngine after `timeout_s`."""
        engine = await self._wait(key, min_version, avoid, timeout_s)
        try:
            yield engine
        finally:
            self._count(engine, -1)
            self._freed()

    async def _wait(self, key: str, min_version: int, avoid: Collection[str], timeout_s: float) -> Engine:
        if (engine := self._take(key, min_version, avoid)) is not None:
            return engine
        with anyio.move_on_after(timeout_s):
            while True:
                await self._change(self._waiting if self.wanted >= min_version else self._early)
                if (engine := self._take(key, min_version, avoid)) is not None:
                    return engine
        states = ", ".join(f"{engine.url} {engine.state.value} v{engine.version}" for engine in self.engines)
        raise NoEngine(f"no engine within {timeout_s:.0f} s for version {max(min_version, self.wanted)}: {states}")

    async def _change(self, queue: deque[anyio.Event]) -> None:
        """Until something changed; who is cancelled meanwhile leaves its turn to the next."""
        changed = anyio.Event()
        queue.append(changed)
        try:
            await changed.wait()
        except anyio.get_cancelled_exc_class():
            if changed.is_set():
                self._freed()
            else:
                queue.remove(changed)
            raise

    def _take(self, key: str, min_version: int, avoid: Collection[str]) -> Engine | None:
        """An engine with room, counted before anything else can run; None when there is none now."""
        engine = choose(self.routable(min_version), key, self.settings, avoid)
        if engine is not None:
            self._count(engine, 1)
        return engine

    def _count(self, engine: Engine, change: int) -> None:
        engine.in_flight += change
        metrics.in_flight(engine.url).set(engine.in_flight)

    def worked(self, engine: Engine) -> None:
        """A request got a proper answer, be it a refusal."""
        engine.faults = engine.trips = 0

    def failed(self, engine: Engine, detail: str) -> None:
        """A server fault or transport error; several in a row set the engine aside, each time for twice as long."""
        engine.faults += 1
        if engine.state is State.READY and engine.faults >= self.settings.breaker_faults:
            engine.rest_until = time.monotonic() + self.settings.probe_s * 2 ** min(engine.trips, 5)
            engine.trips += 1
            self.move(engine, State.SUSPECT, detail)

    def status(self) -> list[dict[str, str | int]]:
        """One row per engine, for people."""
        return [
            {
                "url": engine.url,
                "state": engine.state.value,
                "version": engine.version,
                "in_flight": engine.in_flight,
                "detail": engine.detail,
            }
            for engine in self.engines
        ]
