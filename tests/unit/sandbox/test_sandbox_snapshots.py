"""Snapshots on disk: whole, compared, bounded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiltyard.sandbox.backend import SnapshotFailed, Want
from tiltyard.sandbox.snapshots import Branches, Store, key_of

KEY = key_of("runsc", ["--platform=systrap"], {"process": {}})


def made(folder: Path, text: bytes = b"pages") -> Path:
    """What a checkpoint leaves."""
    folder.mkdir(parents=True)
    (folder / "checkpoint.img").write_bytes(b"state")
    (folder / "pages.img").write_bytes(text)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "snapshots", 1 << 20)


def test_a_key_names_all_its_parts() -> None:
    """Another binary, flag or specification is another key; the same ones are the same."""
    parts = ("runsc", ["--platform=systrap"], {"process": {}})
    assert key_of(*parts) == KEY
    for index, other in enumerate(("other", ["--platform=ptrace"], {"process": {"cwd": "/"}})):
        assert key_of(*(other if at == index else part for at, part in enumerate(parts))) != KEY


def test_what_is_added_is_found(store: Store, tmp_path: Path) -> None:
    """A finished snapshot is found under its key, by this store and by another process's."""
    assert store.find(KEY) is None
    store.add(KEY, made(tmp_path / "work"))
    for one in (store, Store(store.path, 1 << 20)):
        found = one.find(KEY)
        assert found is not None
        assert (found / "pages.img").read_bytes() == b"pages"
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("name", ["checkpoint.img", "pages.img", "manifest.json"])
def test_a_flipped_byte_is_found(store: Store, tmp_path: Path, name: str) -> None:
    """A snapshot with a flipped byte is removed, also when it was compared before."""
    store.add(KEY, made(tmp_path / "work"))
    assert store.find(KEY) is not None
    path = store.path / KEY / name
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    assert store.find(KEY) is None
    assert list(store.path.iterdir()) == []


def test_a_snapshot_without_its_parts_is_none(store: Store, tmp_path: Path) -> None:
    """A missing file or manifest is damage."""
    store.add(KEY, made(tmp_path / "work"))
    (store.path / KEY / "pages.img").unlink()
    assert store.find(KEY) is None
    store.add(KEY, made(tmp_path / "work"))
    (store.path / KEY / "manifest.json").unlink()
    assert store.find(KEY) is None


def test_two_builders_of_one_key(store: Store, tmp_path: Path) -> None:
    """The second builder's copy goes away, the first one's stays."""
    store.add(KEY, made(tmp_path / "one", b"first"))
    store.add(KEY, made(tmp_path / "two", b"second"))
    found = store.find(KEY)
    assert found is not None
    assert (found / "pages.img").read_bytes() == b"first"
    assert not (tmp_path / "two").exists()


def test_the_least_recently_used_go(tmp_path: Path) -> None:
    """Over the bytes the oldest go; the newest stays whatever its size."""
    store = Store(tmp_path / "snapshots", 2 << 20)
    for number, key in enumerate("abc"):
        store.add(key, made(tmp_path / key, os.urandom(800_000)))
        os.utime(store.path / key, (number, number))
    store.add("d", made(tmp_path / "d", os.urandom(800_000)))
    assert sorted(path.name for path in store.path.iterdir()) == ["c", "d"]
    large = Store(tmp_path / "small", 1000)
    large.add("e", made(tmp_path / "e", os.urandom(800_000)))
    assert large.find("e") is not None


def test_sessions_snapshots_are_bounded(tmp_path: Path) -> None:
    """Too many, or too many bytes: the least recently used go. One that is too large alone is refused."""
    branches = Branches(tmp_path, 2, 3 << 20)
    names = []
    for _ in range(2):
        name, place = branches.place()
        (place / "pages.img").write_bytes(os.urandom(1 << 20))
        assert list(branches.keep(name, Want())) == []
        names.append(name)
    assert branches.find(names[0]) is not None
    name, place = branches.place()
    (place / "pages.img").write_bytes(os.urandom(1 << 20))
    assert list(branches.keep(name, Want())) == [tmp_path / names[1]]
    assert branches.find(names[1]) is None
    assert len(branches) == 2
    assert 2 << 20 <= branches.bytes <= 3 << 20
    assert branches.forget(name) == tmp_path / name
    assert branches.forget(name) is None
    name, place = branches.place()
    (place / "pages.img").write_bytes(os.urandom(4 << 20))
    with pytest.raises(SnapshotFailed, match="branch_bytes"):
        branches.keep(name, Want())
