"""Become the reaper of orphaned descendants, and reap those of one sandbox.

When a sandbox is killed its launcher dies with it, and what the launcher had started falls to the nearest reaper. With
this process as reaper, zombies go at once (init may take seconds) and their CPU time counts as this service's.
Invariant: only pids that are named are waited for, so other children of the process are left to their owners.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""


def become_subreaper() -> bool:
    """Adopt orphaned descendants from now on; False where the system has no such thing."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def reap(pids: Iterable[int], within_s: float = 0.5) -> None:
    """Wait for killed processes that were adopted. Blocks up to `within_s` seconds: use a thread."""
    left = set(pids)
    deadline = time.monotonic() + within_s
    while left:
        left = {pid for pid in left if not _reaped(pid)}
        if left and time.monotonic() > deadline:
            return
        if left:
            time.sleep(0.003)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # not ours: its parent lives and reaps it, or it is gone
        return True
