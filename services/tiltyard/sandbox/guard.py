"""What stands between the work and the sandboxes: quotas, breakers, the table of what is handed out, their metrics.

`Worker` asks three times: `enter` before a piece of work (is the task refused for abuse? is the infrastructure down?),
`claim` for a sandbox (quotas), `run` for an execution (a trial's tighter limits, what the ending counts as).
Decisions: an execution that is refused for abuse has nothing to be graded, since it did not run: outcome `refused`,
not tried again, not trained, flagged; the executions that opened the breaker were graded as usual. Evaluations and
admissions are measurements and are never refused; they don't count either. Trouble of the infrastructure gives the
message back to the bus and never says anything about the policy.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
import msgspec
import structlog

from tiltyard_proto.messages import Command, Execution, Job, Purpose, Rollout
from tiltyard_proto.outcomes import Outcome

from . import metrics
from .admission import Admission, Busy, Owner, TooLate
from .backend import NotHere, Sandbox, StartFailed, Want
from .breaker import WEIGHTS, Abuse, Breaker, Pass, Rules, State, tightened
from .live import BUSY, GRADING, Live
from .pool import Pool
from .settings import SandboxSettings

LEASE_MARGIN_S = 90.0
"""What an execution may take beyond its wall limit (grace, archives of the workspace) before its sandbox is killed."""
BACKEND_RULES = Rules(threshold=2.0, ratio=0.5, window_s=30.0, open_s=1.0, open_cap_s=30.0, trial_s=60.0)
STATES = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
log = structlog.get_logger()


class Refused(Exception):
    """This work is not done, and trying again would change nothing; the outcome says what it is."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


class Shed(Exception):
    """Not here and not now: the message goes back to the bus for `after_s` seconds."""

    def __init__(self, after_s: float, detail: str) -> None:
        super().__init__(detail)
        self.after_s, self.detail = after_s, detail


def names_of(rollout: Rollout) -> tuple[str, ...]:
    """The breakers that concern a rollout; none for measurements."""
    if rollout.group.purpose is not Purpose.TRAIN:
        return ()
    return (f"task:{rollout.task.id}", f"group:{rollout.group.id}")


