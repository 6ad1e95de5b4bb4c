"""The trainer as its Kubernetes Job starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from support.cluster_files import ROOT

from tiltyard.cli.models import prepare
from tiltyard.kit.bus import Bus
from tiltyard.kit.embedded import free_port
from tiltyard.kit.settings import DataSettings
from tiltyard_proto.topology import POLICY

pytestmark = pytest.mark.anyio
CONFIG = """
run = {{ name = "job", model = "{model}", steps = 1, train = {{ "code.python.functions" = {{ tasks = 1 }} }} }}
bus = {{ servers = ["{url}"], embedded = false }}
data = {{ root = "{root}" }}
trainer = {{ learner = "fake" }}
"""


def command(config: Path) -> list[str]:
    """The Job's own command line, on loopback and with a configuration of the test's."""
    documents = yaml.safe_load_all((ROOT / "infra/kubernetes/base/trainer.yaml").read_text())
    container = next(iter(documents))["spec"]["template"]["spec"]["containers"][0]
    found = [each.replace("$(JOB_COMPLETION_INDEX)", "0") for each in container["command"]]
    found = [each.replace("trainer-0.trainer.tiltyard.svc", "127.0.0.1") for each in found]
    found = [each.replace("=29500", f"={free_port()}") for each in found]
    found[found.index("-c") + 1] = str(config)
    return [str(Path(sys.executable).parent / found[0]), *found[1:]]


async def _first_policy(bus: Bus, process: subprocess.Popen[bytes]) -> tuple[str, int] | None:
    """Run and version of the first policy; None when the process ends or is silent for long."""
    found: list[tuple[str, int]] = []

    async def follow() -> None:
        async for _, policy in bus.follow(POLICY):
            found.append((policy.run, policy.version))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        with anyio.move_on_after(90):
            while not found and process.poll() is None:  # noqa: ASYNC110  (a process announces nothing)
                await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    return found[0] if found else None


@pytest.mark.timeout(150)
async def test_the_job_publishes_the_first_policy_and_drains(bus: Bus, nats_server: Any, tmp_path: Path) -> None:
    """Under torchrun the trainer publishes version 0, and a SIGTERM to torchrun ends both."""
    config, model = tmp_path / "tiltyard.toml", prepare("tiny", DataSettings().cache_path)
    config.write_text(CONFIG.format(url=nats_server.url, root=tmp_path / "data", model=model))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220  (it takes a millisecond)
            command(config), stdout=log, stderr=log, env=environment, start_new_session=True
        )
    try:
        first = await _first_policy(bus, process)
        assert first == ("job", 0), (tmp_path / "log").read_text()[-2000:]
        process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(process.wait, 40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = (tmp_path / "log").read_text(errors="replace")
    assert "drain" in said, said[-2000:]
    assert "service_ends" in said, said[-2000:]
