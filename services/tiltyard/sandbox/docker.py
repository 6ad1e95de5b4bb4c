"""Sandboxes as containers of a Docker daemon with gVisor as its runtime: for where there is only its socket.

The same image and agent, attached to the agent's stdin and stdout. It costs seconds where gVisor directly costs
tenths, and the memory limit is fixed when a container is made, since runsc can't change it. Invariants: a container
ends with the connection of the service that made it; whatever it leaves carries its owner's labels and is removed at
the next start; containers of others are never touched. Left out: snapshots, a way out to a network.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from pathlib import Path
from typing import Any

import anyio
import structlog

from . import docker_image, images, profiles
from .backend import NotHere, Sandbox, SandboxLost, SnapshotFailed, StartFailed, Want
from .cgroups import Counters
from .channel import Channel
from .docker_api import Docker, DockerError
from .docker_spec import INSTANCE, OWNER, Image, container, owner
from .instance import Instance, is_alive
from .launch import UID
from .profiles import Profile
from .remote import RemoteSandbox, variables_of
from .settings import SandboxSettings

log = structlog.get_logger()
MIB = 1 << 20
MARK = "docker"
"""File in the directory of an instance that has nothing but containers."""
END_S = 3.0


class DockerCell:
    """One container; see `remote.Cell`."""

    def __init__(self, backend: DockerBackend, name: str, memory_bytes: int) -> None:
        self.backend, self.name, self.memory = backend, name, memory_bytes
        self.channel: Channel | None = None
        self._counters = Counters()

    def set_memory(self, size: int) -> None:
        if size > self.memory:
            raise SandboxLost(f"a command wants {size} bytes of memory; sandbox.docker_memory_bytes is {self.memory}")

    def set_weight(self, percent: int) -> None:
        return

    def rest(self) -> None:
        return

    def wake(self) -> None:
        return

    def counters(self) -> Counters:
        return self._counters

    async def ended(self) -> None:
        """Ask why a container that has gone silent has gone, once it has."""
        docker = self.backend.docker
        try:
            with anyio.move_on_after(END_S):
                await docker.call("POST", f"/containers/{self.name}/wait", condition="not-running")
            state = (await docker.call("GET", f"/containers/{self.name}/json", within_s=END_S))["State"]
        except DockerError:
            return
        self._counters = Counters(oom_kills=int(bool(state.get("OOMKilled"))))

    async def destroy(self) -> None:
        """Remove the container, however often that takes; count it when it stays."""
        if self.channel is not None:
            self.channel.close()
        self.backend.forget(self.name, await self.backend.remove(self.name))


class DockerBackend:
    """See `backend.Backend`. Make it with `open`."""

    def __init__(self, settings: SandboxSettings, instance: Instance) -> None:
        self.settings, self.instance = settings, instance
        self.home = images.home_of(settings)
        self.docker = Docker(settings.docker_socket)
        self.leaked = 0
        self._stay: set[str] = set()
        """Names of those that are leaked."""
        self.profiles = profiles.load(images.profile_folders(settings))
        self._live: dict[str, DockerCell] = {}
        self._images: dict[str, Image] = {}
        self._count = 0
        self._preparing = anyio.Lock()
        self._prepared = False

    @classmethod
    def open(cls, settings: SandboxSettings) -> DockerBackend:
        """Take an instance id. The daemon is asked at the first start. StartFailed without its socket."""
        if not Path(settings.docker_socket).is_socket():
            raise StartFailed(f"no Docker socket at {settings.docker_socket}; set sandbox.docker_socket")
        instance = Instance(images.home_of(settings), None)
        (instance.path / MARK).touch()
        return cls(settings, instance)

    # ------------------------------------------------------------ start

    async def start(self, want: Want) -> RemoteSandbox:
        """See `backend.Backend`."""
        if want.snapshot or want.egress:
            raise StartFailed("the Docker back-end has neither snapshots nor a way out; use gvisor")
        profile = self.profiles.get(want.profile)
        if profile is None:
            raise NotHere(profiles.unknown(want.profile, self.profiles))
        begun = time.monotonic()
        try:
            image = await self._image(profile)
        except (DockerError, OSError) as error:
            raise StartFailed(f"docker: {error}") from error
        self._count += 1
        name = f"tiltyard-{self.instance.id}-{self._count}"
        labels = {INSTANCE: self.instance.id, OWNER: owner(self.home)}
        cell = self._live[name] = DockerCell(self, name, self.settings.docker_memory_bytes)
        try:
            with anyio.fail_after(self.settings.start_s):
                channel = await self._launch(cell, container(self.settings, labels, want, profile, image))
                await channel.receive()
        except (SandboxLost, TimeoutError, DockerError) as error:
            why = str(error) or f"not ready within {self.settings.start_s:g} s"
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise StartFailed(f"docker: {why}") from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise
        sandbox = RemoteSandbox(name, want.profile, channel, cell, self.settings, time.monotonic() - begun)
        sandbox.environment = image.variables
        return sandbox

    async def _launch(self, cell: DockerCell, body: dict[str, Any]) -> Channel:
        settings = self.settings
        with anyio.CancelScope(shield=True):  # given up half-way, it could be made after it was removed
            await self.docker.call("POST", "/containers/create", body, name=cell.name)
        frame = settings.workspace_bytes + settings.workspace_entries * 1100 + 8 * MIB
        cell.channel = await self.docker.attach(cell.name, frame, cell.ended)
        await self.docker.call("POST", f"/containers/{cell.name}/start")
        return cell.channel

    async def _image(self, profile: Profile) -> Image:
        """A profile's image in the daemon, imported if it is not there."""
        async with self._preparing:
            if not self._prepared:
                await self._check()
                await self._sweep()
                self._prepared = True
            if profile.name not in self._images:
                root = await anyio.to_thread.run_sync(images.find_image, self.settings, profile.name)
                folder = await anyio.to_thread.run_sync(images.install_agent, root)
                boot = images.boot_line(folder, "/workspace", UID, profile.preload)
                self._images[profile.name] = Image(
                    name=await docker_image.ensure(self.docker, profile.name, root, folder),
                    command=(*images.interpreter(root), "-c", boot),
                    variables=variables_of(images.environment_of(root), profile.environment),
                )
            return self._images[profile.name]

    async def _check(self) -> None:
        """DockerError unless the daemon has the runtime."""
        runtimes = (await self.docker.call("GET", "/info"))["Runtimes"]
        if self.settings.docker_runtime not in runtimes:
            raise DockerError(
                0,
                f"the daemon has no runtime {self.settings.docker_runtime!r}; add runsc to the runtimes in its "
                'daemon.json, with "runtimeArgs": ["--network=none"]',
            )

    # ------------------------------------------------------------ clean-up

    async def reconcile(self) -> int:
        """Remove what has no owner; how many there were, none while the daemon can't be asked."""
        try:
            return await self._sweep()
        except DockerError as error:
            log.warning("docker_not_reconciled", why=str(error))
            return 0

    async def _sweep(self) -> int:
        """Remove containers of dead services that shared this home, and those of our own that no sandbox has."""
        filters = json.dumps({"label": [f"{OWNER}={owner(self.home)}"]})
        found, there = 0, set[str]()
        for item in await self.docker.call("GET", "/containers/json", all="1", filters=filters):
            if self._is_stray(item):
                found += 1
                if await self.remove(item["Id"]):
                    continue
            there |= _names(item)
        self._stay &= there
        self.leaked = len(self._stay)
        for mark in (self.home / "run").glob(f"*/{MARK}"):
            if not is_alive(self.home, mark.parent.name):
                await anyio.to_thread.run_sync(functools.partial(shutil.rmtree, mark.parent, ignore_errors=True))
        if found:
            log.warning("swept_dead_sandboxes", count=found)
        return found

    def _is_stray(self, item: dict[str, Any]) -> bool:
        instance = item["Labels"].get(INSTANCE, "")
        if instance != self.instance.id:
            return not is_alive(self.home, instance)
        return bool(_names(item)) and not _names(item) & self._live.keys()

    async def remove(self, name: str) -> bool:
        """Kill and remove a container; False when it stays."""
        deadline = time.monotonic() + END_S
        while True:
            try:
                await self.docker.call("DELETE", f"/containers/{name}", force="1", v="1", within_s=END_S)
                return True
            except DockerError as error:
                if error.status == 404:
                    return True
                if time.monotonic() > deadline:
                    log.error("container_stays", container=name, why=str(error))
                    return False
            await anyio.sleep(0.05)

    def forget(self, name: str, gone: bool) -> None:
        """Called by a cell that has been destroyed."""
        self._live.pop(name, None)
        if not gone:
            self._stay.add(name)
        self.leaked = len(self._stay)

    async def snapshot(self, sandbox: Sandbox) -> str:
        """See `backend.Backend`."""
        raise SnapshotFailed("the Docker back-end takes no snapshots")

    async def forget_snapshot(self, snapshot: str) -> None:
        """See `backend.Backend`."""

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for cell in list(self._live.values()):
                    tasks.start_soon(cell.destroy)
            await self.docker.close()
            await anyio.to_thread.run_sync(self.instance.close)


def _names(item: dict[str, Any]) -> set[str]:
    """Names of a container in the daemon's list, without the slash that it puts before them."""
    return {str(name).lstrip("/") for name in item.get("Names") or ()}
