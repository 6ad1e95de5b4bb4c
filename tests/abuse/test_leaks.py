"""Nothing outlives the service: kills of the service, of the parts of a sandbox, and two services on one host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from support.abuse import Finding
from support.sandbox_host import eventually_no_traces, processes_of

from tiltyard.sandbox import images
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.cgroups import Tree
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import GROUP
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, ExecLimits
from tiltyard_proto.outcomes import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("case")]
Starter = Callable[[int], tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def home(tmp_path: Path) -> SandboxSettings:
    """Settings with a home of their own, so that only this test's instances are in it."""
    found = SandboxSettings()
    image = str(images.find_image(found, "python"))
    return SandboxSettings(home=str(tmp_path), runsc=images.find_runsc(found), image={"python": image})


@pytest.fixture
def start_service(home: SandboxSettings) -> Iterator[Starter]:
    """Starts a service process with busy sandboxes; the process and its instance id."""
    started: list[subprocess.Popen[str]] = []

    def start(count: int) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, str(Path(__file__).with_name("service.py"))]
        process = subprocess.Popen(
            [*command, home.home, home.runsc, home.image["python"], str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        started.append(process)
        assert process.stdout is not None
        instance = process.stdout.readline().strip()
        assert process.stdout.readline().strip() == "ready"
        return process, instance

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def wait_until(condition: Callable[[], bool], within_s: float) -> float:
    """Seconds until the condition held; fails when it does not in time."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < within_s, "not in time"
        await anyio.sleep(0.005)
    return time.monotonic() - begun


def alive(instance: str) -> list[int]:
    """Processes of the instance that are not zombies waiting for init."""
    found = []
    for pid in processes_of(instance):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


@pytest.mark.timeout(180)  # twenty sandboxes take a while where others use the machine
async def test_27_sigkill_of_the_service(home: SandboxSettings, start_service: Starter, case: Finding) -> None:
    """After SIGKILL of the service its 20 busy sandboxes are gone in a second; the next start sweeps the rest."""
    process, instance = start_service(20)
    assert len(alive(instance)) >= 40  # a launcher and a sentry each
    process.send_signal(signal.SIGKILL)
    process.wait()
    case.outcomes, case.attributions = ["gone"], ["none"]
    await wait_until(lambda: not alive(instance), 5.0)  # a fraction of a second on a quiet machine
    left = Path(home.home) / "run" / instance
    assert left.is_dir()
    backend = GVisorBackend.open(home)
    try:
        assert not left.exists()
        assert Tree.find().names(f"{GROUP}/{instance}") == []
        assert backend.leaked == 0
    finally:
        await backend.close()


async def test_29_two_services_on_one_host(home: SandboxSettings, start_service: Starter) -> None:
    """A service that starts does not touch the sandboxes of one that lives, only those of one that died."""
    living, first = start_service(2)
    dead, second = start_service(2)
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    before = set(alive(first))
    backend = GVisorBackend.open(home)
    try:
        assert (Path(home.home) / "run" / first).is_dir()
        assert not (Path(home.home) / "run" / second).exists()
        assert before == set(alive(first))
        assert living.poll() is None
        sandbox = await backend.start(Want())
        assert (await sandbox.run(Command(argv=("true",)))).outcome is Outcome.FINISHED
        await sandbox.kill()
    finally:
        await backend.close()
    assert before == set(alive(first))


def part_named(backend: GVisorBackend, part: str) -> int:
    """Host process of one part of the newest sandbox: the launcher, the sentry or the gofer."""
    name = max(backend.tree.names(f"{GROUP}/{backend.instance.id}"), key=lambda name: int(name[1:]))
    for pid in backend.tree.group(f"{GROUP}/{backend.instance.id}/{name}").pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if (part == "launcher" and "run" in words) or words[0] == part:
            return pid
    raise AssertionError(f"no {part}")


@pytest.mark.parametrize("part", ["launcher", "runsc-sandbox", "runsc-gofer", "agent"])
async def test_28_death_of_a_part(gvisor: GVisorBackend, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a part is killed the command ends, as lost where the sandbox can't go on, and all is cleaned up."""
    if part == "runsc-gofer":  # which there is where the image is a directory
        monkeypatch.setattr(gvisor, "packs", False)
        monkeypatch.setattr(gvisor, "_plans", {})
    sandbox = await gvisor.start(Want())
    begun = time.monotonic()

    async def kill_soon() -> None:
        await anyio.sleep(0.6)
        if part == "agent":  # it ends when its stdin ends; nothing outside can name it
            sandbox._channel.close()
        else:
            os.kill(part_named(gvisor, part), signal.SIGKILL)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill_soon)
        command = Command(argv=("bash", "-c", "echo begun; sleep 2; ls / > /dev/null"), limits=ExecLimits(wall_s=8.0))
        found = await sandbox.run(command)
    assert time.monotonic() - begun < 7
    if part != "runsc-gofer":
        assert found.outcome is Outcome.SANDBOX_LOST, found
        assert found.stdout == b"begun\n"
        assert "no counted reason" in found.detail
    await sandbox.kill()
    await eventually_no_traces(gvisor, sandbox.id)


async def test_kill_while_busy_leaves_nothing(gvisor: GVisorBackend) -> None:
    """Killing a sandbox under a running command ends the command as lost and leaves nothing."""
    sandbox = await gvisor.start(Want())
    async with anyio.create_task_group() as tasks:

        async def kill_soon() -> None:
            await anyio.sleep(0.2)
            await sandbox.kill()

        tasks.start_soon(kill_soon)
        found = await sandbox.run(Command(argv=("sleep", "30"), limits=ExecLimits(wall_s=40)))
    assert found.outcome is Outcome.SANDBOX_LOST
    await eventually_no_traces(gvisor, sandbox.id)


async def test_failed_start_leaves_nothing(home: SandboxSettings, tmp_path: Path) -> None:
    """A start that fails says why in one line and leaves nothing."""
    broken = tmp_path / "image"
    (broken / "usr/bin").mkdir(parents=True)
    backend = GVisorBackend.open(SandboxSettings(home=home.home, runsc=home.runsc, image={"python": str(broken)}))
    try:
        with pytest.raises(Exception, match="agent into") as caught:
            await backend.start(Want())
        assert "\n" not in str(caught.value)
        await eventually_no_traces(backend)
    finally:
        await backend.close()
