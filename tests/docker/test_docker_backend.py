"""The Docker back-end on a real daemon: kills of the service, containers of others, what the daemon lacks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from support.dockers import socket

from tiltyard.sandbox import doctor, images
from tiltyard.sandbox.backend import StartFailed, Want
from tiltyard.sandbox.docker import DockerBackend
from tiltyard.sandbox.docker_spec import INSTANCE
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits
from tiltyard_proto.outcomes import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
SERVICE = """
import sys, anyio, msgspec
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.docker import DockerBackend
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits
async def main():
    backend = DockerBackend.open(msgspec.json.decode(sys.argv[1], type=SandboxSettings))
    sandbox = await backend.start(Want())
    print(backend.instance.id, flush=True)
    await sandbox.run(Command(argv=("sleep", "600"), limits=ExecLimits(wall_s=600.0)))
anyio.run(main)
"""


@pytest.fixture
def settings(tmp_path: Path) -> SandboxSettings:
    """A home of its own."""
    image = str(images.find_image(SandboxSettings(), "python"))
    return SandboxSettings(backend="docker", docker_socket=socket(), home=str(tmp_path), image={"python": image})


@pytest.fixture
async def backend(settings: SandboxSettings) -> AsyncIterator[DockerBackend]:
    opened = DockerBackend.open(settings)
    yield opened
    await opened.close()


def started(settings: SandboxSettings) -> tuple[subprocess.Popen[str], str]:
    """A service with a busy sandbox, and its instance id."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, msgspec.json.encode(settings).decode()],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    while len(line := process.stdout.readline().strip()) != 8:
        assert process.poll() is None, line
    return process, line


async def states(backend: DockerBackend, instance: str) -> list[str]:
    """States of the containers of an instance."""
    found = await backend.docker.call("GET", "/containers/json", all="1")
    return [item["State"] for item in found if item["Labels"].get(INSTANCE) == instance]


async def test_a_killed_services_containers_end_and_are_removed(settings: SandboxSettings) -> None:
    """After SIGKILL of a service its container ends by itself; the next start removes it and what else was left."""
    process, instance = await anyio.to_thread.run_sync(started, settings)
    backend = DockerBackend.open(settings)
    try:
        assert await states(backend, instance) == ["running"]
        process.send_signal(signal.SIGKILL)
        process.wait()
        with anyio.fail_after(20):
            while await states(backend, instance) != ["exited"]:  # noqa: ASYNC110  (the daemon announces nothing here)
                await anyio.sleep(0.05)
        sandbox = await backend.start(Want())
        assert await states(backend, instance) == []
        assert instance not in os.listdir(Path(settings.home, "run"))
        await sandbox.kill()
        assert backend.leaked == 0
    finally:
        process.kill()
        process.stdout.close()  # type: ignore[union-attr]
        await backend.close()


async def test_containers_of_the_living_and_of_others_stay(settings: SandboxSettings, tmp_path: Path) -> None:
    """A start touches neither a living service's containers nor those of another home."""
    process, instance = await anyio.to_thread.run_sync(started, settings)
    stranger = msgspec.structs.replace(settings, home=str(tmp_path / "other"))
    try:
        for chosen in (settings, stranger):
            backend = DockerBackend.open(chosen)
            await (await backend.start(Want())).kill()
            assert await states(backend, instance) == ["running"]
            await backend.close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


async def test_what_the_daemon_lacks_is_said(settings: SandboxSettings, tmp_path: Path) -> None:
    """No socket and no runtime are refused with what to do."""
    with pytest.raises(StartFailed, match="docker_socket"):
        DockerBackend.open(msgspec.structs.replace(settings, docker_socket=str(tmp_path / "none")))
    backend = DockerBackend.open(msgspec.structs.replace(settings, docker_runtime="krun"))
    with pytest.raises(StartFailed, match=r"no runtime 'krun'.*daemon\.json"):
        await backend.start(Want())
    await backend.close()


async def test_the_doctor_judges_it(settings: SandboxSettings) -> None:
    """The self-test runs over this back-end as well."""
    checks = await doctor.doctor(settings)
    assert [check.name for check in checks if not check.ok] == []
    assert [check.name for check in checks][:3] == ["start", "files", "processes"]


async def test_memory_is_bounded_by_the_container(backend: DockerBackend) -> None:
    """A command can't ask for more memory than containers have; that is no fault of the policy."""
    sandbox = await backend.start(Want())
    found = await sandbox.run(Command(argv=("true",), limits=ExecLimits(memory_bytes=2 << 30)))
    assert (found.outcome, "docker_memory_bytes" in found.detail) == (Outcome.SANDBOX_LOST, True)


async def test_a_cancelled_start_leaves_no_container(backend: DockerBackend) -> None:
    """A start that is given up half-way leaves nothing."""
    await (await backend.start(Want())).kill()
    for patience in (0.01, 0.05, 0.1, 0.25):
        with anyio.move_on_after(patience):
            await (await backend.start(Want())).kill()
    assert await states(backend, backend.instance.id) == []
    assert backend.leaked == 0
