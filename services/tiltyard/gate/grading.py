"""Attempts without a model: actions that are given, played through sessions, verifier and sandbox as in a run.

Invariants: the interface reads each action, the sandbox service's worker runs sessions and grading jobs, the verifier's
handler decides; no attempt is repeated here, so a fault of the infrastructure comes out as a verdict without a score.
Left out: the bus.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from tiltyard.domains.interfaces import BadFormat, parse_action
from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.backends import open_backend
from tiltyard.sandbox.handler import BadMessage
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard.verifier import handler
from tiltyard.verifier.backend import System
from tiltyard.verifier.kinds.registry import AnyKind
from tiltyard_proto import flow
from tiltyard_proto.messages import Graded, GroupRef, Job, Rollout, Task, Turn, Verdict
from tiltyard_proto.outcomes import Outcome

FAR = 4e12
"""A deadline that never passes."""


class NoSandbox(Exception):
    """Something must run, and this grader has no sandbox."""


def attempt(task: Task, outcome: Outcome | None = None) -> Rollout:
    """An attempt that has not begun; the last one that the task allows, so that nothing starts another."""
    return Rollout(
        id="gate-t-0-0",
        run="gate",
        group=GroupRef(id="gate-t-0", size=1, deadline=FAR),
        member=0,
        attempt=task.limits.attempts - 1,
        task=task,
        sampling=task.sampling,
        outcome=outcome,
        deadline=FAR,
    )


def said(text: str) -> Turn:
    """A turn in which the policy wrote `text`."""
    return Turn(context_ids=b"", action_ids=b"", logprobs=b"", versions=(), text=text, finish="stop")


class Grader:
    """Verdicts on given actions. Without a `worker` only what the verifier decides by itself."""

    def __init__(self, kinds: Mapping[str, AnyKind], worker: Worker | None = None) -> None:
        self.worker = worker
        self.world = System(kinds)

    async def verdict(self, task: Task, texts: Sequence[str], outcome: Outcome = Outcome.FINISHED) -> Verdict:
        """The verdict on an attempt with these actions; `outcome` is how it ended unless a limit ended it before."""
        rollout = await self._played(task, texts)
        if isinstance(rollout, Verdict):
            return rollout
        if rollout.outcome is None:
            rollout = flow.finish(rollout, outcome)
        found = await self._handled(rollout)
        if isinstance(found, Job):
            try:
                graded = await self._sandbox().job(found)
            except BadMessage as error:
                return flow.ungraded(rollout, Outcome.TASK_BROKEN, str(error))
            found = await self._handled(graded)
        assert isinstance(found, Verdict)
        return found

    async def _played(self, task: Task, texts: Sequence[str]) -> Rollout | Verdict:
        """The attempt after its actions, each run in the session; a verdict when it could not go on."""
        rollout = attempt(task)
        for text in texts:
            try:
                command = parse_action(task, text)
            except BadFormat as error:
                return flow.finish(flow.add_turn(rollout, said(text)), Outcome.BAD_FORMAT, error.detail)
            rollout = flow.add_turn(rollout, msgspec.structs.replace(said(text), command=command))
            if command is None:
                continue
            try:
                hop = await self._sandbox().turn(rollout)
            except BadMessage as error:  # a set-up that fails, a profile that nobody has
                return flow.ungraded(rollout, Outcome.TASK_BROKEN, str(error))
            if isinstance(hop.message, Verdict):
                return hop.message
            assert isinstance(hop.message, Rollout)
            rollout = hop.message
            if rollout.outcome is not None:
                break
        return rollout

    async def _handled(self, message: Rollout | Graded) -> Verdict | Job:
        if handler.waits(message, self.world):
            sent = await anyio.to_thread.run_sync(handler.handle, message, self.world)
        else:
            sent = handler.handle(message, self.world)
        ((_, found),) = sent
        assert isinstance(found, Verdict | Job)
        return found

    def _sandbox(self) -> Worker:
        if self.worker is None:
            raise NoSandbox
        return self.worker


def gate_settings(settings: SandboxSettings) -> SandboxSettings:
    """Sandbox settings for the gate: probes are hostile on purpose, and one service has the machine."""
    return msgspec.structs.replace(settings, pool={}, abuse_task=0.0, abuse_group=0.0, cache_bytes=0)


@asynccontextmanager
async def sandboxed(settings: SandboxSettings) -> AsyncIterator[Worker]:
    """A worker on this machine's sandbox back-end. SandboxError: it can't work here."""
    settings = gate_settings(settings)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltyard-gate-")))
        backend = open_backend(settings)
        stack.push_async_callback(backend.close)
        worker = Worker(settings, Pool(backend, settings), BlobStore(folder))
        stack.push_async_callback(worker.sessions.close)
        yield worker
