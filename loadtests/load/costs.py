"""The costs that `tiltyard size` reckons with, from the two loads that it is built on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from load.drive import NOT_OURS, Result

from tiltyard.cli.size.model import Costs, Measured


def costs_of(results: Sequence[Result]) -> Costs | None:
    """The costs; None unless both loads were run."""
    found = {result.scenario.name: result for result in results}
    if not {"steady", "turns"} <= found.keys():
        return None
    when = time.strftime("%Y-%m-%d", time.gmtime())
    return Costs(
        machine=f"{os.cpu_count()} cores of {_processor()}, {when}",
        cores=os.cpu_count() or 1,
        answer=measured(found["steady"]),
        turns=measured(found["turns"]),
    )


def measured(result: Result) -> Measured:
    """One load as the model takes it."""
    cpu_ms = {name: round(value, 4) for name, value in result.cpu_ms().items()}
    turns = result.scenario.turns
    engine_ms = cpu_ms.pop(NOT_OURS)
    executed = turns if turns > 1 else 0
    return Measured(
        turns=turns, executed=executed, cpu_ms=cpu_ms, rate=round(result.rate_alone(), 1), engine_ms=round(engine_ms, 4)
    )


def _processor() -> str:
    """The processor's name, as the kernel has it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
