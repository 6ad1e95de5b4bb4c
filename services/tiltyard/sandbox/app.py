"""Wiring of the sandbox service: stage execute in; rollouts, verdicts and graded jobs out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import anyio

from tiltyard.kit.bus import Out, out
from tiltyard.kit.serve import Reject, Retry, serve
from tiltyard.kit.service import Context
from tiltyard_proto import flow
from tiltyard_proto.messages import Job, Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import EXECUTE, VERDICT, VERIFY

from . import housekeeping
from .backends import open_backend
from .control import serve_control
from .desk import Desk
from .doctor import accept
from .guard import Shed
from .handler import BadMessage
from .instance import Instance
from .pool import Pool
from .reaper import become_subreaper
from .settings import SandboxSettings
from .work import Worker


@runtime_checkable
class Placed(Protocol):
    """A back-end with a directory of its own on this host, where its control socket can be."""

    instance: Instance


class Service:
    """The handler of stage execute."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    async def handle(self, message: Rollout | Job) -> list[Out]:
        """Run a turn or a grading job; the message that follows."""
        try:
            if isinstance(message, Job):
                return [(VERIFY, await self.worker.job(message))]
            return [out(await self.worker.turn(message))]
        except Shed as error:
            raise Retry(error.after_s, error.detail) from error
        except (BadMessage, ValueError) as error:
            raise Reject("validation", str(error)) from error


def bury(message: Rollout | Job, outcome: Outcome, detail: str) -> list[Out]:
    """What the group hears when a message is dead-lettered."""
    rollout = message.rollout if isinstance(message, Job) else message
    return [(VERDICT, flow.ungraded(rollout, outcome, detail))]


async def start(ctx: Context) -> None:
    """Serve stage execute until the service is stopped."""
    settings = ctx.settings
    assert isinstance(settings, SandboxSettings)
    become_subreaper()
    if settings.backend == "gvisor":
        await accept(settings)
    backend = open_backend(settings)
    pool = Pool(backend, settings)
    worker = Worker(settings, pool, ctx.blobs)
    ctx.health.checks["sandbox"] = lambda: pool.problem
    ctx.log.info("sandbox_ready", backend=settings.backend, pool=settings.pool, slots=settings.slots)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.serve, ctx.stop)
            tasks.start_soon(_expire, worker)
            tasks.start_soon(worker.guard.serve)
            tasks.start_soon(housekeeping.rest_often, worker.guard)
            tasks.start_soon(housekeeping.reconcile_often, backend, settings.reconcile_s)
            if isinstance(backend, Placed):
                desk = Desk(worker, backend, backend.instance.id)
                tasks.start_soon(serve_control, backend.instance.path, desk.answer)
            tasks.start_soon(housekeeping.follow_quotas, ctx.bus, worker.guard.admission)
            await serve(
                ctx.bus,
                EXECUTE,
                Service(worker).handle,
                slots=settings.slots,
                stop=ctx.stop,
                bury=bury,
                drain_s=ctx.service.drain_s,
                breaker=ctx.breaker(EXECUTE),
                fair=settings.fair,
                able=lambda: worker.guard.may_pull,
            )
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await worker.sessions.close()
            await backend.close()
        ctx.log.info("sandbox_ends", leaked=backend.leaked)


async def _expire(worker: Worker) -> None:
    idle, life = worker.settings.session_idle_s, worker.settings.session_s
    while True:
        await anyio.sleep(min(30.0, idle / 2, life / 2))
        now = worker.clock()
        await worker.sessions.expire(now - idle, now - life)
