"""Images as one file each (EROFS), which gVisor reads in its own process.

From a directory gVisor needs a helper process for the root file system; from a file it needs none, so that a start
costs a third less CPU and an idle sandbox a quarter less memory. Invariants: a file lies beside its image, named by
image and agent, which both never change, is there whole or not at all, and is made once however many ask for it; it
stays while a process holds it, and goes with its image, or when a file with another agent takes its place; where none
can be made or used, sandboxes start from the directory. Left out: images that lie outside the store, since nobody
says when they change.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import structlog

from .imagestore import Store

log = structlog.get_logger()
PROGRAM = "mkfs.erofs"
MAKE_S = 300.0
ENDING = ".erofs"
MARGIN_BYTES = 1 << 30
"""Free disk that has to be left."""

_held: dict[Path, int] = {}
_failed: set[Path] = set()
"""What could not be made is not tried again by this process."""


def program() -> str | None:
    """Path of the program that makes the files, or None."""
    return shutil.which(PROGRAM, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def root_of(pack: Path) -> dict[str, str]:
    """What tells runsc to take the root file system from a file."""
    return {"dev.gvisor.spec.rootfs.source": str(pack), "dev.gvisor.spec.rootfs.type": "erofs"}


def marks(pack: Path) -> tuple[str, int, int, int]:
    """Tells this file from any other, also from one made anew."""
    status = pack.stat()
    return pack.name, status.st_ino, status.st_size, status.st_mtime_ns


def take(image: Path, agent: str) -> Path | None:
    """The file of an image with its agent (`images.install_agent`), in use from now until this process ends.

    It is made when it is not there: a second for each 200 MiB. None where that can't be done. Blocks: use a thread.
    """
    store = Store(image.parent.parent)
    meta = store.meta(image)
    if meta is None:
        return None
    pack = image.with_name(f"{image.name}.{os.path.basename(agent)}{ENDING}")
    if _hold(pack):
        return pack
    if pack in _failed:
        return None
    try:
        with store.alone(f".pack-{image.name}"):
            if not pack.exists():
                _make(image, pack, meta.size_bytes)
                _drop_others(store, image, pack)
            return pack if _hold(pack) else None
    except (OSError, subprocess.SubprocessError) as error:
        _failed.add(pack)
        log.warning("image_not_packed", image=image.name, why=str(error))
        return None


def _make(image: Path, pack: Path, size: int) -> None:
    """Write the file, of about `size` bytes; OSError when that can't be done."""
    maker = program()
    if maker is None:
        raise FileNotFoundError(f"no {PROGRAM}; install erofs-utils")
    if shutil.disk_usage(image.parent).free < size + MARGIN_BYTES:
        raise OSError(f"{size >> 20} MiB and a margin don't fit the disk of {image.parent}")
    new = pack.with_name(f".{pack.name}.{os.getpid()}")
    try:
        command = [maker, "--quiet", "-x-1", "-Enoinline_data", str(new), str(image)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=MAKE_S, stdin=subprocess.DEVNULL)
        if done.returncode:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise OSError(f"{PROGRAM}: {said[-1][:200]}")
        new.chmod(0o644)
        new.rename(pack)
    finally:
        new.unlink(missing_ok=True)


def _hold(pack: Path) -> bool:
    """Keep the file from being removed while this process lives; False when it is not there."""
    if pack in _held and pack.exists():
        return True
    try:
        fd = os.open(pack, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(fd, fcntl.LOCK_SH)
    if not os.fstat(fd).st_nlink:
        os.close(fd)
        return False
    if pack in _held:
        os.close(_held[pack])
    _held[pack] = fd
    return True


def _drop_others(store: Store, image: Path, pack: Path) -> None:
    """Remove the files of this image with other agents that nobody holds, and what a killed maker left."""
    for path in store.path.glob(f".{image.name}.*{ENDING}.*"):
        path.unlink(missing_ok=True)
    for other in store.packs(image):
        if other == pack:
            continue
        with other.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            other.unlink(missing_ok=True)
