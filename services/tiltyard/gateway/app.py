"""Wiring of the gateway: policy stream, engines, generate stage.

Per message of stage generate: sample the rollout's next turn and send the rollout where `flow.next_hop` says.
Left out, for later: an OpenAI-compatible endpoint that records token ids for unmodified agents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import structlog

from tiltyard.domains.interfaces import parse_action
from tiltyard.kit.breaker import Breaker
from tiltyard.kit.bus import Bus, Out, out
from tiltyard.kit.jetstream import BusError
from tiltyard.kit.serve import Reject, serve
from tiltyard.kit.service import Context
from tiltyard.policy.chat import ChatRenderer
from tiltyard_proto import flow
from tiltyard_proto.flow import Hop
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import GENERATE, POLICY

from .backend import EngineClient, HttpEngine
from .engines import Pool
from .generate import Generator, Invalid
from .handler import Chat, Ending, deadline_ending
from .settings import GatewaySettings
from .weights import Keeper, Wanted

log = structlog.get_logger()
LoadChat = Callable[[Path], Chat]


class Gateway:
    """One gateway process."""

    def __init__(
        self, run: str, bus: Bus, clients: Sequence[EngineClient], settings: GatewaySettings, load_chat: LoadChat
    ) -> None:
        self.run = run
        self.bus = bus
        self.settings = settings
        self.pool = Pool(clients, settings)
        self.wanted = Wanted(self.pool)
        self._load_chat = load_chat
        self._generator: Generator | None = None
        self._loading = anyio.Lock()

    async def handle(self, rollout: Rollout) -> list[Out]:
        """One message of stage generate."""
        now = time.time()
        if rollout.run != self.run and rollout.outcome is None:
            return _ended(rollout, Ending(outcome=Outcome.STALE, detail=f"this gateway serves run {self.run!r}"))
        if rollout.deadline and now >= rollout.deadline and rollout.outcome is None and not rollout.turns:
            return _ended(rollout, deadline_ending(rollout, "the deadline passed before the first turn"))
        hop = flow.next_hop(rollout, now)
        if hop.stage != "generate" or not isinstance(hop.message, Rollout):
            return [out(hop)]  # it ended while it waited here
        generator = self._generator
        if generator is None:
            with anyio.move_on_after((rollout.deadline or now + self.settings.hold_s) - now):
                generator = await self._ready_generator()
        if generator is None:
            return _ended(rollout, deadline_ending(rollout, "no policy was published before the deadline"))
        try:
            done = await generator.turn(hop.message)
        except Invalid as error:
            raise Reject("validation", str(error)[:1000]) from error
        return [out(flow.next_hop(done, time.time()))]

    def bury(self, rollout: Rollout, outcome: Outcome, detail: str) -> list[Out]:
        """The verdict of a rollout whose message was dead-lettered, so that its group still closes."""
        return [out(Hop(stage="verdict", message=flow.ungraded(rollout, outcome, detail)))]

    async def _ready_generator(self) -> Generator:
        """The generator, made when the first policy tells where tokenizer and chat template are."""
        async with self._loading:
            if self._generator is None:
                policy = await self.wanted.first()
                path = Path(self.settings.model_dir or policy.path)
                chat = await anyio.to_thread.run_sync(self._load_chat, path)
                self._generator = Generator(self.pool, chat, parse_action, self.settings)
        return self._generator

    async def refresh(self) -> None:
        """Ask the bus for the newest policy."""
        try:
            policy = await self.bus.latest_policy(self.run)
        except BusError as error:
            log.debug("policy_poll_failed", error=str(error))
            return
        if policy is not None:
            self.wanted.offer(policy)

    async def follow(self) -> None:
        """Take every new policy as it is announced."""
        async for _sequence, policy in self.bus.follow(POLICY):
            if policy.run == self.run:
                self.wanted.offer(policy)

    async def poll(self) -> None:
        """Ask for the newest policy every few seconds: an announcement may be missed."""
        while True:
            await self.refresh()
            await anyio.sleep(self.settings.poll_s)

    def unready(self) -> str | None:
        """Why no turn can be sampled now; None when one can."""
        if self.wanted.policy is None:
            return "no policy published yet"
        if self.pool.routable():
            return None
        return "; ".join(f"{row['url']} {row['state']} {row['detail']}".strip() for row in self.pool.status())

    def status(self) -> dict[str, Any]:
        """For the health endpoint and people."""
        return {"run": self.run, "wanted": self.pool.wanted, "engines": self.pool.status()}

    async def serve(self, stop: anyio.Event, drain_s: float = 10.0, breaker: Breaker | None = None) -> None:
        """Until `stop`; then turns in flight get `drain_s` seconds, and what is left goes back to the bus."""
        await self.refresh()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.follow)
            tasks.start_soon(self.poll)
            for engine in self.pool.engines:
                keeper = Keeper(engine, self.pool, self.wanted, self.refresh, self.settings)
                tasks.start_soon(keeper.run)
            await serve(
                self.bus,
                GENERATE,
                self.handle,
                slots=self.settings.slots,
                stop=stop,
                bury=self.bury,
                drain_s=drain_s,
                fair=self.settings.fair,
                breaker=breaker,
            )
            tasks.cancel_scope.cancel()


async def start(ctx: Context) -> None:
    """Serve stage generate until the context stops."""
    settings: GatewaySettings = ctx.settings
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = [HttpEngine(url, session, settings) for url in settings.engines]
        gateway = Gateway(ctx.run.name, ctx.bus, clients, settings, ChatRenderer)
        ctx.health.checks["engines"] = gateway.unready
        await gateway.serve(ctx.stop, ctx.service.drain_s, ctx.breaker(GENERATE))


def _ended(rollout: Rollout, ending: Ending) -> list[Out]:
    return [out(flow.next_hop(flow.finish(rollout, ending.outcome, ending.detail), time.time()))]
