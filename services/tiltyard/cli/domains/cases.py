"""`tiltyard domains cases`: a file of cases through the real verifiers, case by case."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence

import anyio
import msgspec

from tiltyard.cli.errors import UserError
from tiltyard.cli.sandbox.services import settings_of
from tiltyard.gate.cases import Row, judge, read_cases
from tiltyard.gate.grading import Grader, sandboxed
from tiltyard.sandbox.backend import SandboxError
from tiltyard.sandbox.reaper import become_subreaper
from tiltyard.verifier.kinds.registry import installed
from tiltyard.verifier.kinds.trials import Case


def cases_main(arguments: Namespace) -> int:
    """A line for each case; 1 when one of them doesn't hold."""
    become_subreaper()
    try:
        cases = [one for one in read_cases(arguments.file) if not arguments.kind or one.kind in arguments.kind]
    except OSError as error:
        raise UserError(f"{arguments.file}: {error.strerror}") from error
    if not cases:
        raise UserError(f"{arguments.file}: there is no case in it")
    begun = time.monotonic()
    try:
        rows = anyio.run(_run, arguments, cases, backend_options={"use_uvloop": True})
    except* SandboxError as group:
        raise UserError(f"{group.exceptions[0]}; what does `tiltyard sandbox doctor` say?") from group
    held = sum(row.holds for row in rows)
    print(f"{held} of {len(rows)} cases hold, {time.monotonic() - begun:.0f} s")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return 0 if held == len(rows) else 1


async def _run(arguments: Namespace, cases: Sequence[Case]) -> list[Row]:
    rows: list[Row] = []
    async with sandboxed(settings_of(arguments)) as worker:
        grader = Grader(installed(), worker)
        for case in cases:
            row = await judge(case, grader)
            rows.append(row)
            print(_line(row), flush=True)
    return rows


def _line(row: Row) -> str:
    wanted = "" if row.holds else f", wanted {row.wanted['verdict']} ({row.wanted['score']})"
    why = f": {row.reasons[0][:120]}" if row.reasons else ""
    return f"{'ok    ' if row.holds else 'WRONG '} {row.kind:14} {row.id:8} {row.verdict} ({row.score}){wanted}{why}"
