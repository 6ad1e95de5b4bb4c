"""The sandbox service as a process: it comes up, drains on SIGTERM, leaves nothing, answers at its control socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from support import build
from support.sandbox_host import processes_of

from tiltyard.cli.main import main
from tiltyard.kit.bus import Bus
from tiltyard.sandbox import images
from tiltyard.sandbox.cgroups import Tree
from tiltyard.sandbox.control import ControlError, Exec, List, Listing, ask
from tiltyard.sandbox.instance import reconcile
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, Environment, ExecLimits, Rollout
from tiltyard_proto.topology import EXECUTE, GENERATE

pytestmark = pytest.mark.anyio


class Running:
    """A service process with a home of its own."""

    def __init__(self, process: subprocess.Popen[bytes], home: Path, instance: Path) -> None:
        self.process, self.home, self.instance = process, home, instance

    async def ends(self) -> int:
        """Its exit status, waited for."""
        with anyio.fail_after(30):
            while self.process.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        return self.process.returncode

    async def rows(self, state: str, count: int) -> list[str]:
        """Ids of its sandboxes in that state, once there are so many."""
        with anyio.fail_after(30):
            while True:
                with suppress(ControlError):  # it may not listen yet
                    answer = await ask(self.instance, List())
                    assert isinstance(answer, Listing)
                    found = [row.id for row in answer.rows if row.state == state]
                    if len(found) >= count:
                        return found
                await anyio.sleep(0.05)

    def cli(self, *words: str) -> list[str]:
        return ["sandbox", words[0], "--set", f"sandbox.home={self.home}", *words[1:]]


@pytest.fixture
async def service(bus: Bus, tmp_path: Path) -> AsyncIterator[Running]:
    found = SandboxSettings()
    server = bus.client.connected_url
    assert server is not None
    settings = {
        "bus.servers": f'["{server.geturl()}"]',
        "data.root": f'"{tmp_path}"',
        "sandbox.home": f'"{tmp_path}/home"',
        "sandbox.runsc": f'"{images.find_runsc(found)}"',
        "sandbox.image": f'{{python = "{images.find_image(found, "python")}"}}',
        "sandbox.pool": "{python = 2}",
        "service.drain_s": "20.0",
    }
    command = [sys.executable, "-m", "tiltyard.sandbox"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(command, env=environment)  # noqa: ASYNC220
    runs = tmp_path / "home" / "run"
    try:
        with anyio.fail_after(30):
            while not (sockets := list(runs.glob("*/control"))):
                assert process.poll() is None
                await anyio.sleep(0.02)
        running = Running(process, tmp_path / "home", sockets[0].parent)
        await running.rows("idle", 2)
        yield running
    finally:
        process.kill()
        process.wait()


def rollout(source: str, member: int = 0) -> Rollout:
    command = Command(argv=("python3", "-c", source), limits=ExecLimits(wall_s=30.0))
    task = build.task("code.test", turns=4, environment=Environment(interface="shell"))
    return build.rollout(task, member=member, turns=(build.turn(command=command),))


async def after_turn(bus: Bus, of: Rollout) -> Rollout:
    """The rollout as it goes back to be sampled."""
    with anyio.fail_after(30):
        while (found := await bus.get(GENERATE, GENERATE.subject(of))) is None:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert isinstance(found, Rollout)
    return found


async def test_service_drains_and_leaves_nothing(bus: Bus, service: Running) -> None:
    """SIGTERM lets the running command finish and its result be stored, pulls no other, and leaves nothing."""
    first, second = rollout("import time; time.sleep(3); print('whole')"), rollout("print('later')", member=1)
    await bus.publish(EXECUTE, first)
    await service.rows("busy", 1)
    service.process.send_signal(signal.SIGTERM)
    await anyio.sleep(0.5)  # it stops pulling at once; a message that comes afterwards is not for it
    await bus.publish(EXECUTE, second)
    assert (await after_turn(bus, first)).turns[-1].observation == "whole"
    assert await service.ends() == 0
    assert await bus.get(GENERATE, GENERATE.subject(second)) is None
    assert list(service.instance.parent.iterdir()) == []
    assert processes_of(service.instance.name) == []


async def test_a_person_looks_and_tries(
    bus: Bus, service: Running, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ls and top show pool and sessions; exec runs in a new sandbox or takes a session, whose rollout goes on."""
    first = rollout("open('mine', 'w').write('1')")
    await bus.publish(EXECUTE, first)
    again = await after_turn(bus, first)
    (session,) = await service.rows("session", 1)
    await service.rows("idle", 2)

    async def cli(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        status = await anyio.to_thread.run_sync(main, service.cli(*words))
        return status, capfd.readouterr().out

    status, out = await cli("ls", "--json")
    (row,) = [row for row in json.loads(out)["sandboxes"] if row["state"] == "session"]
    assert (status, row["id"], row["rollout"], row["domain"]) == (0, session, first.id, "code.test")
    assert row["memory_bytes"] > 1 << 20
    assert row["cpu_s"] > 0
    status, out = await cli("top", "-n", "1")
    assert (status, out.splitlines()[0].split(" (")[0]) == (0, "3 sandboxes")
    status, out = await cli("exec", "--", "sh", "-c", "ls; echo here; exit 3")
    assert (status, out) == (3, "here\n")
    status, out = await cli("exec", "--session", session, "--", "sh", "-c", "cat mine; echo 2 > mine")
    assert (status, out) == (0, "1")
    assert (await cli("exec", "--session", session, "--", "true"))[0] == 2
    look = Command(argv=("python3", "-c", "print(open('mine').read())"))
    following = msgspec.structs.replace(again, turns=(*again.turns, build.turn(command=look)))
    await bus.publish(EXECUTE, following)
    assert (await after_turn(bus, following)).turns[-1].observation == "1"
    status, out = await cli("reap")
    assert (status, out.splitlines()[1].split(": ")[1]) == (0, "0 strays removed, 0 overdue ended, 0 leaked so far")


async def test_the_door_is_for_its_owner(service: Running) -> None:
    """The socket is private, garbage gets an answer or nothing, and a busy sandbox is refused; the service goes on."""
    assert stat.S_IMODE((service.instance / "control").stat().st_mode) == 0o600
    assert stat.S_IMODE(service.instance.stat().st_mode) == 0o700
    for garbage in (b"", b"\xff" * 8, b"\0\0\0\4abcd", b"\0\0\0\1"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(service.instance / "control"))
            client.sendall(garbage)
            client.shutdown(socket.SHUT_WR)
            client.settimeout(15)
            await anyio.to_thread.run_sync(client.recv, 4096)
    (idle, *_) = await service.rows("idle", 2)
    with pytest.raises(ControlError, match="no session has"):
        await ask(service.instance, Exec(command=Command(argv=("true",)), sandbox=idle))
    with pytest.raises(ControlError, match="no profile"):
        await ask(service.instance, Exec(command=Command(argv=("true",)), profile="nope"))
    assert service.process.poll() is None


async def test_what_lost_its_owner_is_found(service: Running) -> None:
    """A state directory and a control group that no live sandbox has are removed by reap, and live ones stay."""
    before = await service.rows("idle", 2)
    stray = service.instance / "s9999"
    stray.mkdir()
    (stray / "state").write_text("x")
    status = await anyio.to_thread.run_sync(main, service.cli("reap"))
    assert status == 0
    assert not stray.exists()
    assert await service.rows("idle", 2) == before


RESTING = """
import sys, anyio
from tiltyard.sandbox.backend import Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.settings import SandboxSettings
async def main():
    settings = SandboxSettings(home=sys.argv[1], runsc=sys.argv[2], image={"python": sys.argv[3]})
    backend = GVisorBackend.open(settings)
    for _ in range(2):
        await (await backend.start(Want())).rest()
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
