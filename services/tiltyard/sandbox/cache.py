"""Results of deterministic grading jobs: identical jobs run once.

Invariants: jobs that arrive while one like them runs wait for its result; only results that say something about the
code are kept (not failures of the infrastructure, nor time limits, which depend on load); the oldest go first when
the bytes are used up; a job that failed or was cancelled is run again by the next in line. Left out: keeping results
over a restart.
"""

from __future__ import annotations

import hashlib
import signal
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from tiltyard_proto.messages import Execution, Job
from tiltyard_proto.outcomes import Grade, Outcome, policy_for


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a grading job gave."""

    execution: Execution
    files: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """Bytes it takes in the cache, about."""
        files = sum(len(path) + len(data) for path, data in self.files.items())
        return 500 + len(self.execution.stdout) + len(self.execution.stderr) + files


def key_of(job: Job) -> str:
    """The same for jobs that must give the same result."""
    workspace = job.workspace.sha256 if job.workspace else ""
    parts = (job.command, job.profile, workspace, job.collect, job.snapshot)
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="sorted")).hexdigest()


def keeps(result: Result) -> bool:
    """May the result answer identical jobs?"""
    execution = result.execution
    if execution.outcome is Outcome.WALL_LIMIT and execution.signal != signal.SIGXCPU:
        return False
    return policy_for(execution.outcome).grade is Grade.YES


class ResultCache:
    """At most `max_bytes` of results; 0 keeps none."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._kept: OrderedDict[str, Result] = OrderedDict()
        self._running: dict[str, anyio.Event] = {}

    async def get(self, key: str, run: Callable[[], Awaitable[Result]]) -> Result:
        """The kept result, marked as cached, or what `run` gives."""
        while True:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return _copy(found)
            waiting = self._running.get(key)
            if waiting is None:
                break
            await waiting.wait()
        self._running[key] = anyio.Event()
        try:
            result = await run()
            self._keep(key, result)
            return result
        finally:
            self._running.pop(key).set()

    def _keep(self, key: str, result: Result) -> None:
        if not keeps(result):
            return
        self._kept[key] = result
        self.bytes += result.size
        while self.bytes > self.max_bytes and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.size


def _copy(result: Result) -> Result:
    execution = msgspec.structs.replace(result.execution, cached=True, claim_s=0.0)
    return msgspec.structs.replace(result, execution=execution)
