"""`tiltyard sandbox bench`: what starting, claiming, running and destroying costs on this host, in half a minute."""

from __future__ import annotations

import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from tiltyard.cli.errors import UserError
from tiltyard.sandbox.backend import Backend, Sandbox, SandboxError, Want
from tiltyard.sandbox.backends import open_backend
from tiltyard.sandbox.reaper import become_subreaper
from tiltyard_proto.messages import Command, ExecLimits
from tiltyard_proto.outcomes import Outcome

from .services import settings_of

LIMITS = ExecLimits(wall_s=60.0, cpu_s=60.0)
COMMANDS = {"true": ("true",), "python3 -c pass": ("python3", "-c", "pass"), "shell, 10 processes": ("sh", "-c", "")}
LOOP = "i=0; while [ $i -lt 10 ]; do /bin/true; i=$((i+1)); done"


class Figure(msgspec.Struct, kw_only=True):
    """One measure, in milliseconds."""

    measure: str
    p50_ms: float
    most_ms: float
    count: int


class Bench:
    """Times of the phases of sandboxes of one profile."""

    def __init__(self, backend: Backend, profile: str) -> None:
        self.backend, self.want = backend, Want(profile=profile)
        self.times: dict[str, list[float]] = {}

    async def timed(self, measure: str, act: Callable[[], Awaitable[object]]) -> object:
        begun = time.monotonic()
        found = await act()
        self.times.setdefault(measure, []).append((time.monotonic() - begun) * 1000)
        return found

    async def once(self) -> None:
        """One sandbox from its start to its end."""
        sandbox: Sandbox = await self.timed("start", lambda: self.backend.start(self.want))  # type: ignore[assignment]
        try:
            for measure, argv in COMMANDS.items():
                command = Command(argv=(*argv[:-1], LOOP) if not argv[-1] else argv, limits=LIMITS)
                found = await self.timed(measure, lambda command=command: sandbox.run(command))  # type: ignore[misc]
                outcome = getattr(found, "outcome", None)
                if outcome is not Outcome.FINISHED:
                    raise UserError(
                        f"{measure}: {getattr(found, 'detail', '')}; what does `tiltyard sandbox doctor` say?"
                    )
            await self.timed("write 64 KiB", lambda: sandbox.write({"file": bytes(1 << 16)}))
            await self.timed("read 64 KiB", lambda: sandbox.read(["file"]))
        finally:
            await self.timed("destroy", sandbox.kill)

    def figures(self) -> list[Figure]:
        return [
            Figure(measure=name, p50_ms=statistics.median(times), most_ms=max(times), count=len(times))
            for name, times in self.times.items()
        ]


async def _measure(arguments: Namespace) -> tuple[list[Figure], int]:
    become_subreaper()
    settings = settings_of(arguments)
    try:
        backend = open_backend(settings)
    except SandboxError as error:
        raise UserError(str(error)) from error
    try:
        bench = Bench(backend, arguments.profile)
        for _ in range(arguments.n):
            await bench.once()
    except SandboxError as error:
        raise UserError(str(error)) from error
    finally:
        await backend.close()
    return bench.figures(), backend.leaked


def bench_main(arguments: Namespace) -> int:
    """Print the table; 1 when something was left behind."""
    figures, leaked = anyio.run(_measure, arguments, backend_options={"use_uvloop": True})
    if arguments.json:
        sys.stdout.write(msgspec.json.encode({"figures": figures, "leaked": leaked}).decode() + "\n")
    else:
        table = Table("what", "p50", "most", "n", box=None)
        for each in figures:
            table.add_row(each.measure, f"{each.p50_ms:.1f} ms", f"{each.most_ms:.1f} ms", str(each.count))
        Console(highlight=False).print(table)
        if leaked:
            print(f"{leaked} sandboxes left something behind")
    return 1 if leaked else 0
