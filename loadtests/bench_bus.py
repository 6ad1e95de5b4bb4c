"""What the bus library costs: `python loadtests/bench_bus.py [--small] [--results FILE]`.

Prints a table and writes rows {measure, value, unit, target, holds}. Figures are CPU time of this process, or ratios
between two clients of the same server taken in turn in the same run, and medians of rounds: so they bear a machine
that is busy with other things. Waits are wall time and are the machine's as much as the library's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).parent))

from bus_scenarios import fairness, hop_cpu, idle_hop, shared_hop_cpu
from raw_client import BATCH, RawConsumer

from tiltyard.cli.report import Row
from tiltyard.kit import log
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import LOG, free_port, launch_server, wait_ready
from tiltyard.kit.provision import consumer_config, provision
from tiltyard.kit.pull import Puller
from tiltyard.kit.service import spare_modules
from tiltyard_proto.topology import GENERATE

BODY = b"x" * 1024
HOLDS = {True: "yes", False: "NO", None: ""}


class Sizes(msgspec.Struct, frozen=True):
    """How much of everything."""

    rounds: int
    messages: int
    hops: int
    pings: int
    flood: int
    flood_s: float
    domains: int


FULL = Sizes(rounds=9, messages=256 * 80, hops=10_000, pings=400, flood=4000, flood_s=5.0, domains=300)
SMALL = Sizes(rounds=3, messages=256 * 12, hops=1000, pings=60, flood=600, flood_s=1.0, domains=40)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[Bus, int, int]]:
    """A fresh server with a provisioned bus on it, its port and its process id."""
    with tempfile.TemporaryDirectory(prefix="bench-bus-") as directory:
        port = free_port()
        store = Path(directory) / "nats"
        process = launch_server(store, "127.0.0.1", port, tied_to_us=True)  # it ends with us, however we end
        await asyncio.to_thread(wait_ready, process, "127.0.0.1", port, store / LOG)
        bus = await Bus.connect(f"nats://127.0.0.1:{port}", BlobStore(Path(directory) / "blobs"), "bench")
        try:
            await provision(bus)
            yield bus, port, process.pid
        finally:
            await bus.close()
            process.kill()
            process.wait()


async def publish(bus: Bus, name: str, count: int, window: int = 512) -> float:
    """Store `count` messages with `window` in flight; CPU seconds of this process."""
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            await bus.js.publish(f"tilt.v1.generate.{name}.{number}", BODY, {"Tilt-Schema": "rollout/1"}, expect=0)

    before = time.process_time()
    await asyncio.gather(*(one_after_another() for _ in range(window)))
    return time.process_time() - before


async def _consumer(bus: Bus, name: str, filter_name: str) -> None:
    config = consumer_config(GENERATE) | {"durable_name": name, "filter_subject": f"tilt.v1.generate.{filter_name}.>"}
    payload = {"stream_name": GENERATE.stream, "config": config}
    await bus.js.api(f"CONSUMER.DURABLE.CREATE.{GENERATE.stream}.{name}", payload)


async def consume(bus: Bus, name: str, count: int) -> None:
    """Take and acknowledge with the library."""
    puller = Puller(bus.js, GENERATE.stream, name)
    await puller.start()
    for _ in range(count):
        while (delivery := puller.take(2 * BATCH) or await puller.next(2 * BATCH)) is None:
            pass
        bus.say(delivery, b"+ACK")
    await bus.client.flush(timeout=5)
    await puller.stop()


class Share(msgspec.Struct, frozen=True):
    """Consume and acknowledge, beside the raw client."""

    wall: float
    """Rate as a share of the raw client's."""
    cpu: float
    """The same per CPU second of client and server together: what counts when they share cores."""
    client_us: float
    """CPU microseconds of the client for a message."""
    raw_us: float


