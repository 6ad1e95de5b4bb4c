"""What the sandbox costs: `python loadtests/bench_sandbox.py [--small] [--results FILE] [--without docker]`.

Prints a table and writes rows {measure, value, unit, target, holds}: wall time and CPU time of everything that an
operation starts, median and 99th percentile, beside runc, bubblewrap and `docker run` on the same work in the same
run. Needs root, gVisor and the image of profile python. Wall times want a quiet machine; CPU times bear a busy one.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import msgspec

sys.path.insert(0, str(Path(__file__).parent))

import sandbox_isolators as isolators
import sandbox_scenarios as scenarios
from bench_bus import HOLDS, note, row
from sandbox_costs import Accounts, Samples, accounts

from tiltyard.cli.report import Row
from tiltyard.kit import log
from tiltyard.sandbox import images
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.launch import Runsc
from tiltyard.sandbox.reaper import become_subreaper
from tiltyard.sandbox.settings import SandboxSettings

PROFILE = """
name = "{name}"
description = "of the benchmark"
preload = {preload}
overhead_bytes = 134217728
[image]
packages = ["python3"]
"""
PRELOADS = {"with-numpy": ["numpy"], "with-both": ["numpy", "pytest"]}
NUMPY, HEAVY = Want(profile="with-numpy"), Want(profile="with-both")
GIB = 1 << 30


class Sizes(msgspec.Struct, frozen=True):
    """How much of everything."""

    rounds: int
    sandboxes: int
    commands: int
    starts: int
    creations: int
    density: int
    busy: int
    beside: int


FULL = Sizes(rounds=8, sandboxes=5, commands=20, starts=40, creations=48, density=300, busy=20, beside=10)
SMALL = Sizes(rounds=1, sandboxes=1, commands=5, starts=4, creations=8, density=6, busy=4, beside=2)


@contextmanager
def prepared(platform: str) -> Iterator[SandboxSettings]:
    """Settings with a home of their own, on the image and runsc of the usual home."""
    usual = SandboxSettings()
    image = str(images.find_image(usual, "python").resolve())
    with tempfile.TemporaryDirectory(prefix="bench-sandbox-", dir=images.home_of(usual)) as folder:
        for name, preload in PRELOADS.items():
            (Path(folder) / f"{name}.toml").write_text(PROFILE.format(name=name, preload=preload))
        yield SandboxSettings(
            home=folder,
            runsc=images.find_runsc(usual),
            image=dict.fromkeys(("python", *PRELOADS), image),
            profiles=folder,
            platform=platform or usual.platform,  # type: ignore[arg-type]
            pool={"python": 16},
            pool_most=24,
        )


def timed(what: str, samples: Samples, p50: float = 0, p99: float = 0, cpu: float = 0) -> list[Row]:
    """Rows of one operation; 0: no target."""
    rows = []
    for name, value, most in (("p50", samples.p50, p50), ("p99", samples.p99, p99)):
        measure = f"{what}, {name}"
        rows.append(row(measure, value, "ms", most, least=False) if most else note(measure, value, "ms"))
    measure = f"{what}, CPU"
    cpu_row = (
        row(measure, samples.cpu_p50, "CPU-ms", cpu, least=False) if cpu else note(measure, samples.cpu_p50, "CPU-ms")
    )
    return [*rows, cpu_row, note(f"{what}, CPU p99", samples.cpu_p99, "CPU-ms")]


async def paths(backend: GVisorBackend, account: Accounts, sizes: Sizes) -> list[Row]:
    """The rows of single operations."""
    often = (sizes.sandboxes, sizes.commands)
    rows = timed(
        "claim a warm sandbox and get an answer", await scenarios.claims(backend, account, sizes.rounds, True), 1, 5
    )
    rows += timed("the same while the pool refills", await scenarios.claims(backend, account, sizes.rounds, False))
    rows += timed(
        "true, in a claimed sandbox", await scenarios.runs(backend, account, Want(), scenarios.TRUE, often), 10
    )
    rows += timed("python3 -c pass", await scenarios.runs(backend, account, Want(), scenarios.PASS, often), 35)
    rows += timed(
        "numpy ready, forked from a preloaded interpreter",
        await scenarios.runs(backend, account, NUMPY, scenarios.NUMPY, often),
        60,
    )
    rows += timed(
        "the same as the first command of a sandbox",
        await scenarios.firsts(backend, account, NUMPY, scenarios.NUMPY, sizes.starts),
    )
    rows += timed(
        "numpy in a fresh interpreter",
        await scenarios.runs(backend, account, Want(), scenarios.NUMPY_FRESH, (1, sizes.commands)),
    )
    restored, _ = await scenarios.starts(backend, account, HEAVY, sizes.starts)
    rows += timed("restore of a profile with numpy and pytest loaded", restored, 280, 0, 160)
    cold, ended = await scenarios.starts(backend, account, Want(), sizes.starts)
    rows += timed("cold start to an answering agent", cold, 250, 0, 220)
    rows += timed("destroy, everything gone", ended, 30)
    return rows


async def cold_heavy(settings: SandboxSettings, account: Accounts, count: int) -> list[Row]:
    """The heavy profile without its snapshot."""
    folder = Path(settings.home)
    text = PROFILE.format(name="with-both", preload=PRELOADS["with-both"])
    (folder / "with-both.toml").write_text(text.replace("[image]", 'snapshot = "never"\n[image]'))
    backend = GVisorBackend.open(settings)
    try:
        return timed("the same profile started cold", (await scenarios.starts(backend, account, HEAVY, count))[0])
    finally:
        await backend.close()


async def many(backend: GVisorBackend, settings: SandboxSettings, sizes: Sizes) -> list[Row]:
    """The rows of many sandboxes at once."""
    rate = max([await scenarios.creations(backend, sizes.creations, 4) for _ in range(2)])
    rows = [row("creations, four at a time, the better of two rounds", rate, "per second", 8, least=True)]
    count = sizes.density
    each = await scenarios.idle_mib(backend, Want(), count)
    rows.append(row(f"idle sandbox, of {count} started at once", each, "MiB", 24, least=False))
    rows.append(row("idle sandboxes in 8 GiB, by that figure", 8 * 1024 // each, "sandboxes", 300, least=True))
    heavy = await scenarios.idle_mib(backend, HEAVY, min(count, 20))
    rows.append(note("idle sandbox with numpy and pytest loaded", heavy, "MiB"))
    seconds, left = await scenarios.killed_service(settings, sizes.busy)
    rows.append(row(f"SIGKILL of the service with {sizes.busy} busy sandboxes: all gone", seconds, "s", 1, least=False))
    rows.append(row("left of them after a restart", left, "traces", 0, least=False))
    return rows


WORK = (("true",), ("python3", "-c", "pass"), ("python3", "-c", "import numpy"))
DOCKER = "docker run --runtime=runsc"


async def rivals(backend: GVisorBackend, account: Accounts, sizes: Sizes, skip: list[str]) -> list[Row]:
    """The same work beside other isolators: each makes a sandbox, runs a program in it and leaves nothing."""
    rollouts = scenarios.Rollouts(backend)
    ways: dict[str, isolators.Once] = {"from our pool": rollouts.from_pool, "our sandbox started cold": rollouts.cold}
    absent = {**isolators.missing(), **dict.fromkeys(skip, "left out by --without")}
    rows = [Row(measure=f"not compared: {name}", value=None, unit=how) for name, how in absent.items()]
    with ExitStack() as stack:
        ways |= _others(backend, account, absent, stack)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rollouts.pool.serve, rollouts.stop)
            for argv in WORK:
                rollouts.want = NUMPY if "numpy" in argv[-1] else Want()
                found = await scenarios.beside(account, ways, argv, sizes.beside, rollouts)
                rows += _compared(" ".join(argv), found)
            rollouts.stop.set()
    return rows


def _others(
    backend: GVisorBackend, account: Accounts, absent: dict[str, str], stack: ExitStack
) -> dict[str, isolators.Once]:
    image = Path(backend.settings.image["python"])
    root = "/sys/fs/cgroup/cpuacct" if account.version == 1 else "/sys/fs/cgroup"
    group = f"/{account.directory.relative_to(root)}"
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sandbox-")))
    program = Runsc(path=backend.runsc, platform=backend.platform)
    ways: dict[str, isolators.Once] = {"runsc run": isolators.runsc(image, work, program)}
    if "bwrap" not in absent:
        ways["bubblewrap"] = isolators.bubblewrap(image)
    if "runc" not in absent:
        ways["runc run"] = isolators.runc(image, work, group)
    if "dockerd" not in absent and "docker" not in absent:
        socket = stack.enter_context(isolators.daemon(image, backend.runsc, backend.platform, group))
        ways["docker run"] = isolators.docker(socket, "runc")
        ways[DOCKER] = isolators.docker(socket, "runsc")
    return ways


def _compared(work: str, found: dict[str, Samples]) -> list[Row]:
    rows = [one for name, samples in found.items() for one in timed(f"{work}: {name}", samples)[:3]]
    if DOCKER in found:
        said = f"{work}: {DOCKER} takes so many times as long as"
        times = {name: found[DOCKER].p50 / samples.p50 for name, samples in found.items()}
        rows.append(row(f"{said} our path", times["from our pool"], "times", 4, least=True))
        rows += [note(f"{said} {name}", times[name], "times") for name in ("our sandbox started cold", "runsc run")]
    return rows


async def measure(sizes: Sizes, platform: str, skip: list[str]) -> list[Row]:
    """All rows."""
    become_subreaper()
    gc.collect()
    gc.freeze()  # as every service does once it is loaded: a look through all modules stops the loop for 20 ms
    with accounts() as account, prepared(platform) as settings:
        backend = GVisorBackend.open(settings)
        try:
            rows = await paths(backend, account, sizes)
            rows += await cold_heavy(settings, account, max(2, sizes.starts // 4))
            rows += await many(backend, settings, sizes)
            rows += await rivals(backend, account, sizes, skip)
            return [*rows, row("sandboxes leaked", backend.leaked, "sandboxes", 0, least=False)]
        finally:
            await backend.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="What the sandbox costs.")
    parser.add_argument("--small", action="store_true", help="a few of everything instead of minutes")
    parser.add_argument("--platform", default="", help="systrap, ptrace or kvm instead of the default")
    parser.add_argument("--density", type=int, metavar="N", help="start so many idle sandboxes at once")
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="docker, runc or bwrap; repeatable"
    )
    parser.add_argument("--results", type=Path, default=Path("results/bench-sandbox.json"), metavar="FILE")
    arguments = parser.parse_args()
    log.setup("bench", level="error")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sizes = SMALL if arguments.small else FULL
    sizes = msgspec.structs.replace(sizes, density=arguments.density or sizes.density)
    rows = anyio.run(measure, sizes, arguments.platform, arguments.without, backend_options={"use_uvloop": True})
    width = max(len(each.measure) for each in rows)
    for each in rows:
        value = "-" if each.value is None else f"{each.value:g}"
        print(f"{each.measure:{width}}  {value:>10} {each.unit:12} {each.target:10} {HOLDS[each.holds]}")
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
