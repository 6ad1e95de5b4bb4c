"""Sandboxes on gVisor: an attached `runsc run` per sandbox, its init our agent, in a control group of ours.

Invariants: nothing of a sandbox outlives the service: the launcher gets SIGKILL with the thread that started it (the
event loop's, which lives as long as the service), the agent ends when its stdin ends, and a later start sweeps what
is left. Never `runsc delete` or `runsc exec`: killing the group and removing two directories is faster and can't
hang. The root is read-only, every tmpfs has a size, there is no network, and the environment holds nothing of the
host. Left out: checkpoints (they don't pay for a light agent), rootless operation.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import anyio
import structlog

from . import images
from .backend import LimitBusy, SandboxLost, StartFailed, Want
from .cgroups import Cgroup, CgroupError, Counters, Limits, Tree
from .channel import Channel, connect
from .instance import Instance, reconcile
from .reaper import reap
from .remote import ENVIRONMENT, RemoteSandbox
from .settings import SandboxSettings

UID = 1000
CAPABILITIES = ["CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"]
ENTER = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 > "$1" || exit 97; shift; n=$((n-1)); done; exec "$@"'
"""Shell that enters control groups, then becomes its remaining arguments."""


def spec(image: Path, argv: list[str], disk_bytes: int, tmp_bytes: int) -> dict[str, Any]:
    """The OCI specification of a sandbox. Sizes are bytes."""

    def tmpfs(where: str, size: int, mode: str) -> dict[str, Any]:
        options = ["nosuid", "nodev", f"size={size}", f"mode={mode}"]
        return {"destination": where, "type": "tmpfs", "source": "tmpfs", "options": options}

    capabilities = dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES)
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": argv,
            "env": [f"{key}={value}" for key, value in ENVIRONMENT.items()],
            "cwd": "/",
            "capabilities": {**capabilities, "inheritable": [], "ambient": []},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": True,
        },
        "root": {"path": str(image), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            tmpfs("/dev/shm", tmp_bytes, "1777"),
            tmpfs("/tmp", tmp_bytes, "1777"),
            tmpfs("/workspace", disk_bytes, "777"),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }


class GVisorCell:
    """The launcher, its control group and its directory; see `remote.Cell`."""

    def __init__(self, backend: GVisorBackend, name: str, group: Cgroup, path: Path, extra_bytes: int) -> None:
        self.backend, self.name, self.group, self.path, self.extra = backend, name, group, path, extra_bytes
        self.memory = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None

    def set_memory(self, size: int) -> None:
        if size == self.memory:
            return
        try:
            self.group.set_memory(size + self.extra)
            self.memory = size
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise LimitBusy(self.name) from error
            raise SandboxLost(f"can't limit memory to {size} bytes: {error.strerror}") from error

    def counters(self) -> Counters:
        return self.group.counters()

    async def destroy(self) -> None:
        """Kill everything, reap the launcher, remove the group and the directory; count what stays."""
        if self.channel is not None:
            self.channel.close()
        gone = await anyio.to_thread.run_sync(self._destroy)
        self.backend.forget(self.name, gone)

    def _destroy(self) -> bool:
        family = set(self.group.pids())
        gone = self.group.destroy()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            reap(family - {self.process.pid})
        shutil.rmtree(self.path, ignore_errors=True)
        return gone and not self.path.exists()


class GVisorBackend:
    """See `backend.Backend`. Make it with `open`."""

    def __init__(self, settings: SandboxSettings, tree: Tree, instance: Instance) -> None:
        self.settings, self.tree, self.instance = settings, tree, instance
        self.runsc = images.find_runsc(settings)
        self.platform = settings.platform
        self.leaked = 0
        self._live: dict[str, GVisorCell] = {}
        self._bundles: dict[Want, Path] = {}
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
        try:
            tree = Tree.find()
        except (OSError, CgroupError) as error:
            raise StartFailed(f"control groups: {error}") from error
        home = images.home_of(settings)
        swept = reconcile(home, tree)
        if swept:
            structlog.get_logger().warning("swept_dead_sandboxes", count=swept)
        return cls(settings, tree, Instance(home, tree))

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
        return await self._start(want)

    async def _start(self, want: Want) -> RemoteSandbox:
        begun = time.monotonic()
        bundle = await self._bundle(want)
        self._count += 1
        name = f"s{self._count}"
        path = self.instance.path / name
        settings = self.settings
        cell = GVisorCell(
            self, name, self.tree.group(self.instance.group_name(name)), path, want.disk_bytes + settings.overhead_bytes
        )
        self._live[name] = cell
        try:
            with anyio.fail_after(settings.start_s):
                channel = await self._launch(cell, bundle)
                hello = await channel.receive()
        except (SandboxLost, TimeoutError, OSError, CgroupError) as error:
            why = _last_line(path / "stderr") or str(error) or f"not ready within {settings.start_s:g} s"
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise StartFailed(f"runsc: {why}") from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise
        if hello[0] != b"hello":
            await cell.destroy()
            raise StartFailed("the agent did not say hello")
        return RemoteSandbox(name, want.profile, channel, cell, settings, time.monotonic() - begun)

    async def _launch(self, cell: GVisorCell, bundle: Path) -> Channel:
        settings = self.settings
        cell.path.mkdir(mode=0o700)
        memory = (256 << 20) + cell.extra
        cell.group.create(Limits(memory_bytes=memory, pids=settings.host_pids, cpus=settings.cpus))
        cell.process = self._spawn(cell, bundle)
        frame = settings.workspace_bytes + settings.workspace_entries * 1100 + (8 << 20)
        cell.channel = await connect(cell.process.stdin, cell.process.stdout, frame)
        return cell.channel

    def _spawn(self, cell: GVisorCell, bundle: Path) -> subprocess.Popen[bytes]:
        """Start the launcher. From this thread on purpose: the parent-death signal is tied to it."""
        entries = [str(entry) for entry in cell.group.entries]
        command = ["/bin/sh", "-c", ENTER, "enter", str(len(entries)), *entries]
        command += ["setpriv", "--pdeathsig", "KILL", "--", self.runsc, "--root", str(cell.path)]
        command += [f"--platform={self.platform}", "--network=none", "--net-raw=false", "--ignore-cgroups"]
        command += ["--overlay2=none", "run", "--bundle", str(bundle), f"{self.instance.id}-{cell.name}"]
        with (cell.path / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")},
                start_new_session=True,
            )

    async def _bundle(self, want: Want) -> Path:
        """The OCI bundle of a want, written once and shared by its sandboxes."""
        if want not in self._bundles:
            make = functools.partial(self._make_bundle, want)
            self._bundles[want] = await anyio.to_thread.run_sync(make)
        return self._bundles[want]

    def _make_bundle(self, want: Want) -> Path:
        image = images.find_image(self.settings, want.profile)
        folder = images.install_agent(image)
        argv = ["/usr/bin/python3", "-c", images.boot_line(folder, "/workspace", UID)]
        bundle = self.instance.path / f"bundle-{want.profile}-{want.disk_bytes}"
        bundle.mkdir(exist_ok=True)
        text = json.dumps(spec(image, argv, want.disk_bytes, self.settings.tmp_bytes))
        (bundle / "config.json").write_text(text)
        return bundle

    # ------------------------------------------------------------ end

    def forget(self, name: str, gone: bool) -> None:
        """Called by a cell that has been destroyed."""
        self._live.pop(name, None)
        if not gone:
            self.leaked += 1
            structlog.get_logger().error("sandbox_leaked", sandbox=name, instance=self.instance.id)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for cell in list(self._live.values()):
                    tasks.start_soon(cell.destroy)
            await anyio.to_thread.run_sync(self.instance.close)


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            lines = file.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