class Guard:
    """See the module. Times are seconds of the monotonic clock, `wall` is the clock of deadlines."""

    def __init__(
        self,
        settings: SandboxSettings,
        pool: Pool,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings, self.pool, self.clock, self.wall = settings, pool, clock, wall
        self.admission = Admission(
            settings.tenants, settings.domains, queue=settings.queue, queue_s=settings.queue_s, clock=clock
        )
        self.live = Live(self.admission.release, clock)
        shared = {"ratio": 0.25, "window_s": settings.abuse_window_s, "open_s": settings.abuse_open_s}
        task, group = settings.abuse_task, settings.abuse_group
        self.abuse = Abuse({"task": Rules(threshold=task, **shared), "group": Rules(threshold=group, **shared)})
        self.backend: dict[str, Breaker] = {}
        """By profile."""
        self._not_here: set[str] = set()
        """Profiles that this machine has not: their breakers say nothing about it."""
        self._trials: set[tuple[str, int]] = set()
        pool.may_refill = self.may_refill

    # ------------------------------------------------------------ before the work

    def enter(self, message: Rollout | Job) -> None:
        """Refused when the task's executions have been abusive, Shed while its profile can't be started."""
        rollout = message.rollout if isinstance(message, Job) else message
        profile = message.profile if isinstance(message, Job) else rollout.task.environment.profile
        self.check_backend(profile)
        names, now = names_of(rollout), self.clock()
        answer = self.abuse.enter(names, now)
        if answer is Pass.NO:
            metrics.REFUSED.labels("abuse").inc()
            wait = self.abuse.wait_s(names, now)
            detail = f"not run: executions of this task ran into limits too often; next trial in {wait:.0f} s"
            raise Refused(Outcome.REFUSED, detail)
        if answer is Pass.TRIAL:
            self._trials.add((rollout.id, rollout.attempt))

    def leave(self, message: Rollout | Job) -> None:
        """The work has ended, however it did."""
        rollout = message.rollout if isinstance(message, Job) else message
        key = (rollout.id, rollout.attempt)
        if key in self._trials:  # nothing was run
            self._trials.discard(key)
            self.abuse.give_up(names_of(rollout))
        self.live.prune()

    def check_backend(self, profile: str) -> None:
        """Shed while sandboxes of the profile can't be started."""
        breaker = self.backend.get(profile)
        if breaker is not None and breaker.state(self.clock()) is not State.CLOSED:
            metrics.REFUSED.labels("backend").inc()
            wait = max(0.5, breaker.wait_s(self.clock()))
            raise Shed(wait, f"sandboxes of profile {profile!r} can't be started: {self.pool.problem}")

    # ------------------------------------------------------------ a sandbox

    async def claim(self, rollout: Rollout, want: Want, *, grading: bool = False) -> Sandbox:
        """A sandbox within the quotas of the rollout's run and domain. StartFailed, Refused or Shed."""
        return await self.seat(rollout, lambda: self.start(want), grading=grading)

    async def seat(self, rollout: Rollout, get: Callable[[], Awaitable[Sandbox]], *, grading: bool = False) -> Sandbox:
        """What `get` gives, once the quotas allow it, counted and in the table. Refused, Shed, or what `get` raises."""
        owner = Owner(tenant=rollout.run, domain=rollout.task.domain)
        await self._make_room(owner)
        deadline = rollout.group.deadline if grading else rollout.deadline
        try:
            await self.admission.acquire(owner, deadline - self.wall() if deadline else None)
        except TooLate as error:
            metrics.REFUSED.labels("deadline").inc()
            raise Refused(Outcome.LATE, str(error)) from error
        except Busy as error:
            metrics.REFUSED.labels(error.reason).inc()
            raise Shed(error.after_s, error.detail) from error
        try:
            sandbox = await get()
        except BaseException:
            self.admission.release(owner)
            raise
        self.live.enter(sandbox, owner, rollout.id)
        return sandbox

    async def start(self, want: Want) -> Sandbox:
        """A sandbox from the pool, counted by the profile's breaker; a snapshot that has gone is nobody's failure."""
        try:
            sandbox = await self.pool.claim(want)
        except StartFailed as error:
            if isinstance(error, NotHere):
                self._not_here.add(want.profile)
            if not want.snapshot:
                self.count_backend(want.profile, 1.0)
            raise
        self.count_backend(want.profile, 0.0)
        return sandbox

    async def _make_room(self, owner: Owner) -> None:
        """End idle sessions of an owner whose quota is used up; their next turns start from the stored workspaces."""
        self.live.prune()
        while kind := self.admission.full(owner):
            entry = self.live.longest_idle(kind, getattr(owner, kind))
            if entry is None:
                return
            metrics.KILLED.labels("quota").inc()
            await entry.sandbox.kill()
            self.live.prune()

    async def idle(self, sandbox: Sandbox) -> None:
        """It waits for its rollout's next turn from now on; where somebody waits for room, the oldest session goes."""
        self.live.rest(sandbox.id)
        for owner in self.admission.kept_waiting():
            await self._make_room(owner)

    # ------------------------------------------------------------ an execution

    async def run(self, rollout: Rollout, sandbox: Sandbox, command: Command, *, grading: bool = False) -> Execution:
        """Run a command; what it did is counted. Never raises for what the code did."""
        key, names = (rollout.id, rollout.attempt), names_of(rollout)
        trial = key in self._trials
        if trial:
            command = msgspec.structs.replace(command, limits=tightened(command.limits))
        self.live.begin(sandbox.id, GRADING if grading else BUSY, command.limits.wall_s + LEASE_MARGIN_S)
        try:
            execution = await sandbox.run(command)
        finally:
            self.live.end(sandbox.id)
        self._trials.discard(key)
        lost = execution.outcome is Outcome.SANDBOX_LOST
        self.count_backend(sandbox.profile, float(lost))
        weight = 0.0 if lost and not self.may_refill(sandbox.profile) else WEIGHTS.get(execution.outcome, 0.0)
        self.abuse.record(names, self.clock(), weight, trial=trial)
        if not sandbox.alive:
            metrics.KILLED.labels(execution.outcome.value).inc()
        if trial and weight and not lost:
            metrics.REFUSED.labels("abuse").inc()
            detail = f"refused after a trial with tighter limits: {execution.detail}"
            return msgspec.structs.replace(execution, outcome=Outcome.REFUSED, detail=detail)
        return execution

    # ------------------------------------------------------------ the infrastructure

    def count_backend(self, profile: str, weight: float, *, trial: bool = False) -> None:
        """A start, or an execution, went well (0) or failed for a reason of the infrastructure (1)."""
        breaker = self.backend.setdefault(profile, Breaker(BACKEND_RULES))
        now = self.clock()
        before = breaker.state(now)
        breaker.record(now, weight, trial=trial)
        after = breaker.state(now)
        if after is not before:
            log.warning("backend_breaker", profile=profile, state=after.value, why=self.pool.problem)
        metrics.BREAKER.labels(profile).set(STATES[after])

    def may_refill(self, profile: str) -> bool:
        """May the pool start sandboxes of the profile?"""
        breaker = self.backend.get(profile)
        return breaker is None or breaker.state(self.clock()) is State.CLOSED

    @property
    def may_pull(self) -> bool:
        """Is there a profile that can be started? Without one no message is taken from the bus."""
        here = [profile for profile in self.backend if profile not in self._not_here]
        return not here or any(self.may_refill(profile) for profile in here)

    async def probe(self) -> None:
        """Try one start of each profile whose time for a trial has come."""
        for profile, breaker in list(self.backend.items()):
            if breaker.state(self.clock()) is State.CLOSED or breaker.enter(self.clock()) is not Pass.TRIAL:
                continue
            try:
                await self.pool.trial(Want(profile=profile))
            except StartFailed:
                self.count_backend(profile, 1.0, trial=True)
            else:
                self._not_here.discard(profile)
                self.count_backend(profile, 0.0, trial=True)

    async def serve(self, every_s: float = 0.5) -> None:
        """Probe, end what is overdue, and keep the gauges right; until cancelled."""
        while True:
            await anyio.sleep(every_s)
            await self.probe()
            await self.end_overdue()
            self._show()

    async def rest(self) -> None:
        """Let sessions that wait for their next turn rest, if nothing goes on in them."""
        for entry in self.live.waiting():
            await entry.sandbox.rest()

    async def end_overdue(self) -> int:
        """Kill what has outstayed its lease or its lifetime; how many."""
        late = self.live.overdue(self.settings.lifetime_s)
        for entry, why in late:
            log.error("sandbox_overdue", sandbox=entry.sandbox.id, rollout=entry.rollout, why=why)
            metrics.KILLED.labels(why).inc()
            await entry.sandbox.kill()
        return len(late)

    def _show(self) -> None:
        states = list(self.abuse.not_closed(self.clock()).items())
        for kind in self.abuse.rules:
            for state in (State.OPEN, State.HALF_OPEN):
                count = sum(found is state and name.startswith(f"{kind}:") for name, found in states)
                metrics.ABUSE.labels(kind, state.value).set(count)
        metrics.WAITING.set(self.admission.waiting)
