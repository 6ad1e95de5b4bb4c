"""Misfortune and malice against the whole system on real parts: it ends with the right result, or says why not."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from support import hostile

from tiltyard.cli.archive import Archive
from tiltyard.cli.up.summary import Summary
from tiltyard.domains import registry
from tiltyard.kit.blobs import BlobStore
from tiltyard.kit.bus import CLAIM, Bus
from tiltyard.policy.tiny import make_random
from tiltyard_proto import topology
from tiltyard_proto.messages import BlobRef

DOMAIN = "code.python.functions"


def wait_for(system: Any, text: str, seconds: float = 90.0) -> None:
    """Until the command has said `text`; fails when it ends before."""
    deadline = time.monotonic() + seconds
    while text not in system.text:
        assert system.process.poll() is None, system.text[-3000:]
        assert time.monotonic() < deadline, system.text[-3000:]
        time.sleep(0.05)


def check_gone(family: list[psutil.Process]) -> None:
    _, left = psutil.wait_procs(family, timeout=10)
    assert not [process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.timeout(240)
def test_killed_and_started_again_it_resumes_and_finishes_once(up: Callable[..., Any]) -> None:
    """SIGKILL of the supervisor leaves no process; started again it goes on where it was; a third start has nothing to
    do, says so and ends."""
    first = up("run.steps=4")
    wait_for(first, "state=training")
    family = psutil.Process(first.process.pid).children(recursive=True)
    first.process.kill()
    first.wait(10)
    check_gone(family)
    second = up("run.steps=4")
    assert second.wait(150) == 0, second.text[-4000:]
    archive = Archive(second.run_path)
    assert [policy["version"] for policy in archive.policies()] == [0, 1, 2, 3, 4]
    assert archive.totals()["ungraded"] == 0
    check_sessions(second.run_path)
    third = up("run.steps=4")
    assert third.wait(60) == 0
    assert "had finished already: nothing to do; --fresh starts it anew" in third.text
    assert "service_starts" not in third.text.split("had finished already")[-1]
    check_sessions(second.run_path)


def check_sessions(run_path: Path) -> None:
    """The summary covers the session that was killed and the one that finished."""
    found = msgspec.json.decode((run_path / "summary.json").read_bytes(), type=Summary)
    killed, finished = found.sessions
    assert (killed.state, finished.state, found.state) == ("killed", "finished", "finished")
    assert min(killed.wall_s, killed.cpu_s, finished.wall_s, finished.cpu_s) > 1
    assert found.wall_s == pytest.approx(killed.wall_s + finished.wall_s, abs=0.01)
    assert found.cpu_s == pytest.approx(killed.cpu_s + finished.cpu_s, abs=0.01)
    assert found.started == killed.started < killed.ended < finished.started < finished.ended == found.ended


@pytest.mark.timeout(100)
@pytest.mark.parametrize(("moment", "number"), [("sandbox checked", signal.SIGINT), ("bus:", signal.SIGTERM)])
def test_interrupted_before_anything_runs(up: Callable[..., Any], moment: str, number: signal.Signals) -> None:
    """An interrupt while it prepares ends it with no process left and no traceback."""
    system = up()
    wait_for(system, moment)
    family = psutil.Process(system.process.pid).children(recursive=True)
    system.process.send_signal(number)
    assert system.wait(60) in (0, 130)
    check_gone(family)
    assert "Traceback" not in system.text


@pytest.mark.timeout(120)
def test_a_second_interrupt_stops_at_once(up: Callable[..., Any]) -> None:
    """Whoever does not want to wait for the drain interrupts again."""
    system = up("run.steps=50")
    wait_for(system, "state=evaluating")
    family = psutil.Process(system.process.pid).children(recursive=True)
    system.process.send_signal(signal.SIGINT)
    wait_for(system, "draining; once more")
    system.process.send_signal(signal.SIGINT)
    assert system.wait(20) == 0
    assert "stopping at once" in system.text
    check_gone(family)


async def send_everything_bad(root: Path, port: int) -> int:
    """Bad tasks and garbage on every stream and bucket; the number of bad tasks."""
    bus = await Bus.connect(f"nats://127.0.0.1:{port}", BlobStore(root / "blobs"), "evil")
    bad = list(hostile.tasks(registry.load(DOMAIN).tasks("train", 1, 99)[0]))
    try:
        for task in bad:
            assert await bus.publish(topology.TASK, task, patience_s=10)
        outside = msgspec.msgpack.encode(BlobRef(uri="x", size=3, sha256="../../../../etc/passwd"))
        for stage in topology.STAGES:
            subject = f"{topology.PREFIX}.{stage.name}.code__python__functions"
            for name, body in hostile.GARBAGE.items():
                await bus.js.publish(f"{subject}.evil{name}", body, {})
            await bus.js.publish(f"{subject}.claim", outside, {CLAIM: "1"})
        for bucket in topology.BUCKETS:
            await bus.kv(bucket).put("tiny-t-20", b"\xc1garbage")
            await bus.kv(bucket).put("other", b"\xc1garbage")
    finally:
        await bus.close()
    return len(bad)


@pytest.mark.timeout(300)
def test_bad_tasks_and_garbage_end_as_outcomes_and_dead_letters(up: Callable[..., Any]) -> None:
    """Whatever somebody puts on the bus, the run finishes, good groups train, every bad task that was tried has a named
    outcome for every rollout, and no service falls over."""
    system = up(
        f'run.train={{"{DOMAIN}"={{tasks=4}}}}', "run.evaluate={}", "run.steps=10", "run.group_deadline_s=90",
    )  # fmt: skip
    wait_for(system, "tasks: ")
    anyio.run(send_everything_bad, system.root, system.bus_port)
    assert system.wait(240) == 0, system.text[-4000:]
    assert msgspec.json.decode((system.run_path / "summary.json").read_bytes())["restarts"] == {}
    archive = Archive(system.run_path)
    tried = dict(
        archive.rows("SELECT template, list(DISTINCT outcome) FROM rollouts WHERE template LIKE 'bad_%' GROUP BY 1")
    )
    assert len(tried) >= 12
    expected = {
        "bad_huge": {"token_limit"}, "bad_long": {"token_limit"}, "bad_no_prompt": {"poison"},
        "bad_data": {"task_broken"},
        "bad_kind": {"task_broken"}, "bad_interface": {"poison"}, "bad_temperature": {"poison"}, "bad_wall": {"late"},
    }  # fmt: skip
    for template, outcomes in expected.items():
        assert set(tried.get(template, outcomes)) == outcomes
    assert archive.rows("SELECT count(*) FROM rollouts WHERE template NOT LIKE 'bad_%' AND score IS NOT NULL")[0][0] > 0
    log = (system.run_path / "up.log").read_text()
    assert log.count('"event": "dead_letter"') >= 4 * len(hostile.GARBAGE)
    assert "Traceback" not in log


@pytest.mark.timeout(200)
def test_a_model_that_knows_nothing(up: Callable[..., Any], tmp_path: Path) -> None:
    """Random weights, so that nothing is ever right and every group is without signal: the run still ends."""
    system = up(f'run.model="{make_random(tmp_path / "random")}"')
    assert system.wait(180) == 0, system.text[-4000:]
    assert Archive(system.run_path).totals()["ungraded"] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 MiB where the data directory will be."""
    place = tmp_path / "data"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.timeout(280)
def test_a_full_disk_is_said_and_survived(small_disk: Path, up: Callable[..., Any]) -> None:
    """When the disk fills up in the middle it is said, and when there is room again the run goes on and finishes with
    every rollout accounted for."""
    system = up("run.steps=6", "supervisor.min_free_gib=0", "run.group_deadline_s=240")
    wait_for(system, "policy_published version=1")
    fill = small_disk / "fill"
    try:
        with fill.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError:
        pass
    wait_for(system, "the disk is full")
    wait_for(system, "No space left on device")
    fill.unlink()
    wait_for(system, "there is room again")
    assert system.wait(180) == 0, system.text[-4000:]
    archive = Archive(system.run_path)
    assert [policy["version"] for policy in archive.policies()] == list(range(7))
    assert archive.totals()["ungraded"] == 0
