"""Every service of the loop in this process, on an engine whose first rollout takes a million tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
from aiohttp import web
from support.chat import ASSISTANT, END, ByteChat
from support.services import context

from tiltyard.aggregator import app as aggregator
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.gateway.app import Gateway
from tiltyard.gateway.backend import HttpEngine
from tiltyard.gateway.fake import FakeEngine, _json, _Running
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.kit.bus import Bus
from tiltyard.kit.serve import serve
from tiltyard.kit.settings import RunSettings
from tiltyard.sampler import app as sampler
from tiltyard.sampler.settings import SamplerSettings
from tiltyard.sandbox.app import Service
from tiltyard.sandbox.null import NullBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard.trainer.app import Trainer
from tiltyard.trainer.backend import BusStreams, FakeLearner
from tiltyard.trainer.settings import TrainerSettings
from tiltyard.verifier.app import Verifier
from tiltyard.verifier.backend import System
from tiltyard.verifier.kinds.registry import installed
from tiltyard_proto.topology import EXECUTE, VERIFY

MOST_TOKENS = 1 << 21


class LongChat(ByteChat):
    """Room for a long rollout."""

    context_length = MOST_TOKENS


class LongEngine(FakeEngine):
    """The first rollout's two turns take half a million tokens each, a command and an answer; others answer wrong."""

    half = 500_000
    asked = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.long: list[int] = []
        """The tokens of the first rollout, over its turns."""
        self.short: list[int] = []
        """Those of the others."""

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        self.asked += 1
        if len(body["input_ids"]) >= self.half:
            text, length = "DONE\n2", self.half
        elif self.asked == 1:
            text, length = "echo 1", self.half
        else:
            text, length = "DONE\n3", 0
        end = [*text.encode(), END]
        ids = [ASSISTANT] * max(0, length - len(end)) + end  # what decodes to no text
        (self.long if length else self.short).extend(ids)
        running = _Running(rid=body["rid"], ids=ids, versions=[self.live_version] * len(ids))
        return _json(self._reply(running, {"type": "stop", "matched": END}, body))


class Loop:
    """The six services of one run."""

    def __init__(self, bus: Bus, run: RunSettings, data: Path) -> None:
        self.bus = bus
        self.run = run
        self.data = data
        self.stop = anyio.Event()
        self.learner = FakeLearner(LongChat.vocab_size)
        self.engine = LongEngine(context_length=MOST_TOKENS)

    def start(self, tasks: Any) -> None:
        """Start them in a task group."""
        for service in (self._sampler, self._gateway, self._sandbox, self._verifier, self._aggregator, self._trainer):
            tasks.start_soon(service)

    def _context(self, name: str, settings: Any) -> Any:
        of = context(name, self.bus, self.run, settings, self.data)
        of.stop = self.stop
        return of

    async def _sampler(self) -> None:
        await sampler.start(self._context("sampler", SamplerSettings(settle_s=0.1, tick_s=0.05)))

    async def _gateway(self) -> None:
        settings = GatewaySettings(engines=(await self.engine.start(),), probe_s=0.1, poll_s=0.5)
        try:
            async with aiohttp.ClientSession() as session:
                client = HttpEngine(settings.engines[0], session, settings)
                await Gateway(self.run.name, self.bus, [client], settings, lambda _: LongChat()).serve(self.stop)
        finally:
            await self.engine.stop()

    async def _sandbox(self) -> None:
        settings = SandboxSettings(backend="null", pool={})
        worker = Worker(settings, Pool(NullBackend(settings), settings), self.bus.blobs)
        await serve(self.bus, EXECUTE, Service(worker).handle, slots=4, stop=self.stop, fair=True)

    async def _verifier(self) -> None:
        await serve(self.bus, VERIFY, Verifier(System(installed())).handle, slots=4, stop=self.stop)

    async def _aggregator(self) -> None:
        await aggregator.start(self._context("aggregator", AggregatorSettings(archive_every_s=0.2)))

    async def _trainer(self) -> None:
        source = self.data / "model"
        source.mkdir()
        (source / "config.json").write_text(json.dumps({"vocab_size": LongChat.vocab_size}))
        trainer = Trainer(
            run=self.run,
            settings=TrainerSettings(learner="fake", micro_batch_tokens=MOST_TOKENS),
            source=source,
            data=self.data / "trainer",
            streams=BusStreams(self.bus),
            learner=lambda: self.learner,
            stop=self.stop,
        )
        await trainer.serve()
