"""Work for a profile that nobody has defined."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support import build

from tiltyard.sandbox.handler import BadMessage
from tiltyard.sandbox.null import NullBackend
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.sandbox.work import Worker, known_profiles
from tiltyard_proto.messages import Command, Environment, Job

pytestmark = pytest.mark.anyio


class NoBlobs:
    """Never asked."""


async def test_an_undefined_profile_is_the_message_s_mistake(tmp_path: Path) -> None:
    """A turn or job whose profile has no definition is refused at once, with those that there are; nothing is tried."""
    settings = SandboxSettings(home=str(tmp_path))
    backend = NullBackend(settings)
    worker = Worker(settings, Pool(backend, settings), NoBlobs())  # type: ignore[arg-type]
    task = build.task("code.test", environment=Environment(interface="shell", profile="nope"))
    rollout = build.rollout(task, turns=(build.turn(command=Command(argv=("ls",))),))
    with pytest.raises(BadMessage, match=r"no profile 'nope'; there are .*python"):
        await worker.turn(rollout)
    with pytest.raises(BadMessage, match="no profile 'nope'"):
        await worker.job(Job(rollout=rollout, command=Command(argv=("ls",)), profile="nope"))


def test_back_ends_without_images_take_any_name() -> None:
    """The null and the plain back-end know no profiles."""
    settings = SandboxSettings(backend="null")
    assert known_profiles(settings) == frozenset()
    assert "geometry" in known_profiles(msgspec.structs.replace(settings, backend="gvisor"))
