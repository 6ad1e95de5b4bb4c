"""What a run cost on this machine: `summary.json` beside the run.

A run may take several sessions: `tiltyard up` is interrupted or killed, and started again. Each keeps an entry of its
own, and the totals are their sums. Invariants: the file is replaced as a whole, so a crash leaves the older one; a
session writes its entry every few seconds, so one that is killed is missing these seconds and no more.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

RUNNING, KILLED = "running", "killed"


class Session(msgspec.Struct, kw_only=True):
    """One `tiltyard up`, from its start to its end."""

    state: str = RUNNING
    """How it ended; 'killed' when it could not say so."""
    started: float = msgspec.field(default_factory=time.time)
    ended: float = 0.0
    """Its last sign of life, seconds since the epoch."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of every process that it started, reaped descendants included."""
    cpu_by_service: dict[str, float] = {}
    restarts: dict[str, int] = {}


class Summary(msgspec.Struct, kw_only=True):
    """The run as a whole, and its sessions in order."""

    run: str
    state: str = "started"
    """Of the last session."""
    started: float = 0.0
    """When the first session began, seconds since the epoch; 0 when an older release wrote it."""
    ended: float = 0.0
    wall_s: float = 0.0
    """Of all sessions together; the time between them does not count."""
    cpu_s: float = 0.0
    cpu_by_service: dict[str, float] = {}
    restarts: dict[str, int] = {}
    sessions: tuple[Session, ...] = ()


def _sum(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {name: round(value, 2) for name, value in total.items()}


def summarise(run: str, sessions: Iterable[Session]) -> Summary:
    """The run that these sessions make, in their order."""
    all_ = tuple(sessions)
    return Summary(
        run=run,
        state=all_[-1].state,
        started=all_[0].started,
        ended=all_[-1].ended,
        wall_s=round(sum(each.wall_s for each in all_), 3),
        cpu_s=round(sum(each.cpu_s for each in all_), 3),
        cpu_by_service=_sum(each.cpu_by_service for each in all_),
        restarts={name: int(count) for name, count in _sum(dict(each.restarts) for each in all_).items()},
        sessions=all_,
    )


def earlier(path: Path) -> list[Session]:
    """The sessions that a `summary.json` tells of; none when it can't be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Summary)
    except (OSError, msgspec.MsgspecError):
        return []
    if not found.sessions:  # an older release kept the last session only
        names = ("state", "wall_s", "cpu_s", "cpu_by_service", "restarts")
        return [Session(started=0.0, **{name: getattr(found, name) for name in names})]
    for session in found.sessions:
        if session.state == RUNNING:
            session.state = KILLED
    return list(found.sessions)


def write(path: Path, summary: Summary) -> None:
    """Replace the file; OSError when that can't be."""
    fresh = path.with_suffix(".json.new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
    os.replace(fresh, path)
