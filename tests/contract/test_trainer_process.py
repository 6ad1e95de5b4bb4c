"""The trainer as a process on a real bus: trains, survives kill -9, stops on SIGTERM."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from support import training
from support.waiting import until

from tiltyard.kit.bus import Bus
from tiltyard_proto.messages import Policy
from tiltyard_proto.topology import GROUP, POLICY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


class Machine:
    """Starts trainer processes on one bus and one data directory."""

    def __init__(self, url: str, root: Path) -> None:
        self.log = root / "trainer.log"
        model = training.tiny_model(root / "model")
        self.config = root / "tiltyard.toml"
        self.config.write_text(
            f'[run]\nname = "run"\nsteps = 4\ngroups_per_step = 2\nmodel = "{model}"\n'
            f'[bus]\nservers = ["{url}"]\nembedded = false\n[data]\nroot = "{root}"\n'
            '[trainer]\nthreads = 1\ndtype = "float32"\ncheckpoint_every = 2\n[service]\nlog_format = "json"\n'
        )

    @contextmanager
    def trainer(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "tiltyard.trainer", "-c", str(self.config)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def published(bus: Bus, version: int) -> Policy:
    """Wait until a version is on the bus."""
    subject = POLICY.subject(Policy(run="run", version=version, path=""))
    with anyio.fail_after(60):
        while (found := await bus.get(POLICY, subject)) is None:  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return found


async def add(bus: Bus, step: int) -> None:
    for index in (2 * step, 2 * step + 1):
        await bus.publish(GROUP, training.simple_group(index, version=step))


async def test_a_killed_trainer_is_started_again_and_finishes_the_run(
    bus: Bus, nats_server: object, tmp_path: Path
) -> None:
    """Killed after version 3, the next process resumes from the checkpoint of 2, ends the run and obeys SIGTERM."""
    machine = Machine(nats_server.url, tmp_path)  # type: ignore[attr-defined]
    with machine.trainer() as process:
        for step in range(3):
            await add(bus, step)
        third = await published(bus, 3)
        process.kill()
    with machine.trainer() as process:
        await add(bus, 3)
        last = await published(bus, 4)
        await until(lambda: "training_done" in machine.log.read_text())
        process.send_signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(process.wait, 20) == 0
    assert last.final
    assert last.position == 8
    assert last.metrics["groups"] == 2
    assert (await published(bus, 3)) == third
    for policy in (third, last):
        weights = (Path(policy.path) / "model.safetensors").read_bytes()
        assert hashlib.sha256(weights).hexdigest() == policy.sha256
    assert "Traceback" not in machine.log.read_text()
