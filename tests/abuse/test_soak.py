"""A short soak, and what dead sandboxes leave in the process table of the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from support.sandbox_host import traces

from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import GROUP
from tiltyard.sandbox.reaper import _children, reap_adopted
from tiltyard_proto.messages import Command

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(180)
def test_sixty_sessions(tmp_path: Path) -> None:
    """Sessions at concurrency 4 add no open file, leave no child and no sandbox, and hardly any memory."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    results = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "loadtests/soak_sandbox.py"), "-n", "60", "--results", str(results)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert results.exists(), done.stderr
    rows = {row["measure"]: row for row in json.loads(results.read_text())}
    assert rows["sessions"]["value"] == 60
    assert rows["memory added by a session"]["value"] < 200  # caches still grow so early; the long soak wants 2
    for measure in ("open files added", "children left", "sandboxes leaked"):
        assert rows[measure]["holds"], rows[measure]


async def test_a_sandbox_that_died_by_itself_leaves_no_zombie(gvisor: GVisorBackend) -> None:
    """What its processes left with us when its sentry was killed is reaped with it or by the next reconciliation."""
    reap_adopted()
    before = set(_children())
    sandbox = await gvisor.start(Want())
    await sandbox.run(Command(argv=("sh", "-c", "sleep 60 & true")))
    pids = gvisor.tree.group(f"{GROUP}/{gvisor.instance.id}/{sandbox.id}").pids()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with anyio.fail_after(10):
        while any(_stat(pid) not in ("", "Z") for pid in pids):  # noqa: ASYNC110
            await anyio.sleep(0.01)
    await sandbox.kill()
    await gvisor.reconcile()
    with anyio.fail_after(10):
        while set(_children()) - before:
            await anyio.sleep(0.05)
            await gvisor.reconcile()


async def test_strays_are_removed_and_the_living_are_not(gvisor: GVisorBackend) -> None:
    """A control group with a process in it, and a directory, that no live sandbox has are removed and counted."""
    living = await gvisor.start(Want())
    stray = gvisor.tree.group(gvisor.instance.group_name("s77777"))
    for directory in stray.directories:
        directory.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "600"])  # noqa: ASYNC220
    for entry in stray.entries:
        entry.write_text(str(process.pid))
    (gvisor.instance.path / "s88888").mkdir()
    try:
        assert await gvisor.reconcile() == 2
        assert await gvisor.reconcile() == 0
        assert process.wait(5) == -signal.SIGKILL
        assert traces(gvisor, "s77777") == traces(gvisor, "s88888") == []
        assert (await living.run(Command(argv=("echo", "alive")))).stdout == b"alive\n"
        assert gvisor.leaked == 0
    finally:
        process.kill()
        process.wait()
        await living.kill()


def _stat(pid: int) -> str:
    """State letter of a process; '' when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
