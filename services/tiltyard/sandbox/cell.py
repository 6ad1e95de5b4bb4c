"""One gVisor sandbox on the host: its launcher, its control group, its directory.

Invariants: `destroy` leaves nothing and reports what it could not remove; never `runsc delete` or `runsc exec`, since
killing the group and removing two directories is faster and can't hang. Left out: starting it (`gvisor`).
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio

from .backend import LimitBusy, SandboxLost
from .cgroups import Cgroup, Counters
from .channel import Channel
from .network import Network
from .reaper import reap
from .refusals import Refusals


class GVisorCell:
    """See `remote.Cell`. `ended` is called once it has been destroyed, with whether everything is gone."""

    def __init__(
        self, name: str, group: Cgroup, path: Path, extra_bytes: int, ended: Callable[[str, bool], None]
    ) -> None:
        self.name, self.group, self.path, self.extra, self.ended = name, group, path, extra_bytes, ended
        self.memory, self.initial = 0, 256 << 20
        self.resting: list[int] = []
        """The stopped processes. SIGKILL reaches them all the same, also the one for the death of their parent."""
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None
        self.network = Network()
        self.refusals = Refusals()

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

    def set_weight(self, percent: int) -> None:
        self.group.set_weight(percent)

    def rest(self) -> None:
        """Stop what runs the guest: on systrap it looks for work a thousand times a second, idle or not."""
        self.resting = [pid for pid in self.group.pids() if _is_sentry(pid)]
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)
        self.resting = []

    def _signal(self, number: int) -> None:
        for pid in self.resting:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def counters(self) -> Counters:
        return self.group.counters()

    async def destroy(self) -> None:
        """Kill everything, reap the launcher, remove the group and the directory; say whether something stays."""
        gone = await anyio.to_thread.run_sync(self._destroy)
        if self.channel is not None:  # not before: an agent that ends by itself leaves processes that nobody has named
            self.channel.close()
        self.refusals.close()
        self.ended(self.name, gone)

    def _destroy(self) -> bool:
        gone = self.group.destroy()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            reap(self.group.seen - {self.process.pid})
        self.network.close()
        shutil.rmtree(self.path, ignore_errors=True)
        return gone and not self.path.exists()


def _is_sentry(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"runsc-sandbox")
    except OSError:
        return False
