"""Side effects: what judging left behind in this process and on its disk.

Looked at are the working and temporary directories, child processes, threads, signal handlers, environment variables,
and state that libraries like to change for everybody (random, decimal, locale, recursion limit, warnings).
"""

from __future__ import annotations

import decimal
import locale
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tiltyard.verifier import limits

_OURS = "AnyIO worker thread"
"""Kinds that wait are called in such threads, and they stay."""


@contextmanager
def apart() -> Iterator[Path]:
    """Work in an empty directory that is also the one for temporary files."""
    before, old = Path.cwd(), tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="tiltyard-gate-") as name:
        os.chdir(name)
        tempfile.tempdir = name
        try:
            yield Path(name)
        finally:
            os.chdir(before)
            tempfile.tempdir = old


def snapshot() -> dict[str, object]:
    """What must be the same before and after; equal values mean that nothing was left."""
    return {
        "files in the working directory": sorted(str(path) for path in Path.cwd().rglob("*")),
        "child processes": _children() - limits.processes(),
        "threads": sorted(
            thread.name for thread in threading.enumerate() if not thread.daemon and thread.name != _OURS
        ),
        "signal handlers": {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT)},
        "environment variables": dict(os.environ),
        "the state of random": hash(random.getstate()),
        "the decimal context": repr(decimal.getcontext()),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the recursion limit": sys.getrecursionlimit(),
        "warning filters": len(warnings.filters),
        "the working directory": str(Path.cwd()),
    }


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """What is not the same any more."""
    return [name for name, value in before.items() if after[name] != value]


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except OSError:  # a thread that has just ended
            continue
    return found
