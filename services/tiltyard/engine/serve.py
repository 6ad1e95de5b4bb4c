"""Starting the engine: model, backend, scheduler and HTTP server, in this order, and their end in the reverse one.

Invariant: the port opens only when the model is loaded, so a connection means an engine that can answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
import uvloop
from aiohttp import web

from tiltyard.engine.app import Engine
from tiltyard.engine.backend import Backend
from tiltyard.engine.routes import build_app
from tiltyard.engine.settings import EngineSettings
from tiltyard.engine.torch_backend import TorchBackend
from tiltyard.policy.chat import ChatRenderer
from tiltyard.policy.models import ensure_model

log = structlog.get_logger()


@asynccontextmanager
async def running(settings: EngineSettings, model_dir: Path, backend: Backend) -> AsyncIterator[tuple[Engine, str]]:
    """Serves until left; yields the engine and its base URL (with the port that the system chose, if asked to)."""
    engine = Engine(settings, backend, ChatRenderer(model_dir), str(model_dir))
    runner = web.AppRunner(build_app(engine), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    engine.scheduler.start()
    try:
        await runner.setup()
        await web.TCPSite(runner, settings.host, settings.port).start()
        yield engine, f"http://{settings.host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        engine.scheduler.stop()


def make_backend(settings: EngineSettings, model_dir: Path) -> TorchBackend:
    """The real backend for these settings."""
    return TorchBackend(
        model_dir,
        dtype=settings.dtype,
        threads=settings.threads or min(2, os.cpu_count() or 1),
        lane_rows=settings.lane_rows,
        max_total_tokens=settings.max_total_tokens,
        prefix_cache_tokens=settings.prefix_cache_tokens,
        seed=settings.seed,
    )


def serve(settings: EngineSettings, model: str, cache: Path) -> int:
    """Runs the engine until SIGTERM or SIGINT; 1 when the scheduler died.

    Raises ValueError or `ModelUnavailable` when the model cannot be had.
    """
    begun = time.perf_counter()
    model_dir = ensure_model(model, cache).absolute()
    backend = make_backend(settings, model_dir)
    log.info("model_loaded", path=str(model_dir), dtype=backend.dtype, seconds=round(time.perf_counter() - begun, 2))
    try:
        return uvloop.run(_serve(settings, model_dir, backend))
    finally:
        backend.close()


async def _serve(settings: EngineSettings, model_dir: Path, backend: Backend) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(settings, model_dir, backend) as (engine, url):
        log.info("engine_serves", url=url, lanes=settings.threads)
        engine.scheduler.ended.add_done_callback(lambda _: loop.call_soon_threadsafe(stop.set))
        await stop.wait()
        return 1 if engine.scheduler.died else 0
