"""Sessions one after another: `make soak-sandbox`. Memory and open files stay flat, nothing is left.

Each session claims a sandbox from a warm pool, writes, runs, reads and floods a little, and is killed; now and then
one is killed while it is busy. Rows go to results/soak-sandbox.json. Status 0 when every target holds.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec

from tiltyard.sandbox.backend import Backend, Sandbox, Want
from tiltyard.sandbox.backends import open_backend
from tiltyard.sandbox.housekeeping import Reconciles
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.reaper import become_subreaper
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits
from tiltyard_proto.outcomes import Outcome

LIMITS = ExecLimits(wall_s=60.0, cpu_s=60.0, output_bytes=4096)
RESULTS = Path(__file__).resolve().parents[1] / "results/soak-sandbox.json"
PAGE = resource.getpagesize()


class Sample(msgspec.Struct, frozen=True):
    """The process after so many sessions."""

    sessions: int
    memory_bytes: int
    open_files: int
    children: int


def sample(sessions: int) -> Sample:
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    tasks = Path("/proc/self/task")
    children = sum(len((task / "children").read_text().split()) for task in tasks.iterdir())
    return Sample(sessions, memory, len(os.listdir("/proc/self/fd")), children)


async def session(pool: Pool, chance: random.Random) -> None:
    """One sandbox from its claim to its end."""
    sandbox = await pool.claim(Want())
    try:
        await sandbox.write({"given": chance.randbytes(chance.randrange(1 << 14))})
        for _ in range(2):
            script = "cat given | wc -c; head -c 100000 /dev/zero | tr '\\0' x; sleep 60 & echo $! > mine"
            found = await sandbox.run(Command(argv=("sh", "-c", script), limits=LIMITS))
            assert found.outcome is Outcome.FINISHED, found
        assert set(await sandbox.read(["mine", "given"])) == {"mine", "given"}
        if chance.random() < 0.05:
            await _cut_off(sandbox)
    finally:
        with anyio.CancelScope(shield=True):
            await sandbox.kill()


async def _cut_off(sandbox: Sandbox) -> None:
    with anyio.move_on_after(0.05):
        await sandbox.run(Command(argv=("sleep", "60"), limits=LIMITS))


async def soak(backend: Backend, settings: SandboxSettings, sessions: int, at_once: int, every: int) -> list[Sample]:
    """Run so many sessions, `at_once` of them at a time; a sample after each `every`."""
    pool, stop, samples = Pool(backend, settings), anyio.Event(), list[Sample]()
    left = iter(range(sessions))
    ended = 0

    async def work() -> None:
        nonlocal ended
        for number in left:
            await session(pool, random.Random(number))
            ended += 1
            if ended % every == 0:
                samples.append(sample(ended))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.serve, stop)
        async with anyio.create_task_group() as workers:
            for _ in range(at_once):
                workers.start_soon(work)
        stop.set()
    if isinstance(backend, Reconciles):
        assert await backend.reconcile() == 0
    samples.append(sample(ended))
    return samples


def slope(samples: list[Sample]) -> float:
    """Bytes of memory that a session adds, by least squares over the second half, when caches are warm."""
    half = samples[len(samples) // 2 :]
    n = len(half)
    x = sum(each.sessions for each in half) / n
    y = sum(each.memory_bytes for each in half) / n
    spread = sum((each.sessions - x) ** 2 for each in half)
    return sum((each.sessions - x) * (each.memory_bytes - y) for each in half) / spread if spread else 0.0


def rows_of(samples: list[Sample], leaked: int, seconds: float) -> list[dict[str, Any]]:
    files = samples[-1].open_files - samples[0].open_files
    grows = slope(samples[:-1]) / 1024
    return [
        {"measure": "sessions", "value": samples[-1].sessions, "unit": "", "target": None, "holds": True},
        {
            "measure": "sessions a second",
            "value": round(samples[-1].sessions / seconds, 2),
            "unit": "1/s",
            "target": None,
            "holds": True,
        },
        {
            "measure": "memory added by a session",
            "value": round(grows, 2),
            "unit": "KiB",
            "target": "<= 2",
            "holds": grows <= 2,
        },
        {"measure": "open files added", "value": files, "unit": "", "target": "<= 0", "holds": files <= 0},
        {
            "measure": "children left",
            "value": samples[-1].children,
            "unit": "",
            "target": 0,
            "holds": samples[-1].children == 0,
        },
        {"measure": "sandboxes leaked", "value": leaked, "unit": "", "target": 0, "holds": leaked == 0},
    ]


async def run(sessions: int, at_once: int) -> list[dict[str, Any]]:
    become_subreaper()
    settings = SandboxSettings(pool={"python": at_once})
    backend = open_backend(settings)
    begun = time.monotonic()
    try:
        samples = await soak(backend, settings, sessions, at_once, max(1, sessions // 40))
    finally:
        await backend.close()
    return rows_of(samples, backend.leaked, time.monotonic() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-n", type=int, default=2000, metavar="SESSIONS")
    parser.add_argument("--at-once", type=int, default=4, metavar="N")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    rows = anyio.run(run, options.n, options.at_once, backend_options={"use_uvloop": True})
    for row in rows:
        said = f"{row['measure']}: {row['value']} {row['unit']}".rstrip()
        target = f" (target {row['target']})" if row["target"] is not None else ""
        print(f"{'ok  ' if row['holds'] else 'MISS'} {said}{target}")
    options.results.parent.mkdir(exist_ok=True)
    options.results.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
