"""The gVisor back-end on the host's side, without gVisor: leaks are counted once, a full disk is a failed start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tiltyard.sandbox import plans
from tiltyard.sandbox.backend import StartFailed, Want
from tiltyard.sandbox.cgroups import Tree
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import Instance
from tiltyard.sandbox.plans import Plan
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[GVisorBackend]:
    """One whose runsc is never started."""
    runsc = tmp_path / "runsc"
    runsc.write_text("#!/bin/sh\n")
    runsc.chmod(0o755)
    settings = SandboxSettings(runsc=str(runsc), home=str(tmp_path / "home"))
    made = GVisorBackend(settings, Tree({"memory": tmp_path / "groups"}, 2), Instance(tmp_path / "home", None))
    yield made
    made.instance.close()


async def test_a_leak_is_counted_once(backend: GVisorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is looked for, what stays is one leak, and none once it is gone; a stray that goes is none."""
    stuck, stray = backend.instance.path / "s1", backend.instance.path / "s2"
    stuck.mkdir()
    stray.mkdir()
    backend.forget("s1", gone=False)
    assert backend.leaked == 1
    with monkeypatch.context() as held:
        held.setattr("tiltyard.sandbox.instance.shutil.rmtree", lambda path, **_: path == stray and path.rmdir())
        assert [await backend.reconcile() for _ in range(3)] == [1, 0, 0]
        assert backend.leaked == 1
    assert await backend.reconcile() == 1
    assert backend.leaked == 0


async def test_a_full_disk_is_a_start_that_fails(backend: GVisorBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the image of a new kind can't be packed the start fails by name, which neither pool nor claim dies of."""

    def full(*_: object, **__: object) -> Plan:
        raise OSError(28, "No space left on device", "python.erofs")

    monkeypatch.setattr(plans, "make", full)
    with pytest.raises(StartFailed, match="No space left"):
        await backend.start(Want())
