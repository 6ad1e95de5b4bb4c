"""/metrics, /healthz and /readyz of a service process.

Invariants: readiness tells the truth: not ready while the bus does not answer a round trip, while a consumer that the
service works from is missing, or while any named check of the service fails. Liveness is that the event loop answers.
The server is asked when somebody looks, never in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import structlog
from aiohttp import web
from nats.errors import Error as ClientError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tiltyard_proto.permissions import names
from tiltyard_proto.topology import STAGES, Stage

from . import metrics
from .bus import Bus
from .depth import depth
from .errors import BusError, NotFound
from .provision import durable

Check = Callable[[], str | None]
"""None when ready, else why not."""


class HealthServer:
    """Serves the three pages on a port; port 0 serves nothing. `service` says whose consumers are looked after."""

    def __init__(self, port: int, service: str = "", bus: Bus | None = None) -> None:
        self.port = port
        self.bus = bus
        """None until the service has reached it for the first time."""
        self.stages: list[Stage[Any]] = [s for s in STAGES if s.work and service in names(s.receiver)]
        self.checks: dict[str, Check] = {}

    async def problems(self) -> dict[str, str]:
        """What keeps the service from being ready."""
        found = {name: why for name, check in self.checks.items() if (why := check()) is not None}
        why = await self._bus_problem()
        if why is not None or self.bus is None:
            return found | {"bus": why or "not reached"}
        for stage in self.stages:
            if (why := await self._look_at(self.bus, stage)) is not None:
                found[durable(stage)] = why
        return found

    async def _bus_problem(self) -> str | None:
        why: str | None = None
        if self.bus is None:
            metrics.BUS_UP.set(False)
            return "no answer yet: the service is still looking for it"
        if not self.bus.client.is_connected:
            why = "no answer: not connected"
        else:
            try:
                with anyio.fail_after(2):
                    await self.bus.client.flush(timeout=2)
            except (ClientError, OSError, TimeoutError) as error:
                why = f"no answer: {error or type(error).__name__}"
        metrics.BUS_UP.set(why is None)
        metrics.RECONNECTS.set(self.bus.client.stats["reconnects"])
        return why

    async def _look_at(self, bus: Bus, stage: Stage[Any]) -> str | None:
        """Note how much work waits at the stage; why there is nothing to work from."""
        try:
            with anyio.fail_after(2):
                found = await depth(bus, stage)
        except NotFound:
            return "the stream is missing: run `tiltyard provision`"
        except (BusError, TimeoutError) as error:
            return f"no answer: {error or type(error).__name__}"
        metrics.LAG.labels(stage.name).set(found.waiting)
        metrics.UNACKNOWLEDGED.labels(stage.name).set(found.in_flight)
        return None if found.consumers else "the consumer is missing: run `tiltyard provision`"

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
        if await self._bus_problem() is None and self.bus is not None:
            for stage in self.stages:
                await self._look_at(self.bus, stage)
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _alive(self, _: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def _ready(self, _: web.Request) -> web.Response:
        found = await self.problems()
        return web.json_response({"ready": not found, "problems": found}, status=503 if found else 200)
