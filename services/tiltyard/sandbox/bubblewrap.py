"""Sandboxes on bubblewrap, for trusted code: reference runs, differential tests. Namespaces on the host's own kernel.

The same image, agent, limits and outcomes as gVisor, at a twentieth of the start; what is missing is the wall between
the code and the kernel, so the service refuses it for a model's code unless that is explicitly allowed. Invariants:
each sandbox has a user namespace of its own, so that its process limit counts only itself and its root is nobody
outside; it dies with the thread that started it, and all of it is in a control group of ours. Left out: snapshots,
rootless operation.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from pathlib import Path

import anyio
import msgspec
import structlog

from . import images, profiles
from .backend import NotHere, Sandbox, SandboxLost, SnapshotFailed, StartFailed, Want
from .cell import GVisorCell
from .cgroups import CgroupError, Limits, Tree
from .channel import Channel, connect
from .instance import Instance, settle
from .launch import CAPABILITIES, ENTER, TIED, UID, environment
from .profiles import Profile
from .remote import ENVIRONMENT, RemoteSandbox, variables_of
from .settings import SandboxSettings

log = structlog.get_logger()
MIB = 1 << 20
IDS = "0 0 65536"
"""Users of the namespace: the same numbers inside and outside, without the rights."""


class BubblewrapBackend:
    """See `backend.Backend`. Make it with `open`."""

    def __init__(self, settings: SandboxSettings, tree: Tree, instance: Instance) -> None:
        self.settings, self.tree, self.instance = settings, tree, instance
        self.leaked = 0
        self.profiles = profiles.load(images.profile_folders(settings))
        self._live: dict[str, GVisorCell] = {}
        self._count = 0

    @classmethod
    def open(cls, settings: SandboxSettings) -> BubblewrapBackend:
        """Check the machine, sweep after dead services, take an instance id. StartFailed when it can't work here."""
        missing = [program for program in ("bwrap", "setpriv", "prlimit") if shutil.which(program) is None]
        if missing:
            raise StartFailed(f"{' and '.join(missing)} missing; install bubblewrap and util-linux")
        if os.geteuid() != 0:
            raise StartFailed("bubblewrap with limits needs root; run it as root")
        return cls(settings, *settle(images.home_of(settings)))

    # ------------------------------------------------------------ start

    async def start(self, want: Want) -> RemoteSandbox:
        """See `backend.Backend`."""
        if want.snapshot or want.egress:
            raise StartFailed("bubblewrap has neither snapshots nor a way out; use gvisor")
        profile = self.profiles.get(want.profile)
        if profile is None:
            raise NotHere(profiles.unknown(want.profile, self.profiles))
        begun = time.monotonic()
        argv, variables = await anyio.to_thread.run_sync(self._program, want, profile)
        cell = self._cell(want, profile)
        try:
            with anyio.fail_after(self.settings.start_s):
                channel = await self._launch(cell, profile, argv)
                await channel.receive()
        except (SandboxLost, TimeoutError, OSError, CgroupError, msgspec.DecodeError) as error:
            why = _said(cell.path / "stderr") or str(error) or f"not ready within {self.settings.start_s:g} s"
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise StartFailed(f"bubblewrap: {why}") from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise
        sandbox = RemoteSandbox(cell.name, want.profile, channel, cell, self.settings, time.monotonic() - begun)
        sandbox.environment = variables
        return sandbox

    def _program(self, want: Want, profile: Profile) -> tuple[list[str], dict[str, str]]:
        """bubblewrap's arguments to the end, and the variables of commands. Blocks the first time in an image."""
        image = images.find_image(self.settings, want.profile)
        folder = images.install_agent(image)
        agent = [*images.interpreter(image), "-c", images.boot_line(folder, "/workspace", UID, profile.preload)]
        variables = variables_of(images.environment_of(image), profile.environment)
        return [*arguments(image, want.disk_bytes, profile.tmp_bytes, ENVIRONMENT), "--", *agent], variables

    def _cell(self, want: Want, profile: Profile) -> GVisorCell:
        self._count += 1
        name = f"b{self._count}"
        group = self.tree.group(self.instance.group_name(name))
        extra = want.disk_bytes + profile.overhead_bytes
        cell = self._live[name] = GVisorCell(name, group, self.instance.path / name, extra, self.forget)
        return cell

    async def _launch(self, cell: GVisorCell, profile: Profile, argv: list[str]) -> Channel:
        settings = self.settings
        cell.path.mkdir(mode=0o700)
        memory = 256 * MIB + cell.extra
        cell.group.create(Limits(memory_bytes=memory, pids=settings.host_pids, cpus=profile.cpus))
        info, said = os.pipe()
        wait, go = os.pipe()
        try:
            cell.process = _spawn(cell, argv, said, wait)
            os.close(said)
            said = -1
            await anyio.to_thread.run_sync(_give_users, info, go, abandon_on_cancel=False)
        finally:
            for descriptor in (info, said, wait, go):
                if descriptor >= 0:
                    os.close(descriptor)
        frame = settings.workspace_bytes + settings.workspace_entries * 1100 + 8 * MIB
        cell.channel = await connect(cell.process.stdin, cell.process.stdout, frame)
        return cell.channel

    # ------------------------------------------------------------ the rest of the contract

    async def snapshot(self, sandbox: Sandbox) -> str:
        """See `backend.Backend`."""
        raise SnapshotFailed("bubblewrap takes no snapshots")

    async def forget_snapshot(self, snapshot: str) -> None:
        """See `backend.Backend`."""

    def forget(self, name: str, gone: bool) -> None:
        """Called by a cell that has been destroyed."""
        self._live.pop(name, None)
        if not gone:
            self.leaked += 1
            log.error("sandbox_leaked", sandbox=name, instance=self.instance.id)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for cell in list(self._live.values()):
                    tasks.start_soon(cell.destroy)
            await anyio.to_thread.run_sync(self.instance.close)


