"""The directory of images: names, locks, what is known about each, and the removal of old ones.

`<home>/images/<profile>-<digest>` is a root file system, `<...>.json` beside it says what it is made of,
`<...>.<agent>.erofs` is the same as one file (`packs`), and `<...>.lock` is its lock: whoever uses the image holds it
shared until it dies, whoever builds or removes it holds it alone. Its time of change is when the image was last taken
into use. Invariants: an image is there whole or not at all; one in use, or named by a profile of today, is never
removed. Left out: building (`imaging`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an image."""

    name: str
    """Name of its directory."""
    profile: str
    recipe: str
    """The recipe as JSON."""
    size_bytes: int
    built: float
    """Seconds since the epoch."""
    built_s: float = 0.0
    """Seconds that the build took."""
    source: str = ""
    """Where it came from: the mirror, or the OCI manifest's digest."""
    environment: dict[str, str] = {}
    """Variables that an OCI image sets for its commands."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the store."""

    path: Path
    meta: Meta | None
    """None when nothing was written down about it: an image put there by hand or by an older release."""
    used: float
    """When it was last taken into use, seconds since the epoch."""
    busy: bool
    """Is a process using it now?"""
    packed_bytes: int = 0
    """Bytes of the same image as files."""


class Store:
    """The images of one home."""

    def __init__(self, home: Path) -> None:
        self.path = home / "images"

    def meta(self, path: Path) -> Meta | None:
        """What is known about the image at `path`."""
        try:
            return msgspec.json.decode(_beside(path, ".json").read_bytes(), type=Meta)
        except (OSError, msgspec.MsgspecError):
            return None

    def note(self, meta: Meta) -> None:
        """Write down what is known about an image, whole or not at all."""
        target = _beside(self.path / meta.name, ".json")
        new = target.with_name(f".{target.name}.{os.getpid()}")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(meta)))
        new.rename(target)

    def found(self, profile: str, digest: str) -> Path | None:
        """The image of this profile and recipe; of several (an OCI tag that moved) the one built last."""
        names = [self.path / f"{profile}-{digest}", *self.path.glob(f"{profile}-{digest}-*")]
        images = [path for path in names if path.is_dir()]
        return max(images, key=self._built, default=None)

    def _built(self, path: Path) -> float:
        meta = self.meta(path)
        return meta.built if meta else 0.0

    def packs(self, path: Path) -> list[Path]:
        """The image at `path` as files."""
        return [pack for pack in path.parent.glob("*.erofs") if pack.name.rsplit(".", 2)[0] == path.name]

    def images(self) -> list[Entry]:
        """All images, by name."""
        if not self.path.is_dir():
            return []
        paths = [path for path in sorted(self.path.iterdir()) if path.is_dir() and not path.name.startswith(".")]
        return [self._entry(path) for path in paths]

    def _entry(self, path: Path) -> Entry:
        try:
            used = _beside(path, ".lock").stat().st_mtime
        except FileNotFoundError:
            used = path.stat().st_mtime
        packed = sum(pack.stat().st_size for pack in self.packs(path))
        return Entry(path=path, meta=self.meta(path), used=used, busy=self._busy(path), packed_bytes=packed)

    def _busy(self, path: Path) -> bool:
        try:
            fd = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    # ------------------------------------------------------------ locks

    def hold(self, path: Path) -> int:
        """Take an image into use; the descriptor of its lock, to be kept open. FileNotFoundError when it is gone."""
        fd = self._lock(path, fcntl.LOCK_SH)
        if not path.is_dir():
            os.close(fd)
            raise FileNotFoundError(path)
        os.utime(fd)
        return fd

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold the lock of an image alone, waiting for it: for whoever builds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        fd = self._lock(self.path / name, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(fd)

    def _lock(self, path: Path, how: int) -> int:
        """A lock on the file that is there now: one that a collector removed meanwhile locks nothing."""
        while True:
            fd = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, how)
            except OSError:
                os.close(fd)
                raise
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    # ------------------------------------------------------------ removal

    def collect(
        self, keep: Collection[str], age_s: float, budget_bytes: int | None = None, dry: bool = False
    ) -> list[Entry]:
        """Remove images that nobody uses and `keep` does not name: unused for `age_s` seconds, and the least recently
        used ones until all together fit `budget_bytes`. What was removed, or with `dry` would be."""
        entries = self.images()
        total = sum(size_of(entry) for entry in entries)
        gone = []
        for entry in sorted(entries, key=lambda entry: entry.used):
            old = time.time() - entry.used > age_s
            over = budget_bytes is not None and total > budget_bytes
            if entry.path.name in keep or not (old or over) or (entry.busy if dry else not self.remove(entry.path)):
                continue
            total -= size_of(entry)
            gone.append(entry)
        if not dry:
            self._sweep()
        return gone

    def remove(self, path: Path) -> bool:
        """Remove an image; False when it is in use."""
        lock = _beside(path, ".lock")
        try:
            fd = self._lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            trash = self.path / f".gone-{path.name}"
            shutil.rmtree(trash, ignore_errors=True)
            path.rename(trash)
            for beside in (_beside(path, ".json"), *self.packs(path)):
                beside.unlink(missing_ok=True)
            shutil.rmtree(trash)
            lock.unlink(missing_ok=True)
        finally:
            os.close(fd)
        return True

    def _sweep(self) -> None:
        """Remove what a killed builder or collector left."""
        for path in self.path.glob(".gone-*"):
            shutil.rmtree(path, ignore_errors=True)
        locks = [*self.path.glob("*.lock"), *self.path.glob(".build-*.lock")]
        for lock in locks:
            image = lock.with_suffix("")
            if image.exists() and not image.name.startswith(".build-"):
                continue
            try:
                fd = self._lock(image, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(image, ignore_errors=True)
            lock.unlink(missing_ok=True)
            os.close(fd)


def size_of(entry: Entry) -> int:
    """Bytes of an image and its files, counted now when nobody wrote them down."""
    return (entry.meta.size_bytes if entry.meta else disk_bytes(entry.path)) + entry.packed_bytes


def disk_bytes(path: Path) -> int:
    """Bytes on disk of a tree; links are not followed and hard links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            status = os.lstat(os.path.join(folder, name))
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
