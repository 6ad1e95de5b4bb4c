"""Poison among good messages, and the replay of what became of it, at full size on a real server.

`PYTHONPATH=tests python loadtests/poison.py [GOOD] [POISON]` prints a table and writes `results/poison.json`: rows
{measure, value, unit, target, holds}.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import structlog
from support import letters
from support.flood import Found, flood
from support.services import stored

from tiltyard.cli.report import Row
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import Bus
from tiltyard.kit.deadletters import Entry, Filter, Letters
from tiltyard.kit.embedded import free_port, start_server, stop_server
from tiltyard.kit.provision import provision
from tiltyard.kit.replay import Replayer
from tiltyard.kit.settle import Settler
from tiltyard_proto.messages import Rollout
from tiltyard_proto.topology import GENERATE, VERIFY

SENDERS = 16


def row(measure: str, value: float, unit: str, target: str, holds: bool | None) -> Row:
    return Row(measure=measure, value=value, unit=unit, target=target, holds=holds)


def flood_rows(found: Found, good: int, bad: int) -> list[Row]:
    """What the flood showed."""
    right = bad - len(found.wrong)
    return [
        row("poison: kinds", found.kinds, "kinds", ">= 20", found.kinds >= 20),
        row("poison: dead letters", found.letters, "letters", f"= {bad}", found.letters == bad),
        row("poison: dead letters of the right class", right, "letters", f"= {bad}", right == bad),
        row("poison: good messages handled", found.handled, "messages", f"= {good}", found.handled == good),
        row("poison: good messages handled twice", found.handled_twice, "messages", "= 0", found.handled_twice == 0),
        row("poison: time to serve all", found.seconds, "s", "", None),
    ]


async def replay_all(bus: Bus, entries: Sequence[Entry]) -> tuple[list[bool], list[Entry]]:
    """Replay, serve with a handler that works, settle; who was sent, and how all letters stand."""
    sent: list[bool] = []
    replayer = Replayer(Letters(bus, "load test"))

    async def send(some: Sequence[Entry]) -> None:
        for entry in some:
            sent.append(await replayer.replay(entry))

    async def handler(rollout: Rollout) -> Sequence[tuple[object, object]]:
        return [(VERIFY, letters.done(rollout))]

    async with letters.serving(bus, handler, bury=letters.bury, slots=64):
        async with anyio.create_task_group() as tasks:
            for start in range(SENDERS):
                tasks.start_soon(send, entries[start::SENDERS])
        await letters.until_idle(bus, within_s=300)
    return sent, await Settler(Letters(bus, "load test")).settle()


async def replay_rows(bus: Bus, count: int) -> list[Row]:
    """Replay `count` letters twice: those of a handler that has been mended, and those that stay poison."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(letters.make_letters, bus, count)
    entries = await Letters(bus).all(Filter(reason="validation", domain="math.test", state="open"))
    mended = [entry for entry in entries if entry.letter.detail == letters.REFUSED]
    started = time.monotonic()
    sent, now = await replay_all(bus, mended)
    seconds = time.monotonic() - started
    ids = {entry.id for entry in mended}
    ends = Counter(entry.state.result for entry in now if entry.id in ids and entry.state.state == "resolved")
    accounted = ends["processed"] + ends["late"]
    before = (await stored(bus, GENERATE), await stored(bus, VERIFY))
    again, after = await replay_all(bus, [entry for entry in now if entry.id in ids])
    changed = sum(again) + (after != now) + (before != (await stored(bus, GENERATE), await stored(bus, VERIFY)))
    return [
        row("replay: letters sent", sum(sent), "letters", f"= {count}", sum(sent) == count),
        row("replay: processed or late", accounted, "letters", f"= {count}", accounted == count),
        row("replay: reported late", ends["late"], "letters", "", None),
        row("replay: changes by a second replay", changed, "changes", "= 0", changed == 0),
        row("replay: rate, sent and handled", count / seconds, "letters/s", "", None),
    ]


async def measure(good: int, bad: int) -> list[Row]:
    """All rows, on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="poison-") as folder:
        port = free_port()
        process = await anyio.to_thread.run_sync(lambda: start_server(Path(folder) / "nats", port=port))
        try:
            bus = await Bus.connect(f"nats://127.0.0.1:{port}", BlobStore(Path(folder) / "blobs"), "loadtest")
            await provision(bus)
            rows = flood_rows(await flood(bus, good=good, poisoned=bad, seed=7, within_s=600), good, bad)
            rows += await replay_rows(bus, bad)
            await bus.close()
        finally:
            await stop_server(process)
    return rows


def main(good: int = 10_000, bad: int = 1_000) -> int:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    rows = anyio.run(measure, good, bad, backend_options={"use_uvloop": True})
    for each in rows:
        held = "" if each.holds is None else "holds" if each.holds else "FAILS"
        print(f"{each.measure:45} {each.value:10.1f} {each.unit:10} {each.target:10} {held}")
    target = Path("results/poison.json")
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return 0 if all(each.holds is not False for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
