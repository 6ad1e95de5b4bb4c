"""Values in the buckets that are no records, and a service that its settings can't start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support import build
from support.services import context, running

from tiltyard.aggregator import app as aggregator
from tiltyard.aggregator.settings import AggregatorSettings
from tiltyard.cli import status
from tiltyard.kit.bus import Bus
from tiltyard.kit.settings import RunSettings
from tiltyard.sampler.backend import BusRegister
from tiltyard_proto import topology
from tiltyard_proto.messages import GroupRecord, Purpose, RunStatus

pytestmark = pytest.mark.anyio
GARBAGE = (b"", b"\xc1", msgspec.msgpack.encode({"type": "group_record"}), b"\x91" * 5000)
RECORD = GroupRecord(
    id="run-t-0", run="run", domain="math.train", task_id="x", template="one", purpose=Purpose.TRAIN, version=0,
    size=2, deadline=9e9, opened=1.0,
)  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_the_register_replaces_what_is_no_record(bus: Bus, garbage: bytes) -> None:
    """A sampler opens its group although something else stands under the group's key, and reads past other garbage."""
    groups = bus.kv(topology.GROUPS_BUCKET)
    for key in (RECORD.id, "run-t-1", "other"):
        await groups.put(key, garbage)
    await bus.kv(topology.RUNS_BUCKET).put("run", garbage)
    register = BusRegister(bus)
    assert await register.status("run") is None
    assert await register.open(RECORD) == RECORD
    assert await register.open(RECORD) == RECORD
    assert await register.records("run") == [RECORD]


async def test_status_shows_what_can_be_read(bus: Bus) -> None:
    """`tiltyard status` passes over values that are no records."""
    for number, garbage in enumerate(GARBAGE):
        await bus.kv(topology.GROUPS_BUCKET).put(f"bad-{number}", garbage)
        await bus.kv(topology.RUNS_BUCKET).put(f"bad-{number}", garbage)
    run = RunStatus(run="run", state="training", started=1.0, updated=1.0)
    await bus.kv(topology.RUNS_BUCKET).put("run", msgspec.msgpack.encode(run))
    assert [row["run"] for row in await status.runs(bus)] == ["run"]


async def test_the_aggregator_goes_on(bus: Bus, tmp_path: Path) -> None:
    """Garbage in the bucket of groups neither ends the aggregator nor keeps a group from closing."""
    groups = bus.kv(topology.GROUPS_BUCKET)
    for number, garbage in enumerate(GARBAGE):
        await groups.put(f"bad-{number}", garbage)
    await groups.put(RECORD.id, msgspec.msgpack.encode(RECORD))
    task = build.task("math.train")
    settings = AggregatorSettings(archive_every_s=0.1, deadline_check_s=0.1)
    async with running(aggregator.start, context("aggregator", bus, RunSettings(name="run"), settings, tmp_path)):
        for member in range(2):
            of = build.rollout(task, member=member, group=RECORD.id)
            await bus.publish(topology.VERDICT, build.verdict(of, float(member)))
        with anyio.fail_after(20):
            async for _, group in bus.follow(topology.GROUP):
                assert group.id == RECORD.id
                break


def test_a_setting_that_only_the_service_can_judge(nats_server: Any) -> None:
    """A verifier kind that is not installed ends the service with status 2 and one line, so nobody tries it again."""
    argv = [sys.executable, "-m", "tiltyard.verifier", "--set", 'verifier.kinds=["nope"]']
    done = subprocess.run(
        [*argv, "--set", f'bus.servers=["{nats_server.url}"]', "--set", "service.log_format=json"],
        capture_output=True, timeout=40, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("tiltyard verifier: [verifier] kinds: verifier kinds ['nope']: ")
    assert "Traceback" not in done.stderr
