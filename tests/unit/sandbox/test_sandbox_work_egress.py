"""Which hosts a session's sandbox is asked to reach, and when the task is refused instead."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import build

from tiltyard.kit.blobs import BlobStore
from tiltyard.sandbox.backend import Sandbox, StartFailed, Want
from tiltyard.sandbox.guard import Shed
from tiltyard.sandbox.handler import BadMessage
from tiltyard.sandbox.null import NullBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker
from tiltyard_proto.messages import Command, Environment, Job, Rollout

pytestmark = pytest.mark.anyio
SETTINGS = SandboxSettings(backend="null", pool={}, egress=("pypi.org", "git.example.org:22"))


class Asked(NullBackend):
    """Notes what it is asked for, and has nothing."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.wants: list[Want] = []

    async def start(self, want: Want) -> Sandbox:  # type: ignore[override]
        self.wants.append(want)
        raise StartFailed("nothing here")


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def worker(asked: Asked, tmp_path: Path) -> Worker:
    return Worker(SETTINGS, Pool(asked, SETTINGS), BlobStore(tmp_path), clock=lambda: 100.0)


def acting(*hosts: str) -> Rollout:
    task = build.task(turns=3, environment=Environment(interface="shell", egress=hosts))
    return msgspec.structs.replace(build.rollout(task), turns=(build.turn(command=Command(argv=("true",))),))


async def test_a_session_gets_the_hosts_of_its_task(worker: Worker, asked: Asked) -> None:
    """The sandbox is asked for with the task's hosts; a grading job of the same task is not."""
    rollout = acting("pypi.org:443", "git.example.org:22")
    with pytest.raises(Shed):
        await worker.turn(rollout)
    assert {want.egress for want in asked.wants} == {("pypi.org:443", "git.example.org:22")}
    asked.wants.clear()
    worker.guard.backend.clear()
    with pytest.raises(Shed):
        await worker.job(Job(rollout=rollout, profile="python", command=Command(argv=("python3", "x.py"))))
    assert {want.egress for want in asked.wants} == {()}


@pytest.mark.parametrize("hosts", [("pypi.org", "evil.example"), ("git.example.org",), ("*",), ("http://pypi.org",)])
async def test_a_task_that_asks_for_more_is_refused(worker: Worker, asked: Asked, hosts: tuple[str, ...]) -> None:
    """A host or port beyond the machine's list, or no host at all, makes a bad message; nothing is started."""
    with pytest.raises((BadMessage, ValueError), match="egress"):
        await worker.turn(acting(*hosts))
    assert asked.wants == []


def test_settings_are_checked_when_they_are_read() -> None:
    """A list of hosts that can't be one is refused with its entry."""
    with pytest.raises(ValueError, match=r"egress '\*'"):
        SandboxSettings(egress=("*",))
