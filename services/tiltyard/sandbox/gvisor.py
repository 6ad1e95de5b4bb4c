"""Sandboxes on gVisor: an attached `runsc run` or `runsc restore` per sandbox, its init our agent, in a control group.

Invariants: nothing of a sandbox outlives the service: the launcher gets SIGKILL with the thread that started it (the
event loop's, which lives as long as the service), the agent ends when its stdin ends, and a later start sweeps what
is left. The root is read-only, every tmpfs has a size, there is no network (or one with a proxy alone, see `network`)
and the environment holds nothing of the host. A snapshot that can't be used costs a cold start, never a failure; what
is restored answers a fresh token before it is used. Left out: rootless operation.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import anyio
import structlog

from . import images, plans, profiles
from .backend import Sandbox, SandboxLost, SnapshotFailed, StartFailed, Want
from .cell import GVisorCell
from .cgroups import CgroupError, Limits, Tree
from .channel import Channel, connect
from .imprints import Imprints
from .instance import Instance, settle
from .launch import Runsc, environment
from .network import Networks
from .plans import Plan
from .reaper import reap_adopted
from .remote import RemoteSandbox
from .settings import SandboxSettings
from .snapshots import Branches, Store

log = structlog.get_logger()
MIB = 1 << 20
PLANS = 256
"""Wants whose plans are remembered."""


class GVisorBackend:
    """See `backend.Backend`. Make it with `open`."""

    def __init__(self, settings: SandboxSettings, tree: Tree, instance: Instance) -> None:
        self.settings, self.tree, self.instance = settings, tree, instance
        self.runsc = images.find_runsc(settings)
        self.platform: str = settings.platform
        self.leaked = 0
        self._stay: set[str] = set()
        """Names of those that are leaked: the same one is counted once, and no more when it could be removed."""
        self.traces: bool | None = None if settings.count_forks else False
        """Does runsc tell of forks? None: not known yet."""
        self.packs: bool | None = None if settings.pack else False
        """Does runsc take an image as one file? None: not known yet."""
        self.profiles = profiles.load(images.profile_folders(settings))
        self.store = Store(images.home_of(settings) / "snapshots", settings.snapshot_bytes)
        self.networks = Networks(settings)
        self.branches = Branches(instance.path / "branches", settings.branches, settings.branch_bytes)
        self.imprints = Imprints(self.store, instance.path, self._cold, self._checkpoint)
        self._live: dict[str, tuple[GVisorCell, Plan]] = {}
        self._plans: dict[Want, Plan] = {}
        self._count = 0
        self._choosing = anyio.Lock()

    @classmethod
    def open(cls, settings: SandboxSettings) -> GVisorBackend:
        """Check the machine, sweep after dead services, take an instance id. StartFailed when it can't work here."""
        images.find_runsc(settings)
        if os.geteuid() != 0:
            raise StartFailed("gVisor with limits needs root; run the sandbox service as root")
        if shutil.which("setpriv") is None:
            raise StartFailed("setpriv is missing; install util-linux")
        return cls(settings, *settle(images.home_of(settings)))

    # ------------------------------------------------------------ start

    async def start(self, want: Want) -> RemoteSandbox:
        """See `backend.Backend`. With platform 'auto' the first start decides."""
        async with self._choosing:
            if self.platform == "auto":
                self.platform = "ptrace"
                try:
                    return await self._start(want)
                except StartFailed:
                    self.platform = "systrap"
                    self._plans.clear()
        return await self._start(want)

    async def _start(self, want: Want) -> RemoteSandbox:
        if want.snapshot:
            branch = self.branches.find(want.snapshot)
            if branch is None:
                raise StartFailed(f"snapshot {want.snapshot!r} is gone")
            return await self._launched(await self._plan(branch.want), branch.path, branch.bytes + 64 * MIB)
        plan = await self._plan(want)
        try:
            sandbox = await self._by(plan)
        except StartFailed as error:
            if plan.pack is None or self.packs:
                raise
            log.warning("images_not_packed", why=str(error))
            self.packs = False
            self._plans = {known: other for known, other in self._plans.items() if other.pack is None}
            return await self._by(await self._plan(want))
        if plan.pack is not None:
            self.packs = True
        return sandbox

    async def _by(self, plan: Plan) -> RemoteSandbox:
        """From the plan's snapshot, or cold."""
        image = await self.imprints.get(plan)
        if image is not None:
            try:
                sandbox = await self._launched(plan, image)
            except StartFailed as error:
                await self.imprints.bad(plan, str(error))
            else:
                self.imprints.good(plan)
                return sandbox
        return await self._cold(plan)

    async def _cold(self, plan: Plan) -> RemoteSandbox:
        return await self._launched(plan, None)

    async def _launched(self, plan: Plan, image: Path | None, memory: int = 0) -> RemoteSandbox:
        """A running sandbox: cold, or restored from `image`. StartFailed, with nothing left, otherwise.

        `memory`: bytes that it needs to start with, when that is more than usual. Whether this runsc can tell of forks
        is found out at the first start.
        """
        try:
            sandbox = await self._started(plan, image, memory, self.traces is not False)
            self.traces = self.traces is not False
            return sandbox
        except StartFailed:
            if self.traces is not None:
                raise
        sandbox = await self._started(plan, image, memory, False)
        self.traces = False
        log.warning("forks_not_counted", why="this runsc does not start with trace points")
        return sandbox

    async def _started(self, plan: Plan, image: Path | None, memory: int, traces: bool) -> RemoteSandbox:
        begun = time.monotonic()
        cell = self._cell(plan)
        cell.initial = max(cell.initial, memory)
        try:
            with anyio.fail_after(self.settings.start_s):
                channel = await self._launch(cell, plan, image, traces)
                await (_greet(channel) if image is None else _fence(channel))
        except (SandboxLost, TimeoutError, OSError, CgroupError) as error:
            why = _last_line(cell.path / "stderr") or str(error) or f"not ready within {self.settings.start_s:g} s"
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise StartFailed(f"runsc: {why}") from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise
        took = time.monotonic() - begun
        sandbox = RemoteSandbox(cell.name, plan.want.profile, channel, cell, self.settings, took)
        sandbox.environment = {**plan.environment, **cell.network.environment}
        sandbox.refused_forks = cell.refusals.seen
        return sandbox

    def _cell(self, plan: Plan) -> GVisorCell:
        self._count += 1
        name = f"s{self._count}"
        group = self.tree.group(self.instance.group_name(name))
        extra = plan.want.disk_bytes + plan.profile.overhead_bytes
        cell = GVisorCell(name, group, self.instance.path / name, extra, self.forget)
        self._live[name] = (cell, plan)
        return cell

    async def _launch(self, cell: GVisorCell, plan: Plan, image: Path | None, traces: bool) -> Channel:
        settings = self.settings
        cell.path.mkdir(mode=0o700)
        cell.network = await anyio.to_thread.run_sync(self.networks.attach, plan.want.egress)
        limits = Limits(memory_bytes=cell.initial + cell.extra, pids=settings.host_pids, cpus=plan.profile.cpus)
        cell.group.create(limits)
        cell.process = self._spawn(cell, plan, image, cell.refusals.listen(cell.path) if traces else ())
        frame = settings.workspace_bytes + settings.workspace_entries * 1100 + 8 * MIB
        cell.channel = await connect(cell.process.stdin, cell.process.stdout, frame)
        return cell.channel

    def _spawn(
        self, cell: GVisorCell, plan: Plan, image: Path | None, traces: tuple[str, ...]
    ) -> subprocess.Popen[bytes]:
        """Start the launcher. From this thread on purpose: the parent-death signal is tied to it."""
        network, entries, name = cell.network, cell.group.entries, self._name(cell)
        runsc = Runsc(
            path=self.runsc, platform=self.platform, network=network.kind, before=network.launcher(), traces=traces
        )
        (cell.path / "config.json").write_text(json.dumps(network.spec(plan.spec)))
        if image is None:
            command = runsc.run(cell.path, entries, cell.path, name)
        else:
            command = runsc.restore(cell.path, entries, cell.path, image, name)
        with (cell.path / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment(),
                start_new_session=True,
            )

    def _runsc(self) -> Runsc:
        return Runsc(path=self.runsc, platform=self.platform)

    def _name(self, cell: GVisorCell) -> str:
        return f"{self.instance.id}-{cell.name}"

    # ------------------------------------------------------------ plans

    async def _plan(self, want: Want) -> Plan:
        """How to start a want, found out once; of very many the oldest are forgotten, since a task may ask for any."""
        known = self._plans.get(want)
        if known is None:
            parts = (self.settings, self.profiles, self._runsc(), want)
            make = functools.partial(plans.make, *parts, packed=self.packs is not False)
            try:
                known = await anyio.to_thread.run_sync(make)
            except OSError as error:
                raise StartFailed(f"profile {want.profile!r}: {error}") from error
            if len(self._plans) >= PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[want] = known
        return known

    # ------------------------------------------------------------ snapshots

    async def _checkpoint(self, sandbox: RemoteSandbox, into: Path, *, leave_running: bool = False) -> None:
        """Write the state of a sandbox that no command runs in. SnapshotFailed when runsc can't."""
        cell, _ = self._live[sandbox.id]
        command = self._runsc().checkpoint(cell.path, into, self._name(cell), leave_running=leave_running)
        try:
            with anyio.fail_after(self.settings.start_s):
                done = await anyio.run_process(command, check=False, env=environment(), stdin=subprocess.DEVNULL)
        except TimeoutError as error:
            raise SnapshotFailed(f"no snapshot of {sandbox.id} within {self.settings.start_s:g} s") from error
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise SnapshotFailed(f"runsc checkpoint: {said[-1][:300]}")

    async def snapshot(self, sandbox: Sandbox) -> str:
        """See `backend.Backend`."""
        if sandbox.id not in self._live or not isinstance(sandbox, RemoteSandbox):
            raise SandboxLost(f"sandbox {sandbox.id} is gone")
        _, plan = self._live[sandbox.id]
        if plan.want.egress:
            raise SnapshotFailed("a sandbox that may reach hosts can't be branched: its connections can't be doubled")
        name, made = self.branches.place()
        try:
            async with sandbox.paused():
                await self._checkpoint(sandbox, made, leave_running=True)
            for path in self.branches.keep(name, plan.want):
                await _remove(path)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _remove(made)
            raise
        return name

    async def forget_snapshot(self, snapshot: str) -> None:
        """See `backend.Backend`."""
        path = self.branches.forget(snapshot)
        if path is not None:
            await _remove(path)

    # ------------------------------------------------------------ end

    def forget(self, name: str, gone: bool) -> None:
        """Called by a cell that has been destroyed."""
        self._live.pop(name, None)
        if not gone:
            self._stay.add(name)
            self.leaked = len(self._stay)
            log.error("sandbox_leaked", sandbox=name, instance=self.instance.id)

    async def reconcile(self) -> int:
        """Remove what belongs to no live sandbox; how many had something left. What stays is counted as leaked."""
        await anyio.to_thread.run_sync(reap_adopted)
        known = set(self._stay)
        found, stay = await anyio.to_thread.run_sync(self.instance.reconcile, lambda: set(self._live))
        self._stay = stay | (self._stay - known)
        self.leaked = len(self._stay)
        return len(found - (known & stay))

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for cell, _ in list(self._live.values()):
                    tasks.start_soon(cell.destroy)
            await anyio.to_thread.run_sync(self.networks.close)
            await anyio.to_thread.run_sync(self.instance.close)


async def _greet(channel: Channel) -> None:
    """Wait for the agent of a cold start."""
    if (await channel.receive())[0] != b"hello":
        raise SandboxLost("the agent did not say hello")


async def _fence(channel: Channel) -> None:
    """Wait for a restored agent: it gives back a token that only it was sent. Its forks seed their generators anew."""
    token = secrets.token_bytes(16)
    await channel.send({"op": "fence", "token": token})
    if await channel.receive() != [b"fence", token]:
        raise SandboxLost("the restored agent did not give the token back")


async def _remove(path: Path) -> None:
    await anyio.to_thread.run_sync(functools.partial(shutil.rmtree, path, ignore_errors=True))


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            lines = file.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
