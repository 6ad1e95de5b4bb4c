"""Control groups of both versions on made-up trees; the real one is used by the contract and abuse suites."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tiltyard.sandbox.cgroups import CgroupError, Counters, Limits, Tree
from tiltyard.sandbox.instance import Instance, reconcile

LIMITS = Limits(memory_bytes=1000, pids=7, cpus=0.5)


def files(directory: Path, **contents: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (directory / name.replace("__", ".")).write_text(text)


def v1(tmp_path: Path) -> Tree:
    lines, own = [], []
    for number, controllers in enumerate(("memory", "pids", "cpu,cpuacct")):
        point = tmp_path / controllers.replace(",", "_")
        (point / "box").mkdir(parents=True)
        lines.append(f"30 25 0:2{number} / {point} rw,relatime - cgroup cgroup rw,{controllers}")
        own.append(f"{number}:{controllers}:/box")
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    (tmp_path / "own").write_text("\n".join(own))
    return Tree.find(str(tmp_path / "mountinfo"), str(tmp_path / "own"))


def v2(tmp_path: Path, controllers: str = "cpuset cpu io memory pids") -> Tree:
    point = tmp_path / "unified"
    files(point / "box", cgroup__controllers=controllers, cgroup__subtree_control="", cgroup__procs="")
    (tmp_path / "mountinfo").write_text(f"30 25 0:26 / {point} rw - cgroup2 cgroup2 rw")
    (tmp_path / "own").write_text("0::/box")
    return Tree.find(str(tmp_path / "mountinfo"), str(tmp_path / "own"))


def test_version_1_has_a_directory_per_controller(tmp_path: Path) -> None:
    """Each controller's group lies below our own in its hierarchy; limits go to the right files."""
    tree = v1(tmp_path)
    assert tree.version == 1
    group = tree.group("a/b")
    for directory in group.directories:
        directory.mkdir(parents=True)
    files(group.paths["memory"], memory__limit_in_bytes="500", memory__memsw__limit_in_bytes="500")
    group.create(LIMITS)
    assert (tmp_path / "memory/box/a/b/memory.memsw.limit_in_bytes").read_text() == "1000"
    assert (tmp_path / "memory/box/a/b/memory.limit_in_bytes").read_text() == "1000"
    assert (tmp_path / "pids/box/a/b/pids.max").read_text() == "7"
    assert (tmp_path / "cpu_cpuacct/box/a/b/cpu.cfs_quota_us").read_text() == "50000"
    assert len(group.entries) == 3
    assert tree.names("a") == ["b"]


def test_version_1_counters(tmp_path: Path) -> None:
    """Counters of version 1 are read from their files; a group that is gone counts zero."""
    group = v1(tmp_path).group("g")
    assert group.counters() == Counters()
    assert group.pids() == []
    files(
        group.paths["memory"],
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        memory__max_usage_in_bytes="99",
        cgroup__procs="5\n7\n",
    )
    files(group.paths["pids"], pids__events="max 3\n", cgroup__procs="5\n")
    files(group.paths["cpu"], cpuacct__usage="1500000000")
    assert group.counters() == Counters(oom_kills=2, pids_refused=3, cpu_s=1.5, memory_peak=99)
    assert group.pids() == [5, 7]


def test_version_2_has_one_directory(tmp_path: Path) -> None:
    """Version 2 enables the controllers for our children and keeps everything in one directory."""
    tree = v2(tmp_path)
    assert tree.version == 2
    assert (tmp_path / "unified/box/cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    group = tree.group("g")
    files(
        group.directories[0],
        memory__events="low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n",
        memory__peak="77",
        memory__swap__max="max",
        pids__events="max 4\n",
        cpu__stat="usage_usec 2500000\nuser_usec 1\n",
    )
    group.create(LIMITS)
    assert group.directories == [tmp_path / "unified/box/g"]
    assert (group.directories[0] / "memory.max").read_text() == "1000"
    assert (group.directories[0] / "memory.swap.max").read_text() == "0"
    assert (group.directories[0] / "cpu.max").read_text() == "50000 100000"
    assert group.counters() == Counters(oom_kills=1, pids_refused=4, cpu_s=2.5, memory_peak=77)


def test_missing_controllers_are_named(tmp_path: Path) -> None:
    """Where memory or pids can't be controlled, the error says which is missing and how to get it."""
    with pytest.raises(CgroupError, match=r"lacks memory pids.*Delegate"):
        v2(tmp_path, "cpuset cpu io")
    (tmp_path / "mountinfo").write_text("30 25 0:26 / / rw - ext4 /dev/vda rw")
    with pytest.raises(CgroupError, match="no cgroup file system"):
        Tree.find(str(tmp_path / "mountinfo"), str(tmp_path / "own"))


def test_a_live_instance_is_not_swept(tmp_path: Path) -> None:
    """Reconciling removes what dead instances left and nothing of one that holds its lock."""
    living = Instance(tmp_path, None)
    dead = Instance(tmp_path, None)
    (dead.path / "s1").mkdir()
    import os

    os.close(dead._lock)  # what the kernel does when a process dies
    assert reconcile(tmp_path, None) == 0
    assert living.path.is_dir()
    assert not dead.path.exists()
    living.close()
    assert not living.path.exists()


@pytest.mark.parametrize("gone", [errno.ENOENT, errno.ENODEV])
def test_a_group_that_goes_while_it_is_read_counts_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """The kernel answers ENODEV for a file of a group that was removed after it was opened."""
    group = v1(tmp_path).group("tiltyard/one")

    def read_text(self: Path) -> str:
        raise OSError(gone, "gone", str(self))

    monkeypatch.setattr(Path, "read_text", read_text)
    assert group.counters() == Counters()
    assert group.pids() == []


@pytest.mark.parametrize("version", [v1, v2])
def test_a_share_is_given_in_percent_of_the_usual_one(tmp_path: Path, version: Callable[[Path], Tree]) -> None:
    """Both versions know a share, by different names and with different usual values."""
    group = version(tmp_path).group("a")
    group.set_weight(20)  # not there yet: no error
    group.paths["cpu"].mkdir(parents=True)
    group.set_weight(20)
    assert [file.read_text() for file in group.paths["cpu"].iterdir()] == [{1: "204", 2: "20"}[group.version]]
