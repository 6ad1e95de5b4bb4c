"""What an operation costs: wall time, and CPU time of everything that it started.

The program and all that it starts are in one CPU accounting group, so that processes are counted which nobody waits
for, such as the sentry of a sandbox. CPU time hardly moves with the load of a machine; wall time does.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Accounts:
    """The CPU accounting group of this process."""

    def __init__(self, directory: Path, version: int) -> None:
        self.directory, self.version = directory, version

    @property
    def cpu_ms(self) -> float:
        """CPU time used in the group so far."""
        if self.version == 1:
            return int((self.directory / "cpuacct.usage").read_text()) / 1e6
        fields = dict(line.split() for line in (self.directory / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e3


@contextmanager
def accounts() -> Iterator[Accounts]:
    """A new group with this process in it; needs root."""
    found = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    version, path = next(((1, path) for _, names, path in found if "cpuacct" in names.split(",")), (2, found[0][2]))
    root = Path("/sys/fs/cgroup/cpuacct" if version == 1 else "/sys/fs/cgroup")
    home = root / path.lstrip("/")
    group = home / f"bench-sandbox-{os.getpid()}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield Accounts(group, version)
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        _remove(group)


def _remove(group: Path) -> None:
    """Remove the group and those that others made in it, once they are empty."""
    deadline = time.monotonic() + 2
    while group.exists() and time.monotonic() < deadline:
        try:
            for below in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
                below.rmdir()
            group.rmdir()
        except OSError:
            time.sleep(0.05)


class Samples:
    """Repeated measurements of one operation, in milliseconds."""

    def __init__(self, account: Accounts) -> None:
        self.account = account
        self.wall: list[float] = []
        self.cpu: list[float] = []

    async def of(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Do it once and note what it cost."""
        before, begun = self.account.cpu_ms, time.perf_counter()
        result = await operation()
        self.wall.append((time.perf_counter() - begun) * 1e3)
        self.cpu.append(self.account.cpu_ms - before)
        return result

    @property
    def p50(self) -> float:
        return statistics.median(self.wall)

    @property
    def p99(self) -> float:
        """The 99th percentile; the largest when there are fewer than a hundred."""
        return sorted(self.wall)[max(0, -(-99 * len(self.wall) // 100) - 1)]

    @property
    def cpu_p50(self) -> float:
        return statistics.median(self.cpu)

    @property
    def cpu_p99(self) -> float:
        return sorted(self.cpu)[max(0, -(-99 * len(self.cpu) // 100) - 1)]
