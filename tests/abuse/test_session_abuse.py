"""Limits of sessions that go on: process bombs by a sure counter, in scripts, shells and beside kept processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sandboxes import bash, shell

from tiltyard.sandbox.backend import Sandbox, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Attribution, Outcome

pytestmark = pytest.mark.anyio
FORKS = """
import os
for _ in range(40):
    try:
        if not os.fork(): os._exit(0)
    except OSError: pass
"""
THREADS = """
import threading, time
try:
    while True: threading.Thread(target=time.sleep, args=(0.2,)).start()
except RuntimeError: pass
"""
FILES = """
import os
opened = []
try:
    while True: opened.append(os.open('/dev/null', 0))
except OSError as error: print(len(opened) + 3, error.errno)
"""
BOMBS = {
    "shell that copes": ":(){ :|:& };:; sleep 0.5",
    "shell that fails": "for i in $(seq 40); do sleep 3 & done; exit 0",
    "over in a moment": f"python3 -c '{FORKS}'",
    "threads": f"python3 -c '{THREADS}'",
}


@pytest.mark.parametrize("name", BOMBS)
async def test_6_7_refused_forks_are_counted(sandbox: Sandbox, name: str) -> None:
    """However short the bomb and however well its shell copes, it is the process limit, and the next command is not."""
    for run in (bash, shell):
        found: Execution = await run(sandbox, BOMBS[name], wall_s=5.0, cpu_s=20.0)
        assert (found.outcome, found.attribution) == (Outcome.PROCESS_LIMIT, Attribution.POLICY), found
        assert "refused" in found.detail
        await sandbox.restart_shell()
        assert (await bash(sandbox, "echo fine")).outcome is Outcome.FINISHED
    assert sandbox.alive


async def test_6_a_busy_program_below_the_limit_is_not_blamed(sandbox: Sandbox) -> None:
    """Many processes one after another, and some at a time, are nobody's fault."""
    found = await bash(sandbox, "for i in $(seq 60); do true & wait; done; seq 40 | xargs -P 8 -I{} true", cpu_s=20.0)
    assert found.outcome is Outcome.FINISHED, found


async def test_6_a_kept_process_survives_a_bomb_beside_it(sandbox: Sandbox) -> None:
    """The sweep after a bomb spares what was asked to stay, or takes all of it, and the sandbox serves on."""
    await sandbox.run(Command(argv=("bash", "-c", "while :; do sleep 0.1; done"), background=True))
    found = await bash(sandbox, "x() { x & x & }; x; sleep 0.3", processes=24, wall_s=3.0)
    assert found.outcome is Outcome.PROCESS_LIMIT
    assert (await bash(sandbox, "echo fine")).stdout == b"fine\n"
    count = int((await bash(sandbox, "set -- /proc/[0-9]*; echo $#")).stdout)
    assert count <= 5


async def test_forks_need_not_be_counted(tmp_path: Path) -> None:
    """Without the trace points the number of processes stands in."""
    settings = SandboxSettings(count_forks=False)
    backend = GVisorBackend.open(settings)
    try:
        sandbox = await backend.start(Want())
        found = await bash(sandbox, "for i in $(seq 40); do sleep 3 & done; wait; exit 1", wall_s=6.0)
        assert found.outcome is Outcome.PROCESS_LIMIT, found
        assert "reached" in found.detail
    finally:
        await backend.close()


async def test_open_files_are_limited(sandbox: Sandbox) -> None:
    """A command opens as many files as it may, not one more."""
    for most in (64, 1024):
        limits = ExecLimits(open_files=most)
        found = await sandbox.run(Command(argv=("python3", "-c", FILES), limits=limits))
        assert found.stdout == b"%d 24\n" % most
