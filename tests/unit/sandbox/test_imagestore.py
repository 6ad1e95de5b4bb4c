"""The directory of images: what is kept, what goes, and who is in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tiltyard.cli.main import main
from tiltyard.sandbox.imagestore import Meta, Store, disk_bytes

DAY = 86400.0


def put(store: Store, name: str, *, used_days_ago: float = 0.0, size: int = 1 << 20, built: float = 0.0) -> Path:
    """An image with a file in it, last used so long ago."""
    path = store.path / name
    (path / "etc").mkdir(parents=True)
    (path / "etc/os-release").write_text("ID=debian\n")
    store.note(Meta(name=name, profile=name.split("-")[0], recipe="{}", size_bytes=size, built=built))
    os.close(store.hold(path))
    when = time.time() - used_days_ago * DAY
    os.utime(path.with_name(f"{name}.lock"), (when, when))
    return path


def test_an_image_is_found_by_its_recipe(tmp_path: Path) -> None:
    """The digest names the image, not its age; of several for one recipe the one built last is taken."""
    store = Store(tmp_path)
    assert store.found("python", "aaa") is None
    old = put(store, "python-aaa")
    put(store, "python-bbb")
    assert store.found("python", "aaa") == old
    put(store, "tool-aaa-111", built=1.0)
    new = put(store, "tool-aaa-222", built=2.0)
    assert store.found("tool", "aaa") == new


def test_collection_goes_by_age(tmp_path: Path) -> None:
    """Images unused for longer than the age go, with what was noted about them; those that are named stay."""
    store = Store(tmp_path)
    for name, days in (("a-1", 9), ("b-1", 9), ("c-1", 3)):
        put(store, name, used_days_ago=days)
    gone = store.collect({"b-1"}, 7 * DAY, dry=True)
    assert [entry.path.name for entry in gone] == ["a-1"]
    assert (store.path / "a-1").exists()
    assert [entry.path.name for entry in store.collect({"b-1"}, 7 * DAY)] == ["a-1"]
    assert sorted(path.name for path in store.path.iterdir() if path.is_dir()) == ["b-1", "c-1"]
    assert not list(store.path.glob("*a-1*"))


def test_collection_goes_by_size(tmp_path: Path) -> None:
    """Over the budget the least recently used go first, until the rest fits."""
    store = Store(tmp_path)
    for name, days in (("a-1", 1), ("b-1", 3), ("c-1", 2)):
        put(store, name, used_days_ago=days, size=100)
    gone = store.collect((), 7 * DAY, budget_bytes=150)
    assert [entry.path.name for entry in gone] == ["b-1", "c-1"]
    assert [entry.path.name for entry in store.images()] == ["a-1"]


def test_an_image_in_use_stays(tmp_path: Path) -> None:
    """While a process holds an image nobody removes it, however old; when that process is gone, it goes."""
    store = Store(tmp_path)
    path = put(store, "a-1", used_days_ago=9)
    held = store.hold(path)
    assert store.images()[0].busy
    assert store.collect((), 0.0) == []
    assert path.exists()
    os.close(held)
    assert [entry.path.name for entry in store.collect((), -1.0)] == ["a-1"]
    with pytest.raises(FileNotFoundError):
        store.hold(path)


def test_debris_of_killed_builders_goes(tmp_path: Path) -> None:
    """A half-built image that nobody is building any more is removed; one that is being built stays."""
    store = Store(tmp_path)
    dead, live = store.path / ".build-a-1", store.path / ".build-b-1"
    with store.alone(".build-a-1"):
        (dead / "root").mkdir(parents=True)
    with store.alone(".build-b-1"):
        (live / "root").mkdir(parents=True)
        store.collect((), DAY)
        assert not dead.exists()
        assert live.exists()
    store.collect((), DAY)
    assert list(store.path.iterdir()) == []


def test_a_lock_that_was_removed_locks_nothing(tmp_path: Path) -> None:
    """Who waited for the lock of an image that was collected meanwhile takes the lock that is there now."""
    store = Store(tmp_path)
    path = put(store, "a-1", used_days_ago=9)
    assert store.remove(path)
    with store.alone("a-1"):
        assert not store.remove(path)


def test_sizes_count_disk_once(tmp_path: Path) -> None:
    """Hard links and sparse files count as what they take."""
    (tmp_path / "a").write_bytes(bytes(1 << 16))
    os.link(tmp_path / "a", tmp_path / "b")
    with (tmp_path / "c").open("wb") as file:
        file.truncate(1 << 30)
    assert disk_bytes(tmp_path) < 1 << 18


@pytest.mark.parametrize("action", ["ls", "gc"])
def test_another_users_images_are_one_line(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever may not look at the images is told which file, and how to mend it; no traceback."""

    def refused(_: Store, path: Path) -> bool:
        raise PermissionError(13, "Permission denied", f"{path}.lock")

    put(Store(tmp_path), "python-aaa")
    monkeypatch.setattr(Store, "_busy", refused)
    assert main(["sandbox", "images", action, "--set", f"sandbox.home={tmp_path}"]) == 2
    assert "python-aaa.lock: belongs to another user; run it as root" in capsys.readouterr().err
