"""One supervised service process: start, read its log, restart with back-off, stop.

Invariants: a process that ends while it should run is started again after a growing delay; status 2 means the user's
mistake and is never tried again; stopping is TERM, then KILL after a deadline, and returns when the process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence

import anyio

from tiltyard.kit.embedded import tied

from .lines import readable
from .settings import SupervisorSettings

USER_ERROR = 2
LogLine = Callable[[str, str], None]
"""Takes the process's name and one line of its output."""


class GaveUp(RuntimeError):
    """A service can't be kept running."""


def backoff(failures: int, settings: SupervisorSettings) -> float:
    """Seconds to wait before restart number `failures` (from 1)."""
    return min(settings.restart_most_s, settings.restart_first_s * 2.0 ** (failures - 1))


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process and its reaped children so far; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(fields[i]) for i in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


class Child:
    """One replica of one service."""

    def __init__(self, name: str, argv: Sequence[str], settings: SupervisorSettings, on_line: LogLine) -> None:
        self.name = name
        self.argv = list(argv)
        self.settings = settings
        self.on_line = on_line
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        self.cpu_before = 0.0
        """CPU seconds of earlier incarnations."""
        self.cpu_now = 0.0
        self.stopping = False
        self.last_line = ""
        self._starting = anyio.Lock()

    @property
    def pid(self) -> int | None:
        running = self.process is not None and self.process.returncode is None
        return self.process.pid if running and self.process is not None else None

    @property
    def said(self) -> str:
        """Its last line, for people."""
        return readable("", self.last_line)[2].strip() or "nothing"

    @property
    def cpu_s(self) -> float:
        return self.cpu_before + self.cpu_now

    def sample_cpu(self) -> None:
        if self.pid is not None:
            self.cpu_now = max(self.cpu_now, cpu_seconds(self.pid))

    async def run(self) -> None:
        """Keep the process running until `stop`; GaveUp when it can't be."""
        failures = 0
        while not self.stopping:
            started = time.monotonic()
            status = await self._once()
            if self.stopping:
                return
            failures = 1 if time.monotonic() - started >= self.settings.steady_s else failures + 1
            if status == USER_ERROR:
                raise GaveUp(f"{self.name} ended with status 2: {self.said}")
            if failures > self.settings.give_up:
                raise GaveUp(
                    f"{self.name}: ended {failures} times in a row (last status {status}); it said: {self.said}"
                )
            delay = backoff(failures, self.settings)
            self.on_line("up", f"{self.name} ended with {describe(status)}; restart in {delay:g} s")
            await anyio.sleep(delay)
            self.restarts += 1

    async def _once(self) -> int:
        async with self._starting:
            if self.stopping:
                return 0
            self.process = process = await self._start()
        assert process.stdout is not None
        try:
            while line := await self._line(process.stdout):
                self.last_line = line.decode(errors="replace").rstrip()
                self.on_line(self.name, self.last_line)
            return await process.wait()
        finally:
            self.cpu_before, self.cpu_now = self.cpu_s, 0.0

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *tied(self.argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "TILTYARD_SERVICE__LOG_FORMAT": "json", "OMP_WAIT_POLICY": "PASSIVE"},
            limit=1 << 20,
        )

    @staticmethod
    async def _line(stream: asyncio.StreamReader) -> bytes:
        try:
            return await stream.readline()
        except ValueError:  # a line over the limit; the rest of it follows
            return b"(a line of over 1 MiB was dropped)\n"

    async def stop(self) -> None:
        """TERM, wait, KILL."""
        self.stopping = True
        self.sample_cpu()
        async with self._starting:  # a process that is just being started is stopped as well
            process = self.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with anyio.move_on_after(self.settings.stop_s):
            await process.wait()
            return
        self.on_line("up", f"{self.name} did not stop within {self.settings.stop_s:g} s; killed")
        self.kill()
        await process.wait()

    def kill(self) -> None:
        """End it at once, for good."""
        self.stopping = True
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()


def describe(status: int) -> str:
    """An exit status for people."""
    return f"signal {-status}" if status < 0 else f"status {status}"


def service_argv(service: str, config: str | None, overrides: Sequence[str]) -> list[str]:
    """The command of one service process."""
    argv = [sys.executable, "-m", f"tiltyard.{service}"]
    if config is not None:
        argv += ["-c", config]
    for item in overrides:
        argv += ["--set", item]
    return argv
