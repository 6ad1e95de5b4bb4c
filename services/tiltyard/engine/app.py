"""The engine's state on the event loop: jobs in and out of the scheduler's thread, and the weights being served.

Invariants: the loop never computes or loads; a request whose client leaves frees its row; a request id is in use at
most once. The three traps of SGLang are kept on purpose: aborts match by prefix, an abort of a held request is lost,
and an update whose flush is refused answers 400 although the new weights are live (their name in `/model_info` stays
the old one).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tiltyard.engine.backend import Backend
from tiltyard.engine.gate import Gate
from tiltyard.engine.handler import Generation, Limits, Refused, Request, parse_generate
from tiltyard.engine.job import Job
from tiltyard.engine.metrics import Metrics
from tiltyard.engine.scheduler import NotFlushed, Scheduler
from tiltyard.engine.settings import EngineSettings
from tiltyard.policy.chat import ChatRenderer

PAUSE_MODES = ("abort", "in_place", "retract")
QUEUE_FULL = {"object": "error", "message": "The request queue is full.", "type": "503", "param": None, "code": 503}
Reply = dict[str, Any]
T = TypeVar("T")


class Engine:
    """What the HTTP routes act on. Create it inside a running event loop."""

    def __init__(self, settings: EngineSettings, backend: Backend, renderer: ChatRenderer, model_path: str) -> None:
        self.settings, self.backend = settings, backend
        self.model_path = model_path
        self.served_name = settings.served_model_name or model_path
        self.tokenizer_path = model_path
        self.weight_version = "default"
        self.started = time.time()
        config = backend.config
        self.limits = Limits(
            vocab_size=config.vocab_size,
            context_length=settings.context_length or config.max_position_embeddings,
            row_tokens=backend.row_tokens,
            eos_ids=frozenset(config.eos_token_ids),
        )
        self.scheduler = Scheduler(
            backend, max_running=settings.max_running_requests, prefill_tokens=settings.prefill_tokens_per_step
        )
        self.metrics = Metrics(lambda: self.scheduler.load, settings.max_total_tokens)
        self.gate = Gate()
        self._renderer = renderer
        self._rids: set[str] = set()
        self._operations: set[asyncio.Future[Any]] = set()
        self._loop = asyncio.get_running_loop()

    def parse(self, body: Mapping[str, Any]) -> Request:
        """Checks a body of `/generate`; raises `Refused`."""
        request = parse_generate(body, self.limits, self._renderer.encode_trusted, lambda: uuid.uuid4().hex)
        for asked in request.generations:
            if asked.rid in self._rids:
                raise Refused(f"Duplicate request ID detected: {asked.rid}")
        waiting = self.scheduler.load.waiting + len(request.generations)
        if waiting > self.settings.max_queued_requests:
            raise Refused("The request queue is full.", status=503, body=QUEUE_FULL)
        return request

    @asynccontextmanager
    async def updates(self, request: Request) -> AsyncIterator[asyncio.Queue[tuple[int, Reply, bool]]]:
        """Runs the generations; yields a queue of (index, reply so far, final). Leaving early frees the rows."""
        results: asyncio.Queue[tuple[int, Reply, bool]] = asyncio.Queue()
        rids = {asked.rid for asked in request.generations}
        self._rids |= rids
        jobs: list[Job] = []
        try:
            async with self.gate.request():
                jobs = [self._job(asked, index, results, request) for index, asked in enumerate(request.generations)]
                for job in jobs:
                    self.scheduler.submit(job)
                try:
                    yield results
                finally:
                    if any(job.finish is None for job in jobs):
                        mine = set(map(id, jobs))
                        self.scheduler.abort(lambda job: id(job) in mine)
        finally:
            self._rids -= rids

    async def generate(self, request: Request) -> list[Reply]:
        """Runs the generations to their ends; replies in order."""
        replies: dict[int, Reply] = {}
        async with self.updates(request) as results:
            while len(replies) < len(request.generations):
                index, reply, final = await results.get()
                if final:
                    replies[index] = reply
        return [replies[index] for index in range(len(replies))]

    async def abort(self, rid: str, *, everything: bool) -> None:
        """Ends the requests whose id begins with `rid`, or all; unknown ids are no error."""
        if everything or rid:
            self.scheduler.abort(lambda job: everything or job.asked.rid.startswith(rid))

    async def pause(self, mode: str) -> None:
        """Closes the door, then pauses; in mode abort returns when nothing runs."""
        if mode not in PAUSE_MODES:
            raise Refused(f"mode must be one of {', '.join(PAUSE_MODES)}, got {mode!r}.")

        async def close() -> None:
            await self.gate.set_paused(True)
            await asyncio.wrap_future(self.scheduler.pause(mode))

        await self._to_its_end(close())

    async def resume(self) -> None:
        """Goes on and opens the door."""

        async def open_again() -> None:
            await asyncio.wrap_future(self.scheduler.resume())
            await self.gate.set_paused(False)

        await self._to_its_end(open_again())

    async def flush(self) -> bool:
        """Empties the prefix cache; False when something holds it."""
        return await asyncio.wrap_future(self.scheduler.flush())

    async def update(self, model_path: str, version: str | None, *, flush: bool, abort: bool) -> tuple[bool, str]:
        """Loads weights from a directory: whether it succeeded, and SGLang's message."""
        return await self._to_its_end(self._update(model_path, version, flush=flush, abort=abort))

    async def _update(self, model_path: str, version: str | None, *, flush: bool, abort: bool) -> tuple[bool, str]:
        if abort:
            await asyncio.wrap_future(self.scheduler.abort(lambda job: True))
        async with self.gate.update():
            begun = time.perf_counter()
            try:
                await asyncio.wrap_future(self.scheduler.update(Path(model_path), version, flush=flush))
            except NotFlushed:
                return False, "Weights were updated, but the cache was not flushed: requests are holding it."
            except (ValueError, OSError) as error:
                return False, f"Failed to update weights: {error}. The old weights stay in use."
            self.metrics.weight_load.observe(time.perf_counter() - begun)
        self.model_path = self.served_name = model_path
        if version is not None:
            self.weight_version = version
        return True, "Succeeded to update model weights."

    async def rename_version(self, version: str, *, abort: bool) -> None:
        """Gives the live weights another version name."""
        if abort:
            await asyncio.wrap_future(self.scheduler.abort(lambda job: True))
        await asyncio.wrap_future(self.scheduler.set_version(version))
        self.weight_version = version

    async def healthy(self) -> bool:
        """Whether the scheduler answers in time; it does not while paused."""
        try:
            async with asyncio.timeout(self.settings.health_timeout_s):
                await asyncio.wrap_future(self.scheduler.ping())
        except TimeoutError:
            return False
        return not self.scheduler.died

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits a control operation that must not stop half-way when its client goes away."""
        task = asyncio.ensure_future(work)
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return await asyncio.shield(task)

    def _job(
        self, asked: Generation, index: int, results: asyncio.Queue[tuple[int, Reply, bool]], request: Request
    ) -> Job:
        def notify(reply: Reply, final: bool) -> None:
            self._loop.call_soon_threadsafe(self._deliver, results, index, reply, final)

        return Job(asked, self._renderer.token_bytes, notify, stream=request.stream, now=time.time())

    def _deliver(self, results: asyncio.Queue[tuple[int, Reply, bool]], index: int, reply: Reply, final: bool) -> None:
        if final:
            self.metrics.ended(reply)
        results.put_nowait((index, reply, final))
