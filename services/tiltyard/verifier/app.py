"""Wiring of the verifier: stage verify in; verdicts, grading jobs and new attempts out."""

from __future__ import annotations

import anyio.to_thread
from prometheus_client import Counter

from tiltyard.kit.bus import Out
from tiltyard.kit.serve import Reject, serve
from tiltyard.kit.service import Context
from tiltyard.kit.settings import SettingsError
from tiltyard_proto.messages import Graded, Job, Rollout, Verdict
from tiltyard_proto.topology import VERIFY

from . import handler, limits
from .backend import System, World, keep_nothing
from .kinds.registry import installed
from .settings import VerifierSettings

VERDICTS = Counter("tiltyard_verifier_verdicts", "Verdicts by domain and result", ["domain", "result"])
JOBS = Counter("tiltyard_verifier_jobs", "Grading jobs planned, by domain", ["domain"])


class Verifier:
    """One verifier process."""

    def __init__(self, world: World, threads: int = 4) -> None:
        self.world = world
        self.threads = anyio.CapacityLimiter(threads)

    async def handle(self, message: Rollout | Graded) -> list[Out]:
        """One message of stage verify."""
        try:
            if handler.waits(message, self.world):
                sent = await anyio.to_thread.run_sync(handler.handle, message, self.world, limiter=self.threads)
            else:
                sent = handler.handle(message, self.world)
        except handler.NotReady as error:
            raise Reject("validation", str(error)) from error
        for _, result in sent:
            _count(result)
        return list(sent)


def _count(message: object) -> None:
    if isinstance(message, Job):
        JOBS.labels(message.rollout.task.domain).inc()
    elif isinstance(message, Verdict):
        result = "ungraded" if message.score is None else "passed" if message.passed else "failed"
        VERDICTS.labels(message.rollout.task.domain, result).inc()


async def start(ctx: Context) -> None:
    """Serve stage verify until the service is stopped."""
    settings = ctx.settings
    assert isinstance(settings, VerifierSettings)
    try:
        keep = ctx.blobs.put if settings.evidence else keep_nothing
        verifier = Verifier(System(installed(settings.kinds), keep), settings.threads)
    except ValueError as error:
        raise SettingsError(f"[verifier] kinds: {error}") from error
    ctx.log.info("verifier_ready", kinds=sorted(verifier.world.kinds))
    try:
        await serve(
            ctx.bus,
            VERIFY,
            verifier.handle,
            slots=settings.slots,
            stop=ctx.stop,
            bury=handler.bury,
            drain_s=ctx.service.drain_s,
            breaker=ctx.breaker(VERIFY),
        )
    finally:
        limits.close()
