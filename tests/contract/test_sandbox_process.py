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
