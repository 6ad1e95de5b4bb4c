"""The plain back-end for tests: the same agent in a child process of the service. It isolates nothing that matters.

Invariants: it keeps the contract of `backend` (one test suite for both), as far as that does not depend on limits of
memory, processes and disk or on the absence of a network. The service refuses it unless it is explicitly allowed.
Left out: every protection. As root it uses a process-id namespace, so that clean-up reaches everything here too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from .backend import Sandbox, SandboxLost, SnapshotFailed, StartFailed, Want
from .cgroups import Counters
from .channel import Channel, connect
from .images import boot_line
from .remote import ENVIRONMENT, RemoteSandbox
from .settings import SandboxSettings


class ProcessCell:
    """A child process and its directory; see `remote.Cell`."""

    def __init__(self, backend: ProcessBackend, process: subprocess.Popen[bytes], path: Path) -> None:
        self.backend, self.process, self.path = backend, process, path
        self.channel: Channel | None = None

    def set_memory(self, size: int) -> None:
        return

    def set_weight(self, percent: int) -> None:
        return

    def rest(self) -> None:
        return

    def wake(self) -> None:
        return

    def counters(self) -> Counters:
        return Counters()

    async def destroy(self) -> None:
        if self.channel is not None:
            self.channel.close()
        await anyio.to_thread.run_sync(self._destroy)
        self.backend.live.discard(self)

    def _destroy(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.path, ignore_errors=True)


class ProcessBackend:
    """See `backend.Backend`."""

    def __init__(self, settings: SandboxSettings) -> None:
        if not settings.allow_untrusted_process:
            raise StartFailed("back-end 'process' isolates nothing; set sandbox.allow_untrusted_process for tests")
        self.settings = settings
        self.leaked = 0
        self.live: set[ProcessCell] = set()
        self._count = 0

    async def start(self, want: Want) -> RemoteSandbox:
        if want.egress:
            raise StartFailed("back-end 'process' has no proxy to reach hosts through; use gvisor")
        begun = time.monotonic()
        self._count += 1
        name = f"p{self._count}"
        cell = self._spawn()
        self.live.add(cell)
        try:
            with anyio.fail_after(self.settings.start_s):
                cell.channel = channel = await connect(cell.process.stdin, cell.process.stdout, 64 << 20)
                await channel.receive()
        except (SandboxLost, TimeoutError) as error:
            await cell.destroy()
            raise StartFailed(f"the agent did not start: {error}") from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await cell.destroy()
            raise
        return RemoteSandbox(name, want.profile, channel, cell, self.settings, time.monotonic() - begun)

    def _spawn(self) -> ProcessCell:
        path = Path(tempfile.mkdtemp(prefix="tiltyard-"))
        agent = [sys.executable, "-c", boot_line(str(Path(__file__).parent), str(path), 0)]
        namespaces = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--"]
        process = subprocess.Popen(
            [*namespaces, *agent] if os.geteuid() == 0 else agent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**ENVIRONMENT, "PATH": os.environ["PATH"]},
            start_new_session=True,
        )
        return ProcessCell(self, process, path)

    async def snapshot(self, sandbox: Sandbox) -> str:
        raise SnapshotFailed("the back-end 'process' takes no snapshots")

    async def forget_snapshot(self, snapshot: str) -> None:
        return

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            for cell in list(self.live):
                await cell.destroy()
