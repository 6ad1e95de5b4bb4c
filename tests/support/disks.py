"""File systems of their own on loop devices, whose block images can be copied as a power cut would leave them.

`cut` copies the image file as the device has it now: what was synced is there, what only lies in the page cache of the
file system above is not. (fsfreeze would write all of that out first: the opposite of a power cut.) The writers are
stopped, and a copy counts only when the image stayed the same while it was made.
Invariant: nothing stays mounted after `close`. Needs root, losetup, mount and mkfs.ext4.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

TOOLS = {"mkfs.ext4": "e2fsprogs", "losetup": "mount", "mount": "mount", "umount": "mount"}


def require() -> None:
    """AssertionError with the line that mends it when this machine can't make loop devices."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    assert not missing, f"apt-get install -y {' '.join(missing)}"
    assert os.geteuid() == 0, "mounting needs root: sudo make test"


def run(*command: str | Path) -> None:
    """Run a command; its output is in the error when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"


class Disk:
    """One ext4 file system in an image file, mounted on a directory."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image = image
        self.mount_point = mount_point

    @classmethod
    def make(cls, root: Path, name: str, size: int = 96 << 20) -> Disk:
        """A new one; the journal is written back as late as possible, so that only syncs reach the device."""
        image = root / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        disk = cls(image, root / name)
        disk.mount()
        return disk

    def mount(self) -> None:
        """Mount; an image that was cut is recovered from its journal first, as after any power cut."""
        self.mount_point.mkdir(exist_ok=True)
        run("mount", "-o", "loop,commit=600", self.image, self.mount_point)

    def cut(self, root: Path) -> Disk:
        """What is on the device now, as a disk below `root`, mounted. Whoever writes must be stopped."""
        root.mkdir(exist_ok=True)
        copy = Disk(root / self.image.name, root / self.mount_point.name)
        for _ in range(10):
            shutil.copyfile(self.image, copy.image)
            if subprocess.run(["cmp", "-s", self.image, copy.image], check=False).returncode == 0:
                copy.mount()
                return copy
        raise AssertionError(f"{self.image} changes though its writers are stopped")

    def close(self) -> None:
        """Unmount; harmless when it is not mounted."""
        if self.mount_point.is_mount():
            run("umount", "-l", self.mount_point)