def server_cpu(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def share_of_raw(bus: Bus, port: int, pid: int, sizes: Sizes) -> Share:
    """The library and the raw client in turn, each round on consumers of their own."""
    await publish(bus, "consume", sizes.messages)
    wall: dict[str, list[float]] = {"raw": [], "own": []}
    client: dict[str, list[float]] = {"raw": [], "own": []}
    total: dict[str, list[float]] = {"raw": [], "own": []}
    for number in range(sizes.rounds):
        for who in ("raw", "own") if number % 2 else ("own", "raw"):
            name = f"{who}_{number}"
            await _consumer(bus, name, "consume")
            start, cpu, served = time.perf_counter(), time.process_time(), server_cpu(pid)
            if who == "raw":
                raw = RawConsumer(port, GENERATE.stream, name)
                assert raw.consume(sizes.messages) == sizes.messages * len(BODY)
                raw.close()
            else:
                await consume(bus, name, sizes.messages)
            wall[who].append(time.perf_counter() - start)
            client[who].append(time.process_time() - cpu)
            total[who].append(client[who][-1] + server_cpu(pid) - served)
            await bus.js.api(f"CONSUMER.DELETE.{GENERATE.stream}.{name}")
    own_us, raw_us = (statistics.median(client[who]) / sizes.messages * 1e6 for who in ("own", "raw"))
    return Share(_share(wall), _share(total), own_us, raw_us)


def _share(seconds: dict[str, list[float]]) -> float:
    """The median of the rounds' shares: the two clients of a round met the same machine."""
    return statistics.median(raw / own for raw, own in zip(seconds["raw"], seconds["own"], strict=True))


def row(measure: str, value: float, unit: str, target: float, *, least: bool) -> Row:
    """One row; `least`: the target is the least that holds, otherwise the most."""
    holds = value >= target if least else value <= target
    return Row(
        measure=measure, value=round(value, 3), unit=unit, target=f"{'>=' if least else '<='} {target:g}", holds=holds
    )


def note(measure: str, value: float, unit: str) -> Row:
    """A figure without a target, to read the others by."""
    return Row(measure=measure, value=round(value, 3), unit=unit)


async def hops(sizes: Sizes) -> list[Row]:
    """What a hop costs, client and server."""
    async with server() as (bus, _, pid):
        cost = await hop_cpu(bus, sizes.hops, sizes.rounds, lambda: server_cpu(pid))
    async with server() as (bus, _, _):
        shared = await shared_hop_cpu(bus, sizes.hops)
    return [
        row("full hop (pull, publish, acknowledge), client CPU", cost.library, "us", 80, least=False),
        row("full hop through a stage's handler, client CPU", cost.served, "us", 80, least=False),
        note("the same, server CPU", cost.server, "us"),
        note("the same where domains share the stage, client CPU", shared, "us"),
    ]


async def measure(sizes: Sizes) -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    async with server() as (bus, port, pid):
        await publish(bus, "warm", 1000)
        costs = [await publish(bus, f"p{number}", sizes.messages) for number in range(sizes.rounds)]
        rate = sizes.messages / statistics.median(costs)
        rows.append(row("confirmed publishes, 1 KiB, window 512", rate, "per client core-second", 40_000, least=True))
        share = await share_of_raw(bus, port, pid, sizes)
        what = "consume and acknowledge 1 KiB"
        rows.append(row(f"{what}, rate, of a raw socket client's", share.wall, "share", 0.8, least=True))
        rows.append(note(f"{what}, of the raw client's, by CPU time with the server's", share.cpu, "share"))
        rows.append(row(f"{what}, client CPU", share.client_us, "us", 19, least=False))
        rows.append(note(f"{what}, client CPU of the raw client", share.raw_us, "us"))
    rows += await hops(sizes)
    async with server() as (bus, _, _):
        idle = await idle_hop(bus, sizes.pings)
        rows.append(row("added latency of a hop, idle, p50", idle.p50_s * 1e3, "ms", 0.8, least=False))
        rows.append(row("added latency of a hop, idle, p99", idle.p99_s * 1e3, "ms", 5, least=False))
        rows.append(note("meanwhile, this machine's delay of a 5 ms timer, p99", idle.timer_p99_s * 1e3, "ms"))
    fair = await fairness(server, sizes.domains, sizes.flood, sizes.flood_s, rounds=min(3, sizes.rounds))
    rows.append(row("one domain floods: share of the others' tasks served", fair.served, "share", 1, least=True))
    rows.append(row("one domain floods: wait of the others, p99", fair.p99_s * 1e3, "ms", 100, least=False))
    rows.append(note("meanwhile, this machine's delay of a 20 ms timer, p99", fair.timer_p99_s * 1e3, "ms"))
    rows.append(row("fair shares: throughput against one plain queue", fair.throughput, "share", 0.9, least=True))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="What the bus library costs.")
    parser.add_argument("--small", action="store_true", help="seconds instead of a minute or two")
    parser.add_argument("--results", type=Path, default=Path("results/bench-bus.json"), metavar="FILE")
    arguments = parser.parse_args()
    log.setup("bench", level="error")
    spare_modules()  # as every service does
    rows = uvloop.run(measure(SMALL if arguments.small else FULL))
    width = max(len(each.measure) for each in rows)
    for each in rows:
        print(f"{each.measure:{width}}  {each.value:>12g} {each.unit:24} {each.target:10} {HOLDS[each.holds]}")
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
