"""Images as files: made once and whole, kept while somebody uses them, gone with their image."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tiltyard.sandbox import packs
from tiltyard.sandbox.imagestore import Meta, Store

pytestmark = pytest.mark.skipif(packs.program() is None, reason="no mkfs.erofs (package erofs-utils)")
MAGIC = bytes.fromhex("e2e1f5e0")
HOLDER = """
import sys, time
from pathlib import Path
from tiltyard.sandbox import packs
print(packs.take(Path(sys.argv[1]), "old"), flush=True)
time.sleep(60)
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of one file."""
    store = Store(tmp_path)
    path = store.path / "python-abc"
    (path / "etc").mkdir(parents=True)
    (path / "etc/os-release").write_text("ID=debian\n")
    store.note(Meta(name=path.name, profile="python", recipe="{}", size_bytes=1 << 20, built=1.0))
    return path


def test_a_file_is_made_once(image: Path) -> None:
    """However many ask at the same time, there is one file, whole, and nothing else is left."""
    found: list[Path | None] = []
    threads = [threading.Thread(target=lambda: found.append(packs.take(image, "/tiltyard/one"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pack = image.with_name("python-abc.one.erofs")
    assert found == [pack] * 6
    assert pack.read_bytes()[1024:1028] == MAGIC
    assert [path.name for path in image.parent.iterdir() if path.name.startswith(".python")] == []
    before = packs.marks(pack)
    assert packs.take(image, "/tiltyard/one") == pack
    assert packs.marks(pack) == before


def test_a_file_of_an_older_agent_goes_when_nobody_uses_it(image: Path) -> None:
    """The next agent's file takes its place; one that a process holds stays until that has died."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(image)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    old = image.with_name("python-abc.old.erofs")
    assert holder.stdout.readline().strip() == str(old)
    assert packs.take(image, "/tiltyard/two") is not None
    assert old.exists()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert packs.take(image, "/tiltyard/three") is not None
    assert not old.exists()
    assert image.with_name("python-abc.two.erofs").exists()  # this very process holds it


def test_a_file_goes_with_its_image(image: Path) -> None:
    """Removal takes the files along, and what they take on the disk counts."""
    store = Store(image.parent.parent)
    pack = packs.take(image, "/tiltyard/gone")
    assert pack is not None
    (entry,) = store.images()
    assert entry.packed_bytes == pack.stat().st_size
    (image.parent / "python-abcd.gone.erofs").write_bytes(b"another image's")
    assert store.remove(image)
    assert [path.name for path in image.parent.glob("*.erofs")] == ["python-abcd.gone.erofs"]


def test_what_cannot_be_packed_is_a_directory(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program, without room, or with an image that nobody wrote anything down about, there is no file."""
    outside = tmp_path / "elsewhere/root"
    outside.mkdir(parents=True)
    assert packs.take(outside, "/tiltyard/x") is None
    monkeypatch.setattr(packs, "MARGIN_BYTES", 1 << 62)
    assert packs.take(image, "/tiltyard/full") is None
    monkeypatch.undo()
    monkeypatch.setattr(packs, "program", lambda: None)
    assert packs.take(image, "/tiltyard/none") is None
    monkeypatch.undo()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(packs, "program", lambda: str(broken))
    assert packs.take(image, "/tiltyard/broken") is None
    begun = time.monotonic()
    assert packs.take(image, "/tiltyard/broken") is None  # not tried again
    assert time.monotonic() - begun < 0.5
    assert [path.name for path in image.parent.iterdir() if "erofs" in path.name] == []
    assert os.path.isdir(image)