def arguments(image: Path, disk_bytes: int, tmp_bytes: int, variables: dict[str, str]) -> list[str]:
    """What makes the sandbox what gVisor's specification makes it. Sizes are bytes."""

    def tmpfs(where: str, size: int, mode: str) -> list[str]:
        return ["--perms", mode, "--size", str(size), "--tmpfs", where]

    found = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    found += ["--unshare-cgroup-try", "--die-with-parent", "--as-pid-1", "--hostname", "sandbox"]
    found += ["--ro-bind", str(image), "/", "--proc", "/proc", "--dev", "/dev", *tmpfs("/dev/shm", tmp_bytes, "1777")]
    found += [*tmpfs("/tmp", tmp_bytes, "1777"), *tmpfs("/workspace", disk_bytes, "0777"), "--remount-ro", "/dev"]
    found += ["--cap-drop", "ALL", *(part for name in CAPABILITIES for part in ("--cap-add", name))]
    found += ["--chdir", "/", "--clearenv"]
    return found + [part for key, value in variables.items() for part in ("--setenv", key, value)]


def _spawn(cell: GVisorCell, argv: list[str], said: int, wait: int) -> subprocess.Popen[bytes]:
    """Start it. From the event loop's thread on purpose: the parent-death signal is tied to it."""
    entries = [str(entry) for entry in cell.group.entries]
    command = ["/bin/sh", "-c", ENTER, "enter", str(len(entries)), *entries, *TIED]
    command += ["prlimit", "--nofile=1024:1024", "--core=0:0", "--"]
    command += ["bwrap", "--info-fd", str(said), "--userns-block-fd", str(wait), *argv]
    with (cell.path / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(),
            pass_fds=(said, wait),
            start_new_session=True,
        )


def _give_users(info: int, go: int) -> None:
    """Wait for the namespace, say which users it has, let it go on. Blocks until bubblewrap has said who it is."""
    parts = list(iter(functools.partial(os.read, info, 4096), b""))
    child = msgspec.json.decode(b"".join(parts), type=dict[str, int])["child-pid"]
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{name}").write_text(IDS)
    os.write(go, b"1")


def _said(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1][:300] if lines else ""
