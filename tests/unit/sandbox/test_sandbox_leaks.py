"""What could not be removed is counted once, and for as long as it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiltyard.sandbox.cgroups import Tree
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.instance import Instance
from tiltyard.sandbox.settings import SandboxSettings

pytestmark = pytest.mark.anyio


async def test_a_leak_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is looked for, what stays is one leak, and none once it is gone; a stray that goes is none."""
    runsc = tmp_path / "runsc"
    runsc.write_text("#!/bin/sh\n")
    runsc.chmod(0o755)
    settings = SandboxSettings(runsc=str(runsc), home=str(tmp_path / "home"))
    backend = GVisorBackend(settings, Tree({"memory": tmp_path / "groups"}, 2), Instance(tmp_path / "home", None))
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
    backend.instance.close()
