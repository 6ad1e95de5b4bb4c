"""The command line of the load test."""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
from load.catalogue import ALL, CHAOS, Entry, Known
from load.costs import costs_of
from load.drive import Result, run
from load.elsewhere import InUse
from load.figures import rows as rows_of
from load.figures import text
from load.page import page
from rig.latency import parse

from tiltyard.cli.models import prepare
from tiltyard.cli.report import Row
from tiltyard.kit import log
from tiltyard.kit.settings import DataSettings

CHAOS_ROLLOUTS = 4000
CHAOS_LIMIT_S = 600
MAX_SCALE = 100.0


def parser() -> argparse.ArgumentParser:
    names = ", ".join((*ALL, CHAOS))
    top = argparse.ArgumentParser(prog="load", description="What the whole system carries.")
    top.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {names}; default: all, in this order")
    top.add_argument("--scale", type=_scale, default=1.0, help="share of the full number of rollouts (default 1)")
    top.add_argument(
        "--latency", type=_latency, metavar="KIND:NUMBERS", help="of the engine, in place of the scenario's"
    )
    top.add_argument(
        "--servers", default="", metavar="URL", help="a bus elsewhere; default: one of our own on loopback"
    )
    top.add_argument("--strict", action="store_true", help="a missed target is a failure")
    top.add_argument("--results", type=Path, default=Path("results/load.json"), metavar="FILE")
    return top


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_SCALE:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0, at most {MAX_SCALE:g}")
    return value


def _latency(text: str) -> str:
    try:
        return str(parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def scaled(entry: Entry, scale: float, latency: str | None) -> Entry:
    """The entry at another size."""
    scenario = entry.scenario
    groups = max(2, round(scenario.groups * min(1.0, scale * 4)))
    rollouts = max(2 * groups * scenario.size, round(scenario.rollouts * scale))
    phases = tuple(msgspec.structs.replace(phase, seconds=phase.seconds * scale) for phase in scenario.phases)
    limit_s = scenario.limit_s * max(1.0, scale)
    scenario = dataclasses.replace(
        scenario,
        rollouts=rollouts,
        groups=groups,
        phases=phases,
        latency=latency or scenario.latency,
        limit_s=limit_s,
    )
    bare = round(entry.bare * scale) // scenario.size * scenario.size
    return dataclasses.replace(entry, scenario=scenario, bare=bare)


def one(entry: Entry, servers: str) -> Result:
    """Run one scenario in a directory of its own, which is kept only when it fails."""
    tiny = prepare("tiny", DataSettings().cache_path)
    root = Path(tempfile.mkdtemp(prefix="tiltyard-load-"))
    with ExitStack() as failed:
        failed.callback(print, f"load: {entry.scenario.name} failed; logs are kept in {root}", file=sys.stderr)
        try:
            result = anyio.run(_run, entry, root, tiny, servers, backend_options={"use_uvloop": True})
        except (InUse, KeyboardInterrupt):
            failed.pop_all()
            shutil.rmtree(root)
            raise
        failed.pop_all()
    shutil.rmtree(root)
    return result


async def _run(entry: Entry, root: Path, tiny: Path, servers: str) -> Result:
    return await run(entry.scenario, root, tiny, servers, bare=entry.bare, after=entry.after)


def chaos(scale: float) -> list[Row]:
    """The chaos test as one more scenario."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-load-") as folder:
        results = Path(folder) / "chaos.json"
        program = str(Path(__file__).parents[1] / CHAOS)
        rollouts = max(300, round(CHAOS_ROLLOUTS * scale))
        argv = [sys.executable, program, "--rollouts", str(rollouts), "--results", str(results)]
        kills = ["--server-kills", "1", "--kill-every", "1", "--lease", "5"] if scale < 1 else []
        subprocess.run([*argv, *kills], stdout=sys.stderr, check=False, timeout=CHAOS_LIMIT_S * max(1.0, scale))
        found = msgspec.json.decode(results.read_bytes(), type=list[Row])
    return [msgspec.structs.replace(row, measure=f"{CHAOS}: {row.measure}") for row in found]


class Session:
    """What one command has found so far."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.known = Known()
        self.rows: list[Row] = []
        self.results: list[Result] = []

    def take(self, name: str) -> None:
        """Run one scenario and show it."""
        if name == CHAOS:
            print(f"{CHAOS}: services and the server are killed meanwhile", file=sys.stderr, flush=True)
            found = chaos(self.given.scale)
        else:
            entry = scaled(ALL[name](self.known), self.given.scale, self.given.latency)
            print(f"{name}: {entry.scenario.title}", file=sys.stderr, flush=True)
            self.results.append(one(entry, self.given.servers))
            found = rows_of(self.results[-1], entry.targets)
            self.known.costs = costs_of(self.results) or self.known.costs
        print(text(found), flush=True)
        self.rows += found

    def write(self) -> None:
        """The rows, the page beside them, and the costs where both loads for them were run."""
        path: Path = self.given.results
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_json(self.rows))
        path.with_suffix(".html").write_text(page(self.results, self.rows))
        if self.known.costs is not None:
            path.with_name("costs.json").write_bytes(_json(self.known.costs))
        print(f"rows: {path}; charts: {path.with_suffix('.html')}", file=sys.stderr)

    def status(self) -> int:
        """1 when something was lost, or a target was missed and that matters."""
        missed = [row for row in self.rows if row.holds is False]
        return int(any(self.given.strict or "lost" in row.measure for row in missed))


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def unreachable(url: str) -> str:
    """Why nobody can be reached there; empty when somebody can."""
    try:
        found = urlsplit(url if "//" in url else f"nats://{url}")
        socket.create_connection((found.hostname or "", found.port or 4222), timeout=5).close()
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit status."""
    given = parser().parse_args(argv)
    unknown = [name for name in given.scenarios if name not in (*ALL, CHAOS)]
    if unknown:
        print(f"load: no scenario {unknown[0]!r}; there are {', '.join((*ALL, CHAOS))}", file=sys.stderr)
        return 2
    log.setup("load", level="error")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.servers and (why := unreachable(given.servers)):
        print(f"load: {given.servers}: {why}", file=sys.stderr)
        return 2
    session = Session(given)
    try:
        for name in given.scenarios or (*ALL, *(() if given.servers else (CHAOS,))):
            session.take(name)
    except InUse as error:
        print(f"load: {given.servers}: {error}: the services of a load would take its work", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("load: stopped; nothing is written", file=sys.stderr)
        return 130
    load = os.getloadavg()[0]
    session.rows.append(Row(measure=f"load of the machine at the end ({os.cpu_count()} cores)", value=load, unit=""))
    session.write()
    return session.status()
