"""What a run cost on this machine: `summary.json` beside the run."""

from __future__ import annotations

import msgspec


class Summary(msgspec.Struct, kw_only=True):
    """What a run cost on this machine; written as `summary.json` beside the run."""

    run: str
    state: str = "started"
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """Of every process that this command started, reaped descendants included."""
    cpu_by_service: dict[str, float] = {}
    restarts: dict[str, int] = {}
