"""The command line of the load test."""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
import msgspec
from load.catalogue import ALL, Entry
from load.costs import costs_of
from load.drive import Result, run
from load.figures import rows as rows_of
from load.figures import text
from load.page import page

from tiltyard.cli.models import prepare
from tiltyard.cli.report import Row
from tiltyard.kit import log
from tiltyard.kit.settings import DataSettings


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="load", description="What the whole system carries.")
    top.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(ALL)}; default: all")
    top.add_argument("--scale", type=float, default=1.0, help="share of the full number of rollouts (default 1)")
    top.add_argument("--latency", metavar="KIND:NUMBERS", help="of the engine, in place of the scenario's")
    top.add_argument(
        "--servers", default="", metavar="URL", help="a bus elsewhere; default: one of our own on loopback"
    )
    top.add_argument("--strict", action="store_true", help="a missed target is a failure")
    top.add_argument("--results", type=Path, default=Path("results/load.json"), metavar="FILE")
    return top


def scaled(entry: Entry, scale: float, latency: str | None) -> Entry:
    """The entry at another size."""
    scenario = entry.scenario
    groups = max(2, round(scenario.groups * min(1.0, scale * 4)))
    rollouts = max(2 * groups * scenario.size, round(scenario.rollouts * scale))
    phases = tuple(msgspec.structs.replace(phase, seconds=phase.seconds * scale) for phase in scenario.phases)
    scenario = dataclasses.replace(
        scenario, rollouts=rollouts, groups=groups, phases=phases, latency=latency or scenario.latency
    )
    bare = round(entry.bare * scale) // scenario.size * scenario.size
    return dataclasses.replace(entry, scenario=scenario, bare=bare)


def one(entry: Entry, servers: str) -> Result:
    """Run one scenario in a directory of its own, which is kept only when it fails."""
    tiny = prepare("tiny", DataSettings().cache_path)
    root = Path(tempfile.mkdtemp(prefix="tiltyard-load-"))
    with ExitStack() as failed:
        failed.callback(print, f"load: {entry.scenario.name} failed; logs are kept in {root}", file=sys.stderr)
        result = anyio.run(_run, entry, root, tiny, servers, backend_options={"use_uvloop": True})
        failed.pop_all()
    shutil.rmtree(root)
    return result


async def _run(entry: Entry, root: Path, tiny: Path, servers: str) -> Result:
    return await run(entry.scenario, root, tiny, servers, bare=entry.bare, after=entry.after)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit status."""
    given = parser().parse_args(argv)
    unknown = [name for name in given.scenarios if name not in ALL]
    if unknown:
        print(f"load: no scenario {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    log.setup("load", level="error")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows: list[Row] = []
    results: list[Result] = []
    for name in given.scenarios or ALL:
        entry = scaled(ALL[name](), given.scale, given.latency)
        print(f"{name}: {entry.scenario.title}", file=sys.stderr, flush=True)
        results.append(one(entry, given.servers))
        found = rows_of(results[-1], entry.targets)
        print(text(found), flush=True)
        rows += found
    rows.append(
        Row(measure=f"load of the machine at the end ({os.cpu_count()} cores)", value=os.getloadavg()[0], unit="")
    )
    write(given.results, rows, results)
    return status(rows, strict=given.strict)


def write(path: Path, rows: Sequence[Row], results: Sequence[Result]) -> None:
    """The rows, and the page beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    path.with_suffix(".html").write_text(page(results, rows))
    costs = costs_of(results)
    if costs is not None:
        path.with_name("costs.json").write_bytes(msgspec.json.format(msgspec.json.encode(costs), indent=2) + b"\n")
    print(f"rows: {path}; charts: {path.with_suffix('.html')}", file=sys.stderr)


def status(rows: Sequence[Row], *, strict: bool) -> int:
    """1 when something was lost, or a target was missed and that matters."""
    missed = [row for row in rows if row.holds is False]
    return int(any(strict or "lost" in row.measure for row in missed))
