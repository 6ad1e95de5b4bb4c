"""An OTLP collector that keeps the spans it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.waiting import until

from tiltyard.kit import tracing
from tiltyard.kit.embedded import free_port


class Collector:
    """An OTLP collector that keeps what it is sent."""

    def __init__(self) -> None:
        self.port = free_port()
        self.spans: list[Any] = []
        self.services: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def take(self, request: web.Request) -> web.Response:
        received = ExportTraceServiceRequest.FromString(await request.read())
        for resource in received.resource_spans:
            self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return web.Response()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", collector.port).start()
    try:
        yield collector
    finally:
        await runner.cleanup()


async def exported(collector: Collector) -> None:
    await anyio.to_thread.run_sync(tracing.shutdown)
    await until(lambda: bool(collector.spans))
