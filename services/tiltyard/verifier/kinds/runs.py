"""What kinds share whose submissions are programs of any language: the job, and reading its results.

Invariants: expected output never enters the sandbox; a missing, garbled or late result is a wrong answer, never an
error. Left out: comparing, which is each kind's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tiltyard.domains.interfaces import code_of, fenced_blocks
from tiltyard_proto.messages import Command, Graded, Job, Rollout, Task

from .base import Part
from .guest import script
from .sandboxed import call_results
from .values import Unreadable, untag

RESULTS = "results.jsonl"
RUNNER = script("program_runs")
CPU_S, WALL_S = 1, 3.0
"""Limits of one run; the wide wall time is for machines that are busy."""


class Ran(Part, frozen=True):
    """What one run of a program left; a status below 0 is the signal that ended it."""

    status: int
    stdout: str


def runs_job(
    task: Task, rollout: Rollout, files: Mapping[str, bytes], build: Sequence[str], runs: Sequence[dict[str, Any]]
) -> Job:
    """The job that builds a program from `files` and makes the runs (argv, stdin, files)."""
    filled = [{"stdin": b"", "files": {}, **run} for run in runs]
    described = {"build": list(build), "runs": filled, "cpu_s": CPU_S, "wall_s": WALL_S}
    return Job(
        rollout=rollout,
        command=Command(
            argv=("python3", "runner.py"),
            files={"runner.py": RUNNER, "job.txt": repr(described).encode(), **files},
            limits=task.environment.limits,
        ),
        profile=task.environment.profile,
        deterministic=True,
        collect=(RESULTS,),
    )


def results(graded: Graded, count: int) -> tuple[list[Ran | str], str]:
    """For each run what it left or why there is nothing, and why the program couldn't be built."""
    records, building = call_results(graded.files.get(RESULTS, b""), count)
    return [_ran(records.get(index), graded) for index in range(count)], building


def _ran(record: dict[str, object] | None, graded: Graded) -> Ran | str:
    if record is None:
        return f"there is no result ({graded.execution.outcome.value})"
    try:
        return msgspec.convert(untag(record.get("value")), Ran, strict=True)
    except (Unreadable, msgspec.ValidationError):
        return "the result can't be read"


def failed(ran: Ran) -> str:
    """Why a run counts for nothing, whatever it printed; empty when it ended well."""
    if ran.status == -9:
        return f"used more than {CPU_S} s of CPU, or didn't end"
    return f"ended with {'signal' if ran.status < 0 else 'status'} {abs(ran.status)}" if ran.status else ""


def extract_block(text: str, defines: str) -> str:
    """The last fenced block in which the pattern `defines` is found, else the last block, else the whole text."""
    for block in reversed(fenced_blocks(text)):
        if re.search(defines, block):
            return block
    return code_of(text)
