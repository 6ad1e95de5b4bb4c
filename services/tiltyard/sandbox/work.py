"""The work of the service: run a rollout's turn in its session, run a grading job in a fresh sandbox.

Invariants: a sandbox claimed here is either kept as a session or killed, however the work ends; a workspace is stored
before the message that refers to it goes out; a failure of the infrastructure never looks like one of the policy's.
Left out: the bus (`app`), decisions (`handler`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
import msgspec

from tiltyard_proto.flow import Hop
from tiltyard_proto.messages import BlobRef, Command, Execution, Graded, Job, Rollout, Turn
from tiltyard_proto.outcomes import Attribution, Grade, Outcome, policy_for

from . import handler, images, metrics, profiles
from .archive import contents
from .backend import (
    ArchiveRefused,
    Sandbox,
    SandboxError,
    SandboxLost,
    StartFailed,
    Want,
    WorkspaceFull,
    WorkspaceTooLarge,
    killed_on_failure,
)
from .cache import Result, ResultCache, key_of
from .egress import rules
from .guard import Guard, Refused
from .pool import Pool
from .sessions import Sessions
from .settings import SandboxSettings
from .starts import Starts

TRIES = 2
"""Sandboxes tried for one piece of work before the infrastructure has failed."""


class Blobs(Protocol):
    """The blob store, blocking; `get` raises LookupError for a blob that is missing."""

    def put(self, data: bytes) -> BlobRef: ...
    def get(self, ref: BlobRef) -> bytes: ...


def known_profiles(settings: SandboxSettings) -> frozenset[str]:
    """Names of the profiles there are; empty for back-ends that take any name."""
    if settings.backend in ("process", "null"):
        return frozenset()
    return frozenset(profiles.load(images.profile_folders(settings)))


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox with its workspace in place, and how long that took to get."""

    sandbox: Sandbox
    claim_s: float


