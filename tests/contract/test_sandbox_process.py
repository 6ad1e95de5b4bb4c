"""The sandbox service as a process: it comes up, drains on SIGTERM and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.sandbox_host import processes_of

from tiltyard.kit.bus import Bus
from tiltyard.sandbox import images
from tiltyard.sandbox.cgroups import Tree
from tiltyard.sandbox.instance import reconcile
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio


async def test_service_comes_up_and_leaves_nothing(bus: Bus, tmp_path: Path) -> None:
    """With its pool full, SIGTERM ends the service with status 0, and no sandbox, directory or process is left."""
    found = SandboxSettings()
    server = bus.client.connected_url
    assert server is not None
    settings = {
        "bus.servers": f'["{server.geturl()}"]',
        "data.root": f'"{tmp_path}/data"',
        "sandbox.home": f'"{tmp_path}/home"',
        "sandbox.runsc": f'"{images.find_runsc(found)}"',
        "sandbox.image": f'{{python = "{images.find_image(found, "python")}"}}',
        "sandbox.pool": "{python = 2}",
    }
    command = [sys.executable, "-m", "tiltyard.sandbox"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(command, env=environment)  # noqa: ASYNC220
    try:
        runs = tmp_path / "home" / "run"
        begun = time.monotonic()
        while len(list(runs.glob("*/s*"))) < 2:
            assert time.monotonic() - begun < 20
            assert process.poll() is None
            time.sleep(0.02)  # noqa: ASYNC251
        (instance,) = (path.name for path in runs.iterdir())
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.wait()
    assert list(runs.iterdir()) == []
    assert processes_of(instance) == []


RESTING = """
import sys, anyio
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
async def main():
    settings = SandboxSettings(home=sys.argv[1], runsc=sys.argv[2], image={"python": sys.argv[3]})
    backend = GVisorBackend.open(settings)
    for _ in range(2):
        (await backend.start(Want())).rest()
    print(backend.instance.id, flush=True)
    await anyio.sleep_forever()
anyio.run(main)
"""


def test_resting_sandboxes_die_with_the_service(tmp_path: Path) -> None:
    """Stopped as they are, sandboxes of the pool are gone soon after SIGKILL of the service."""
    found = SandboxSettings()
    arguments = [str(tmp_path), images.find_runsc(found), str(images.find_image(found, "python"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", RESTING, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        instance = process.stdout.readline().strip()
        assert len(processes_of(instance)) > 2
    finally:
        process.kill()
        process.communicate()
    begun = time.monotonic()
    while processes_of(instance):
        assert time.monotonic() - begun < 5
        time.sleep(0.01)
    assert reconcile(tmp_path, Tree.find()) == 2
