"""The simulated engine as a process: SGLang's API with random answers, random latencies and now and then a fault.

`python engine.py PORT MODEL_DIR SEED`. It is the gateway's `FakeEngine` in everything but what it samples: one of a few
short texts, drawn at random. Left out: a model.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tiltyard.gateway.fake import FakeEngine
from tiltyard.policy.chat import ChatRenderer

ANSWERS = ("echo 1", "echo 2", "DONE")
WEIGHTS = (4, 4, 2)
FAULTS = 0.005
"""Share of requests that end in a status 500."""
MEAN_S = 0.02
"""Mean time of one answer, exponentially distributed."""


class RandomEngine(FakeEngine):
    """See the module."""

    answers: tuple[tuple[int, ...], ...] = ()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        self.requests.clear()  # the fake keeps them for tests; thousands are too many
        if random.random() < FAULTS:
            return web.Response(body=msgspec.json.encode({"error": {"message": "chaos"}}), status=500)
        return await super()._generate(request)

    async def _run(self, running: Any, body: dict[str, Any]) -> dict[str, Any]:
        (answer,) = random.choices(self.answers, WEIGHTS)
        await asyncio.sleep(random.expovariate(1 / MEAN_S))
        async with self._changed:
            await self._changed.wait_for(lambda: not self.paused or running.cut)
        running.held = False
        if running.cut:
            return {"type": "abort", "message": running.cut}
        running.ids += answer
        running.versions += [self.live_version] * len(answer)
        return {"type": "stop", "matched": answer[-1]}


async def serve(port: int, model: Path, seed: int) -> None:
    """Until killed."""
    random.seed(seed)
    chat = ChatRenderer(model)
    engine = RandomEngine(vocab_size=chat.vocab_size, context_length=chat.context_length, model_path=str(model))
    end = min(chat.eos_ids)
    engine.answers = tuple((*chat.encode(text), end) for text in ANSWERS)
    await engine.start(port)
    print('{"event": "engine_listens"}', flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
