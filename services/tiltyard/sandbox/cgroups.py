"""Control groups that the service owns: one per sandbox, with limits, counters and a kill that reaches everything.

Invariants: a sandbox's launcher enters its group before it becomes runsc, so nothing of it is ever outside; counters
are read before the group is removed, since exit codes can't tell an out-of-memory kill from ours. Version 1 (one
directory per controller) and version 2 (one directory) are both here and chosen by what is mounted. Left out: systemd
slices; device rules, which gVisor makes pointless.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import msgspec

V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
V2_CONTROLLERS = ("memory", "pids", "cpu")
PERIOD_US = 100_000
GONE = (errno.ENOENT, errno.ENODEV)
"""What the kernel says of the files of a group that is removed."""


class CgroupError(RuntimeError):
    """Control groups can't be used here; the message says what is missing."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one group."""

    memory_bytes: int
    pids: int
    cpus: float


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel counted for one group."""

    oom_kills: int = 0
    pids_refused: int = 0
    cpu_s: float = 0.0
    memory_peak: int = 0
    memory: int = 0
    """In use now, bytes."""


class Tree:
    """Where groups can be made: the service's own groups, by controller."""

    def __init__(self, roots: dict[str, Path], version: int) -> None:
        self.roots, self.version = roots, version

    @classmethod
    def find(cls, mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup") -> Tree:
        """The tree of this machine; CgroupError without memory and pids control."""
        points = _mounts(Path(mounts).read_text())
        paths = _own_paths(Path(own).read_text())
        if all(name in points for name in ("memory", "pids", "cpu")):
            v1 = {name: _join(points[name], paths.get(name, "/")) for name in V1_CONTROLLERS if name in points}
            return cls(v1, 1)
        if "" not in points:
            raise CgroupError("no cgroup file system with memory, pids and cpu; mount one (usually at /sys/fs/cgroup)")
        base = _join(points[""], paths.get("", "/"))
        _delegate(base)
        return cls(dict.fromkeys(V2_CONTROLLERS, base), 2)

    def group(self, name: str) -> Cgroup:
        """The group `name` (a relative path), not yet made."""
        return Cgroup({controller: root / name for controller, root in self.roots.items()}, self.version)

    def names(self, prefix: str) -> list[str]:
        """Groups that exist directly below the group `prefix`."""
        found = {
            entry.name
            for root in set(self.roots.values())
            if (root / prefix).is_dir()
            for entry in (root / prefix).iterdir()
            if entry.is_dir()
        }
        return sorted(found)


def _mounts(text: str) -> dict[str, Path]:
    """Mount point by controller; version 2 under the empty name. `text` is a mountinfo file."""
    found: dict[str, Path] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        point, kind = left.split()[4], right.split()[0]
        if kind == "cgroup2":
            found.setdefault("", Path(point))
        elif kind == "cgroup":
            for option in right.split()[2].split(","):
                found.setdefault(option, Path(point))
    return found


def _own_paths(text: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _join(point: Path, path: str) -> Path:
    """Our group below the mount point; the mount point itself where a container shows only a part of the tree."""
    inside = point / path.lstrip("/")
    return inside if inside.is_dir() else point


def _delegate(base: Path) -> None:
    """Version 2: let children of `base` have controllers; our processes move to a leaf when the kernel asks for it."""
    wanted = " ".join(f"+{name}" for name in V2_CONTROLLERS)
    have = (base / "cgroup.controllers").read_text().split()
    missing = [name for name in V2_CONTROLLERS if name not in have]
    if missing:
        raise CgroupError(f"cgroup {base} lacks {' '.join(missing)}; delegate them (systemd: Delegate=yes)")
    try:
        (base / "cgroup.subtree_control").write_text(wanted)
    except OSError:
        leaf = base / "tiltyard-service"
        leaf.mkdir(exist_ok=True)
        for pid in (base / "cgroup.procs").read_text().split():
            (leaf / "cgroup.procs").write_text(pid)
        (base / "cgroup.subtree_control").write_text(wanted)


class Cgroup:
    """One group, in as many directories as the version needs."""

    def __init__(self, paths: dict[str, Path], version: int) -> None:
        self.paths, self.version = paths, version
        self.seen: set[int] = set()
        """Processes that `kill` has found in it: those to be reaped."""

    @property
    def directories(self) -> list[Path]:
        return list(dict.fromkeys(self.paths.values()))

    @property
    def entries(self) -> list[Path]:
        """Files to write a pid to, in order to enter the group."""
        return [directory / "cgroup.procs" for directory in self.directories]

    def create(self, limits: Limits) -> None:
        """Make the group with its limits; CgroupError when the kernel refuses."""
        try:
            for directory in self.directories:
                directory.mkdir(parents=True, exist_ok=True)
                if self.version == 2:
                    _enable_parent(directory.parent)
            self.set_memory(limits.memory_bytes)
            (self.paths["pids"] / "pids.max").write_text(str(limits.pids))
            quota = int(limits.cpus * PERIOD_US)
            if self.version == 1:
                (self.paths["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (self.paths["cpu"] / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        except OSError as error:
            raise CgroupError(f"{error.filename or self.directories[0]}: {error.strerror}; limits need root") from error

    def set_memory(self, size: int) -> None:
        """Limit memory and swap together; also while the group is in use."""
        memory = self.paths["memory"]
        if self.version == 2:
            (memory / "memory.max").write_text(str(size))
            if (memory / "memory.swap.max").exists():
                (memory / "memory.swap.max").write_text("0")
            return
        files = [memory / "memory.limit_in_bytes", memory / "memory.memsw.limit_in_bytes"]
        files = [file for file in files if file.exists()]
        if int(files[0].read_text()) < size:
            files.reverse()
        for file in files:
            file.write_text(str(size))

    def set_weight(self, percent: int) -> None:
        """Its share of a processor that others want too, in percent of the usual one; ignored once it is gone."""
        name, usual = ("cpu.weight", 100) if self.version == 2 else ("cpu.shares", 1024)
        try:
            (self.paths["cpu"] / name).write_text(str(usual * percent // 100))
        except OSError as error:
            if error.errno not in GONE:
                raise

    def counters(self) -> Counters:
        """What has been counted so far; zeros once the group is gone."""
        memory, pids = self.paths["memory"], self.paths["pids"]
        if self.version == 2:
            return Counters(
                oom_kills=_field(memory / "memory.events", "oom_kill"),
                pids_refused=_field(pids / "pids.events", "max"),
                cpu_s=_field(self.paths["cpu"] / "cpu.stat", "usage_usec") / 1e6,
                memory_peak=_number(memory / "memory.peak"),
                memory=_number(memory / "memory.current"),
            )
        return Counters(
            oom_kills=_field(memory / "memory.oom_control", "oom_kill"),
            pids_refused=_field(pids / "pids.events", "max"),
            cpu_s=_number(self.paths.get("cpuacct", self.paths["cpu"]) / "cpuacct.usage") / 1e9,
            memory_peak=_number(memory / "memory.max_usage_in_bytes"),
            memory=_number(memory / "memory.usage_in_bytes"),
        )

    def pids(self) -> list[int]:
        """Processes in the group."""
        found: set[int] = set()
        for entry in self.entries:
            found.update(int(pid) for pid in _read(entry).split())
        return sorted(found - {0})

    def kill(self) -> None:
        """SIGKILL every process in the group, once."""
        found = self.pids()
        self.seen.update(found)
        if self.version == 2:
            try:
                (self.directories[0] / "cgroup.kill").write_text("1")
                return
            except FileNotFoundError:
                pass
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def remove(self) -> bool:
        """Remove the directories; False while something is still in there."""
        gone = True
        for directory in self.directories:
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone

    def destroy(self, within_s: float = 2.0) -> bool:
        """Kill and remove, again and again until it is gone; False after `within_s` seconds. Blocks: use a thread."""
        deadline = time.monotonic() + within_s
        while True:
            self.kill()
            if self.remove():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.003)


def _enable_parent(parent: Path) -> None:
    control = parent / "cgroup.subtree_control"
    if not set(V2_CONTROLLERS) <= set(control.read_text().split()):
        control.write_text(" ".join(f"+{name}" for name in V2_CONTROLLERS))


def _read(path: Path) -> str:
    """A file of a group; empty once the group is gone, also when it goes between opening and reading."""
    try:
        return path.read_text()
    except OSError as error:
        if error.errno in GONE:
            return ""
        raise


def _field(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _number(path: Path) -> int:
    return int(_read(path) or 0)
