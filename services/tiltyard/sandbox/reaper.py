"""Become the reaper of orphaned descendants, and reap those of one sandbox.

When a sandbox is killed its launcher dies with it, and what the launcher had started falls to the nearest reaper. With
this process as reaper, zombies go at once (init may take seconds) and their CPU time counts as this service's.
A sandbox that died by itself has left zombies that nobody can name any more; gVisor's processes are known by how they
were started, through /proc/self/exe, which nothing else in this service is. Invariant: only pids that are named and
adopted processes of that name are waited for, so other children of the process are left to their owners.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""
ADOPTED = "exe"
"""The kernel's name for what was started through /proc/self/exe."""


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; False where the system has no such thing."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap(pids: Iterable[int], within_s: float = 0.5) -> None:
    """Wait for killed processes that were adopted. Blocks up to `within_s` seconds: use a thread."""
    family = set(pids)
    left = set(family)
    deadline = time.monotonic() + within_s
    while left:
        left = {pid for pid in left if not _reaped(pid, family)}
        if left and time.monotonic() > deadline:
            return
        if left:
            time.sleep(0.003)


def _reaped(pid: int, family: set[int]) -> bool:
    """Is it reaped, or somebody else's to reap?

    One whose parent is just dying is not ours yet: it leaves its control group before it changes its parent.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        parent = parent_of(pid)
        return parent is None or (parent not in family and parent != os.getpid())


def parent_of(pid: int) -> int | None:
    """The parent of a process; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def reap_adopted() -> int:
    """Wait for the zombies that dead sandboxes have left; how many there were. Blocks for a moment: use a thread."""
    found = 0
    for pid in _children():
        try:
            name, state = _name_and_state(pid)
            if (name, state) == (ADOPTED, "Z") and os.waitpid(pid, os.WNOHANG)[0] == pid:
                found += 1
        except (FileNotFoundError, ProcessLookupError, ChildProcessError):
            continue
    return found


def _children() -> list[int]:
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                found += [int(pid) for pid in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _name_and_state(pid: int) -> tuple[str, str]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        before, _, after = file.read().decode("utf-8", "replace").rpartition(")")
    return before.partition("(")[2], after.split()[0]
