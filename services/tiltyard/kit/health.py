"""/metrics, /healthz and /readyz of a service process.

Invariants: readiness tells the truth: not ready while the bus does not answer a round trip, or while any named check
of the service fails. Liveness is that the event loop answers.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from .bus import Bus

Check = Callable[[], str | None]
"""None when ready, else why not."""


class HealthServer:
    """Serves the three pages on a port; port 0 serves nothing."""

    def __init__(self, port: int, bus: Bus) -> None:
        self.port = port
        self.bus = bus
        self.checks: dict[str, Check] = {}

    async def problems(self) -> dict[str, str]:
        """What keeps the service from being ready."""
        found = {name: why for name, check in self.checks.items() if (why := check()) is not None}
        try:
            with anyio.fail_after(2):
                await self.bus.client.flush(timeout=2)
        except Exception as error:  # whatever the client raises, it means the same: the bus is away
            found["bus"] = f"no answer: {error or type(error).__name__}"
        return found

    async def serve(self) -> None:
        """Until cancelled."""
        if not self.port:
            return
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "0.0.0.0", self.port).start()
            await anyio.sleep_forever()
        except OSError as error:
            structlog.get_logger().error("metrics_port_taken", port=self.port, error=str(error))
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                await runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _alive(self, _: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _ready(self, _: web.Request) -> web.Response:
        found = await self.problems()
        return web.json_response({"ready": not found, "problems": found}, status=503 if found else 200)
