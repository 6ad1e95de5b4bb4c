"""One running service's place on the host, and the clean-up after those that are gone.

Every trace of a sandbox (state directory, control group) lies under its service's random instance id. Invariants: an
instance holds a lock on its directory as long as it lives (the kernel drops it at any death), so reconciling never
touches what belongs to a live one. Left out: other hosts; `home` must not be shared between machines.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import structlog

from .backend import StartFailed
from .cgroups import CgroupError, Tree

GROUP = "tiltyard"


class Instance:
    """The lock, the directory and the groups of this service."""

    def __init__(self, home: Path, tree: Tree | None) -> None:
        self.id = secrets.token_hex(4)
        self.tree = tree
        self.path = home / "run" / self.id
        hidden = home / "run" / f".{self.id}"  # until it is locked, so that nobody takes it for a dead one
        hidden.mkdir(parents=True, mode=0o700)
        self._lock = os.open(hidden / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(self.path)

    def group_name(self, sandbox: str) -> str:
        return f"{GROUP}/{self.id}/{sandbox}"

    def reconcile(self, live: Callable[[], set[str]]) -> tuple[set[str], set[str]]:
        """Remove what belongs to none of the sandboxes of `live`: names of what was found, and of what stays.

        `live` is asked after the traces were listed, so that one which is just being made is never taken for a stray.
        """
        prefix = f"{GROUP}/{self.id}"
        groups = set(self.tree.names(prefix)) if self.tree is not None else set()
        found = groups | {path.name for path in self.path.glob("s[0-9]*")}
        strays = found - live()
        stay: set[str] = set()
        for name in sorted(strays):
            path = self.path / name
            gone = True
            if self.tree is not None and name in groups:
                gone = self.tree.group(f"{prefix}/{name}").destroy()
            shutil.rmtree(path, ignore_errors=True)
            if not gone or path.exists():
                stay.add(name)
        return strays, stay

    def close(self) -> None:
        """Remove what is left of this instance and let the lock go."""
        sweep(self.path, self.tree)
        os.close(self._lock)


def is_alive(home: Path, instance: str) -> bool:
    """Does the service with this instance id live? False for one that is unknown here."""
    try:
        lock = os.open(home / "run" / Path(instance).name / "lock", os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def sweep(path: Path, tree: Tree | None) -> int:
    """Kill and remove everything of the instance at `path`; how many sandboxes it still had."""
    found = 0
    if tree is not None:
        prefix = f"{GROUP}/{path.name}"
        for name in tree.names(prefix):
            found += 1
            if not tree.group(f"{prefix}/{name}").destroy():
                structlog.get_logger().error("cgroup_stays", group=f"{prefix}/{name}")
        tree.group(prefix).remove()
    shutil.rmtree(path, ignore_errors=True)
    return found


def settle(home: Path) -> tuple[Tree, Instance]:
    """Find this machine's control groups, clean up after dead instances and become one; StartFailed without groups."""
    try:
        tree = Tree.find()
    except (OSError, CgroupError) as error:
        raise StartFailed(f"control groups: {error}") from error
    swept = reconcile(home, tree)
    if swept:
        structlog.get_logger().warning("swept_dead_sandboxes", count=swept)
    return tree, Instance(home, tree)


def reconcile(home: Path, tree: Tree | None) -> int:
    """Clean up after dead instances; how many sandboxes they had left. Live instances are not touched."""
    runs = home / "run"
    found = 0
    for path in sorted(runs.iterdir()) if runs.is_dir() else []:
        if path.name.startswith("."):
            continue
        try:
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # being made or being removed by its owner
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            found += sweep(path, tree)
        finally:
            os.close(lock)
    return found
