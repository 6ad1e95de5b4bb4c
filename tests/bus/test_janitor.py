"""The janitor over a real server: what goes and what stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support import build
from support.services import stored
from support.waiting import until

from tiltyard.kit.bus import INLINE_LIMIT, Bus, Out
from tiltyard.kit.depth import depth
from tiltyard.kit.janitor import collect, marked, trim
from tiltyard.kit.serve import Reject, Server
from tiltyard_proto.messages import Rollout
from tiltyard_proto.outcomes import Outcome
from tiltyard_proto.topology import DLQ, GENERATE, TASK, VERIFY

pytestmark = pytest.mark.anyio
LATER = 1e6


async def nothing(_: Rollout) -> Sequence[Out]:
    return []


async def work_off(bus: Bus, *, fair: bool, handler: object = nothing) -> None:
    """Serve stage generate until nothing waits."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Server(bus, GENERATE, handler, slots=4, bury=None, fair=fair).run, stop)  # type: ignore[arg-type]
        with anyio.fail_after(20):
            while not (work := await depth(bus, GENERATE)).consumers or work.waiting or work.in_flight:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        stop.set()


@pytest.mark.parametrize("fair", [False, True], ids=["one_queue", "fair"])
async def test_finished_messages_go_when_they_are_old(bus: Bus, fair: bool) -> None:
    """What is acknowledged and old is removed; what is young, or waits, stays."""
    for member in range(5):
        await bus.publish(GENERATE, build.rollout(member=member))
    await work_off(bus, fair=fair)
    assert await trim(bus, GENERATE, keep_s=3600) == 0
    assert await trim(bus, GENERATE, keep_s=1, now=time.time() + LATER) == 5
    for member in range(5, 8):
        await bus.publish(GENERATE, build.rollout(member=member))
    assert await trim(bus, GENERATE, keep_s=1, now=time.time() + LATER) == 0
    assert len(await stored(bus, GENERATE)) == 3


async def test_a_domain_that_nobody_serves_loses_nothing(bus: Bus) -> None:
    """When one domain's messages are done and another's wait, only the first domain's are removed."""
    await bus.publish(GENERATE, build.rollout(build.task("a")))
    await work_off(bus, fair=True)
    await bus.publish(GENERATE, build.rollout(build.task("b")))
    assert await trim(bus, GENERATE, keep_s=1, now=time.time() + LATER) == 1
    assert [subject.split(".")[3] for subject in await stored(bus, GENERATE)] == ["b"]


async def test_only_as_much_as_is_old_enough(bus: Bus) -> None:
    """The age of each message decides: the boundary lies between two messages, not between two rounds."""
    for member in range(4):
        await bus.publish(GENERATE, build.rollout(member=member))
    await anyio.sleep(0.6)
    middle = time.time()
    for member in range(4, 6):
        await bus.publish(GENERATE, build.rollout(member=member))
    await work_off(bus, fair=False)
    assert await trim(bus, GENERATE, keep_s=100, now=middle - 0.3 + 100) == 4
    assert len(await stored(bus, GENERATE)) == 2


def age(bus: Bus) -> None:
    """Make all blobs a week old."""
    for path in bus.blobs.root.glob("??/*"):
        os.utime(path, (time.time() - 7 * 86400,) * 2)


async def test_orphaned_blobs_are_collected(bus: Bus) -> None:
    """A blob that nothing refers to goes once it is old; claims, workspaces and blobs of dead letters stay."""
    big = build.task(text="x" * (2 * INLINE_LIMIT))
    await bus.publish(TASK, big)
    workspace, inner, orphan, young = (bus.blobs.put(name) for name in (b"workspace", b"inner", b"orphan", b"young"))
    await bus.publish(VERIFY, build.rollout(turns=(build.turn(workspace=workspace),), outcome=Outcome.FINISHED))
    await bus.publish(
        VERIFY,
        build.rollout(
            member=1, turns=(build.turn(workspace=inner, text="y" * 2 * INLINE_LIMIT),), outcome=Outcome.FINISHED
        ),
    )

    async def reject(_: Rollout) -> Sequence[Out]:
        raise Reject("validation", "no")

    dead = bus.blobs.put(b"dead")
    await bus.publish(GENERATE, build.rollout(turns=(build.turn(workspace=dead, text="z" * 2 * INLINE_LIMIT),)))
    await work_off(bus, fair=False, handler=reject)
    await bus.js.api(f"STREAM.PURGE.{GENERATE.stream}")
    assert len(await stored(bus, DLQ)) == 1
    age(bus)
    bus.blobs.put(b"young")
    keep = await marked(bus)
    assert {workspace.sha256, inner.sha256, dead.sha256} <= keep
    assert orphan.sha256 not in keep
    done = await collect(bus, 86400)
    assert (done.removed, done.freed_bytes) == (1, len(b"orphan"))
    assert bus.blobs.peek(orphan.sha256) is None
    for ref in (workspace, inner, dead, young):
        assert bus.blobs.peek(ref.sha256) is not None
    assert await bus.get(TASK, TASK.subject(big)) == big


def write_half(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")


async def test_a_broken_write_is_collected_too(bus: Bus) -> None:
    """The temporary file of a write that was killed goes like an orphan."""
    left = bus.blobs.root / "ab" / ".put-killed"
    write_half(left)
    age(bus)
    assert (await collect(bus, 86400)).removed == 1
    assert not os.path.exists(left)  # noqa: ASYNC240


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_ends_when_told_to(nats_server: Any, bus: Bus, tmp_path: Path, told: signal.Signals) -> None:
    """A janitor ends in good order at a signal, for which a container's first process has no default."""
    sets = [f'bus.servers=["{nats_server.url}"]', f"data.root={tmp_path}", "janitor.every_s=0.05"]
    command = [sys.executable, "-m", "tiltyard.cli.main", "janitor", *(w for each in sets for w in ("--set", each))]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(path for path in sys.path if path)}
    with subprocess.Popen(command, env=environment) as janitor:  # noqa: ASYNC220
        try:
            await until(lambda: signal.SIGTERM in caught(janitor.pid), within_s=20)
            janitor.send_signal(told)
            assert await anyio.to_thread.run_sync(janitor.wait, 20) == 0
        finally:
            janitor.kill()


def caught(pid: int) -> set[int]:
    """Signals that a process has a handler for."""
    (mask,) = re.findall(r"^SigCgt:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return {number for number in range(1, 64) if int(mask, 16) >> (number - 1) & 1}