class Infrastructure(Exception):
    """Work that could not be done for no fault of the policy."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


class Worker:
    """Turns and grading jobs, as many at a time as the caller starts."""

    def __init__(
        self, settings: SandboxSettings, pool: Pool, blobs: Blobs, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings, self.pool, self.blobs, self.clock = settings, pool, blobs, clock
        self.sessions = Sessions(settings.sessions, settings.session_s)
        self.cache = ResultCache(settings.cache_bytes)
        self._egress = rules.parse(settings.egress)
        self._profiles = known_profiles(settings)
        self.guard = Guard(settings, pool, wall=clock)
        self.starts = Starts(pool.backend, self.guard.start)

    # ------------------------------------------------------------ turns

    async def turn(self, rollout: Rollout) -> Hop:
        """Run the last turn's command. BadMessage when there is none or it names impossible files; Shed: not now."""
        handler.check(rollout)
        self._check_egress(rollout.task.environment.egress)
        self._check_profile(rollout.task.environment.profile)
        try:
            self.guard.enter(rollout)
        except Refused as error:
            return handler.fail(rollout, error.outcome, error.detail, self.clock())
        try:
            return await self._turn(rollout)
        finally:
            self.guard.leave(rollout)

    async def _turn(self, rollout: Rollout) -> Hop:
        command = rollout.turns[-1].command
        assert command is not None
        key, done = handler.session_key(rollout), len(rollout.turns) - 1
        try:
            claimed = await self._session(rollout, command, done)
        except Infrastructure as error:
            return handler.fail(rollout, error.outcome, error.detail, self.clock())
        kept = False
        try:
            execution, workspace = await self._execute(rollout, claimed, command)
            if workspace is None:
                execution = msgspec.structs.replace(execution, restarted=True)
            hop = handler.settle(rollout, execution, workspace, self.clock())
            _count("turn", execution)
            if handler.goes_on(rollout, hop) and claimed.sandbox.alive and workspace is not None:
                await self.sessions.keep(key, claimed.sandbox, done + 1, self.clock())
                kept = True
                await self.guard.idle(claimed.sandbox)
            return hop
        finally:
            if not kept:
                with anyio.CancelScope(shield=True):
                    await claimed.sandbox.kill()

    def _check_egress(self, hosts: tuple[str, ...]) -> None:
        """BadMessage for a task that asks for hosts beyond those that this machine allows."""
        beyond = rules.beyond_of(self._egress, rules.parse(hosts))
        if beyond:
            raise handler.BadMessage(f"egress: {', '.join(beyond)}: not among the hosts of sandbox.egress")

    def _check_profile(self, name: str) -> None:
        """BadMessage for a profile that nobody has defined: trying again, here or elsewhere, would not help."""
        if self._profiles and name not in self._profiles:
            said = profiles.unknown(name, self._profiles)
            raise handler.BadMessage(f"{said} (add a folder: sandbox.profiles)")

    async def _session(self, rollout: Rollout, command: Command, done: int) -> Claimed:
        begun = time.monotonic()
        sandbox = await self.sessions.take(handler.session_key(rollout), done)
        if sandbox is not None:
            return Claimed(sandbox=sandbox, claim_s=time.monotonic() - begun)
        plan = handler.rebuild(rollout)
        if done:
            metrics.REBUILT.labels(plan.how if plan else "refused").inc()
        if plan is None:
            raise Infrastructure(Outcome.SANDBOX_LOST, "the session is gone, and its environment allows no rebuilding")
        environment = rollout.task.environment
        first = handler.setup_command(rollout, command) if plan.workspace is None else None
        if first is not None:
            claimed = Claimed(sandbox=await self._set_up(rollout, first), claim_s=0.0)
        else:
            egress = environment.egress
            claimed = await self._fresh(
                rollout, environment.profile, command, plan.workspace, plan.files, egress=egress
            )
        async with killed_on_failure(claimed.sandbox):
            for turn in plan.replay:
                await self._replay(claimed, turn)
        return msgspec.structs.replace(claimed, claim_s=time.monotonic() - begun)

    async def _set_up(self, rollout: Rollout, first: Command) -> Sandbox:
        """A sandbox in which the set-up has run, by itself or from its group's snapshot."""
        environment = rollout.task.environment
        want = Want(profile=environment.profile, disk_bytes=first.limits.disk_bytes, egress=environment.egress)

        async def run(sandbox: Sandbox) -> None:
            found = await sandbox.run(first)
            if policy_for(found.outcome).grade is not Grade.YES:
                raise Infrastructure(found.outcome, f"set-up: {found.detail}")
            if found.outcome is not Outcome.FINISHED:
                said = found.stderr.decode("utf-8", "replace").strip()[-200:]
                raise handler.BadMessage(f"environment.setup: {found.detail}: {said}")

        group, size = f"{rollout.run}/{rollout.group.id}", rollout.group.size
        try:
            return await self.guard.seat(rollout, lambda: self.starts.get(group, size, want, run))
        except StartFailed as error:
            self.guard.check_backend(want.profile)
            raise Infrastructure(Outcome.SANDBOX_START_FAILED, str(error)) from error
        except Refused as error:
            raise Infrastructure(error.outcome, error.detail) from error

    async def _replay(self, claimed: Claimed, turn: Turn) -> None:
        """Run an earlier turn's command again; Infrastructure unless it does what it did."""
        assert turn.command is not None
        assert turn.execution is not None
        found = await claimed.sandbox.run(turn.command)
        if not handler.same_ending(found, turn.execution):
            metrics.REBUILT.labels("differs").inc()
            raise Infrastructure(Outcome.SANDBOX_LOST, f"the session is gone, and replayed it differs: {found.detail}")

    async def _execute(self, rollout: Rollout, claimed: Claimed, command: Command) -> tuple[Execution, BlobRef | None]:
        """Run, and store the workspace when there is one worth carrying on."""
        execution = await self._run(rollout, claimed, command)
        if policy_for(execution.outcome).grade is not Grade.YES or not claimed.sandbox.alive:
            return execution, None
        try:
            archive = await claimed.sandbox.export()
        except WorkspaceTooLarge as error:
            full = msgspec.structs.replace(execution, outcome=Outcome.DISK_LIMIT, detail=f"{error}; it was put back")
            return full, None
        except SandboxError as error:
            return msgspec.structs.replace(execution, outcome=Outcome.SANDBOX_LOST, detail=str(error)), None
        return execution, await anyio.to_thread.run_sync(self.blobs.put, archive)

    # ------------------------------------------------------------ grading jobs

    async def job(self, job: Job) -> Graded:
        """Run a grading job, or answer it with the result of an identical one; Shed: not now."""
        if handler.only_looks(job):
            return await self._job(job)
        self._check_profile(job.profile)
        try:
            self.guard.enter(job)
        except Refused as error:
            return handler.graded(job, Execution(outcome=error.outcome, detail=error.detail), {})
        try:
            return await self._job(job)
        finally:
            self.guard.leave(job)

    async def _job(self, job: Job) -> Graded:
        if job.deterministic and self.settings.cache_bytes:
            result = await self.cache.get(key_of(job), lambda: self._grade(job))
        else:
            result = await self._grade(job)
        if result.execution.cached:
            metrics.CACHED.inc()
        _count("job", result.execution)
        return handler.graded(job, result.execution, result.files)

    async def _look(self, job: Job) -> Result:
        """Answer a job that runs nothing from its workspace's archive: no sandbox is needed to read a tar."""
        settings = self.settings
        limit, caps = job.command.limits.output_bytes, (settings.workspace_bytes, settings.workspace_entries)
        try:
            archive = await self._load(job.workspace)
            files = contents(archive, None, limit, caps) if archive and job.snapshot else {}
            if archive and job.collect:
                files |= contents(archive, job.collect, limit, caps)
        except ArchiveRefused as error:
            raise handler.BadMessage(f"workspace: {error}") from error
        except Infrastructure as error:
            return Result(execution=Execution(outcome=error.outcome, detail=error.detail))
        return Result(execution=Execution(outcome=Outcome.FINISHED, exit_code=0), files=files)

    async def _grade(self, job: Job) -> Result:
        if handler.only_looks(job):
            return await self._look(job)
        failure = Infrastructure(Outcome.SANDBOX_LOST, "")
        command = msgspec.structs.replace(job.command, user="grader")
        owner = "policy" if command.candidate else "grader"
        for left in reversed(range(TRIES)):
            try:
                claimed = await self._fresh(job.rollout, job.profile, command, job.workspace, {}, owner, grading=True)
            except Infrastructure as error:
                return Result(execution=Execution(outcome=error.outcome, detail=error.detail))
            try:
                execution = await self._run(job.rollout, claimed, command, grading=True)
                unsure = execution.attribution is Attribution.AMBIGUOUS and left > 0
                if policy_for(execution.outcome).grade is Grade.YES and not unsure:
                    return Result(execution=execution, files=await self._collect(claimed.sandbox, job))
                failure = Infrastructure(execution.outcome, execution.detail)
            except SandboxLost as error:
                failure = Infrastructure(Outcome.SANDBOX_LOST, str(error))
            finally:
                with anyio.CancelScope(shield=True):
                    await claimed.sandbox.kill()
        return Result(execution=Execution(outcome=failure.outcome, detail=failure.detail))

    async def _collect(self, sandbox: Sandbox, job: Job) -> dict[str, bytes]:
        if not sandbox.alive or not (job.collect or job.snapshot):
            return {}
        limit = job.command.limits.output_bytes
        try:
            files = await sandbox.listing(limit) if job.snapshot else {}
        except WorkspaceTooLarge:
            files = {}
        return {**files, **await sandbox.read(job.collect, limit)} if job.collect else files

    # ------------------------------------------------------------ sandboxes

    async def _fresh(
        self,
        rollout: Rollout,
        profile: str,
        command: Command,
        start_from: BlobRef | None,
        files: Mapping[str, bytes],
        owner: str = "policy",
        egress: tuple[str, ...] = (),
        *,
        grading: bool = False,
    ) -> Claimed:
        """A new sandbox with its workspace in place, as files of `owner`."""
        begun = time.monotonic()
        archive = await self._load(start_from)
        want = Want(profile=profile, disk_bytes=command.limits.disk_bytes, egress=egress)
        why = ""
        for _ in range(TRIES):
            try:
                sandbox = await self.guard.claim(rollout, want, grading=grading)
            except StartFailed as error:
                why = str(error)
                continue
            except Refused as error:
                raise Infrastructure(error.outcome, error.detail) from error
            async with killed_on_failure(sandbox):
                try:
                    if archive:
                        await sandbox.restore(archive, user=owner)
                    if files:
                        await sandbox.write(files)
                    return Claimed(sandbox=sandbox, claim_s=time.monotonic() - begun)
                except (ArchiveRefused, WorkspaceFull) as error:
                    raise handler.BadMessage(f"workspace: {error}") from error
                except SandboxLost as error:
                    why = str(error)
                    await sandbox.kill()
        self.guard.check_backend(profile)
        raise Infrastructure(Outcome.SANDBOX_START_FAILED, why)

    async def _load(self, ref: BlobRef | None) -> bytes:
        if ref is None:
            return b""
        try:
            return await anyio.to_thread.run_sync(self.blobs.get, ref)
        except LookupError as error:
            raise Infrastructure(Outcome.BLOB_MISSING, str(error)) from error

    async def _run(self, rollout: Rollout, claimed: Claimed, command: Command, *, grading: bool = False) -> Execution:
        with metrics.BUSY.track_inprogress():
            execution = await self.guard.run(rollout, claimed.sandbox, command, grading=grading)
        return msgspec.structs.replace(execution, claim_s=claimed.claim_s)


def _count(work: str, execution: Execution) -> None:
    metrics.EXECUTIONS.labels(work, execution.outcome.value).inc()
    metrics.EXECUTION_SECONDS.labels(work).observe(execution.wall_s)
