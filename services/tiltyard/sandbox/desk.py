"""What is done about a request at the control socket: list, run a command for debugging, look for remains.

Invariants: a command never runs in a sandbox that is busy, graded or idle in the pool and later handed out: a new one
is claimed and killed afterwards, and a session that was looked into is taken from its rollout. Left out: the socket
(`control`), the command line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import anyio

from . import housekeeping
from .admission import Owner
from .backend import Backend, Sandbox, StartFailed, Want
from .cgroups import Counters
from .control import Answer, ControlError, Exec, List, Listing, Ran, Reap, Reaped, Row
from .live import DEBUG
from .work import Worker

PEOPLE = Owner(tenant="people", domain="debug")


@runtime_checkable
class Counted(Protocol):
    """A sandbox of which the kernel counts what it uses."""

    born: float

    def counters(self) -> Counters: ...


class Desk:
    """Answers requests about one service."""

    def __init__(self, worker: Worker, backend: Backend, instance: str) -> None:
        self.worker, self.backend, self.instance = worker, backend, instance
        self._seen: dict[str, tuple[float, float]] = {}
        """Time and CPU seconds at the last look, by sandbox."""

    async def answer(self, request: List | Exec | Reap) -> Answer:
        """ControlError when it can't be done."""
        if isinstance(request, Exec):
            return await self.execute(request)
        return await self.reap() if isinstance(request, Reap) else self.listing()

    # ------------------------------------------------------------ looking

    def listing(self) -> Listing:
        guard = self.worker.guard
        found = [self._row(sandbox, "idle", Owner(tenant="", domain=""), "") for sandbox in self._idle()]
        found += [self._row(entry.sandbox, entry.state, entry.owner, entry.rollout) for entry in guard.live]
        self._seen = {name: seen for name, seen in self._seen.items() if name in {row.id for row in found}}
        states = dict(guard.abuse.not_closed(guard.clock()))
        states |= {f"profile:{name}": breaker.state(guard.clock()) for name, breaker in guard.backend.items()}
        return Listing(
            instance=self.instance,
            pid=os.getpid(),
            rows=tuple(found),
            leaked=self.backend.leaked,
            breakers={name: state.value for name, state in states.items() if state.value != "closed"},
            waiting=guard.admission.waiting,
        )

    def _idle(self) -> Iterator[Sandbox]:
        for shelf in list(self.worker.pool.shelves.values()):
            yield from list(shelf.idle)

    def _row(self, sandbox: Sandbox, state: str, owner: Owner, rollout: str) -> Row:
        now = time.monotonic()
        counted = sandbox if isinstance(sandbox, Counted) else None
        counters = counted.counters() if counted else Counters()
        before, cpu = self._seen.get(sandbox.id, (now, counters.cpu_s))
        self._seen[sandbox.id] = now, counters.cpu_s
        return Row(
            instance=self.instance,
            id=sandbox.id,
            profile=sandbox.profile,
            state=state,
            age_s=now - counted.born if counted else 0.0,
            rollout=rollout,
            domain=owner.domain,
            tenant=owner.tenant,
            memory_bytes=counters.memory,
            cpu_s=counters.cpu_s,
            cpus=(counters.cpu_s - cpu) / (now - before) if now > before else 0.0,
        )

    # ------------------------------------------------------------ acting

    async def execute(self, request: Exec) -> Ran:
        """Run a command for a person, in a sandbox that nobody's result comes from."""
        sandbox = await self._sandbox(request)
        live = self.worker.guard.live
        live.begin(sandbox.id, DEBUG, request.command.limits.wall_s + 30.0)
        try:
            return Ran(execution=await sandbox.run(request.command), sandbox=sandbox.id)
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.kill()
                live.prune()

    async def _sandbox(self, request: Exec) -> Sandbox:
        guard = self.worker.guard
        if not request.sandbox:
            try:
                sandbox = await guard.start(Want(profile=request.profile, disk_bytes=request.command.limits.disk_bytes))
            except StartFailed as error:
                raise ControlError(str(error)) from error
            guard.admission.running.update({("tenant", PEOPLE.tenant): 1, ("domain", PEOPLE.domain): 1})
            guard.live.enter(sandbox, PEOPLE, "")
            return sandbox
        taken = self.worker.sessions.remove(request.sandbox)
        if taken is not None:
            return taken
        entry = guard.live.find(request.sandbox)
        if entry is None:
            raise ControlError(f"no session has sandbox {request.sandbox!r}; `tiltyard sandbox ls` lists them")
        raise ControlError(f"sandbox {request.sandbox} is {entry.state}: what runs in it now counts")

    async def reap(self) -> Reaped:
        """Look for remains now; what is overdue is ended."""
        overdue = await self.worker.guard.end_overdue()
        reconciles = isinstance(self.backend, housekeeping.Reconciles)
        strays = await housekeeping.reconcile_once(self.backend) if reconciles else 0  # type: ignore[arg-type]
        return Reaped(instance=self.instance, strays=strays, overdue=overdue, leaked=self.backend.leaked)
