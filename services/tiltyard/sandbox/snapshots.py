"""Snapshots on disk: of profiles, kept from start to start, and of sessions, kept while the service lives.

Invariants: a profile's snapshot is named by everything that it is bound to (`key_of`), so that it is never restored
under anything else; it appears whole or not at all, however many services build it at once; its bytes are compared
with their digest before a process uses it and whenever its files have been touched since. One that is damaged is
removed and answered as if it were not there. Left out: taking and restoring them (`gvisor`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from .backend import SnapshotFailed, Want

MANIFEST = "manifest.json"
Marks = tuple[tuple[str, int, int, int, int], ...]
log = structlog.get_logger()


def key_of(*parts: object) -> str:
    """The same for snapshots that can take each other's place. `parts` must print whole and without addresses."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def size_of(folder: Path) -> int:
    """Bytes on disk of the files in a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir() if path.is_file())


class Store:
    """The profiles' snapshots in `path`, at most `max_bytes` of them. Methods block: use a thread."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        self._checked: dict[str, Marks] = {}

    def find(self, key: str) -> Path | None:
        """The whole and undamaged snapshot, or None."""
        place = self.path / key
        try:
            marks = _marks(place)
            if self._checked.get(key) != marks:
                _compare(place)
                self._checked[key] = marks
            os.utime(place)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.drop(key, str(error))
            return None
        return place

    def add(self, key: str, made: Path) -> None:
        """Move a finished snapshot into place; somebody else's of the same key is as good. The oldest go."""
        (made / MANIFEST).write_bytes(msgspec.json.encode(_digests(made)))
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            made.rename(self.path / key)
        except OSError:
            if not (self.path / key).is_dir():
                raise
            shutil.rmtree(made, ignore_errors=True)
        self._trim()

    def drop(self, key: str, why: str) -> None:
        """Remove a snapshot that is no good."""
        log.warning("snapshot_dropped", key=key, why=why)
        self._checked.pop(key, None)
        self._remove(self.path / key)

    def _remove(self, place: Path) -> None:
        """Out of sight at once, then gone: nobody finds half of it."""
        hidden = place.with_name(f".{place.name}-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            place.rename(hidden)
        except OSError:
            return
        shutil.rmtree(hidden, ignore_errors=True)

    def _trim(self) -> None:
        kept = [place for place in self.path.iterdir() if not place.name.startswith(".")]
        kept.sort(key=lambda place: place.stat().st_mtime, reverse=True)
        used = 0
        for number, place in enumerate(kept):
            used += size_of(place)
            if number and used > self.max_bytes:
                self._remove(place)


def _marks(place: Path) -> Marks:
    found = []
    for path in sorted(place.iterdir()):
        status = path.stat()
        found.append((path.name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(found)


def _digests(place: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(place.iterdir()):
        if path.name != MANIFEST:
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _compare(place: Path) -> None:
    """ValueError when the files are not those that were written."""
    try:
        written = msgspec.json.decode((place / MANIFEST).read_bytes(), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ValueError(f"its manifest can't be read: {error}") from error
    if written != _digests(place):
        raise ValueError("its bytes are not those that were written")


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A session's snapshot."""

    path: Path
    want: Want
    """What the original was asked for as."""
    bytes: int


class Branches:
    """Snapshots of sessions, below the instance's directory; the least recently used go when there are too many."""

    def __init__(self, path: Path, most: int, max_bytes: int) -> None:
        self.path, self.most, self.max_bytes = path, most, max_bytes
        self._kept: OrderedDict[str, Branch] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        return sum(branch.bytes for branch in self._kept.values())

    def place(self) -> tuple[str, Path]:
        """Id and empty directory for one more."""
        self._count += 1
        name = f"b{self._count}"
        made = self.path / name
        made.mkdir(parents=True, mode=0o700)
        return name, made

    def keep(self, name: str, want: Want) -> Iterable[Path]:
        """Remember a finished one; the directories of those that have to go. SnapshotFailed when it is too large."""
        made = self.path / name
        size = size_of(made)
        if size > self.max_bytes or not self.most:
            raise SnapshotFailed(f"a snapshot of {size >> 20} MiB; sandbox.branch_bytes is {self.max_bytes >> 20} MiB")
        self._kept[name] = Branch(path=made, want=want, bytes=size)
        going = []
        while len(self._kept) > self.most or self.bytes > self.max_bytes:
            going.append(self._kept.popitem(last=False)[1].path)
        return going

    def find(self, name: str) -> Branch | None:
        """The snapshot of this id, or None when it has gone."""
        branch = self._kept.get(name)
        if branch is not None:
            self._kept.move_to_end(name)
        return branch

    def forget(self, name: str) -> Path | None:
        """Its directory, which is the caller's to remove; None when it had gone."""
        branch = self._kept.pop(name, None)
        return branch.path if branch else None
