"""Commands as requests to the agent, and its answers as executions.

Invariants: pure; an answer is not trusted: what doesn't fit is `SandboxLost`, as is one that is too short or not a
number; what the agent flags decides the outcome together with the wait status (`attribution`). Left out: the exchange
(`remote`), what the agent does (`guest`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tiltyard_proto import validity
from tiltyard_proto.messages import Candidate, Command, ExecLimits, Execution

from .archive import Entry
from .attribution import attribute
from .backend import Background, SandboxLost, check_path

USERS = {"policy": 0, "grader": 1}
"""User by name: what is added to the policy's uid."""
INTERPRETER_VARIABLES = ("PYTHON", "LD_")
"""A script whose variables begin so gets an interpreter of its own."""
Partial = tuple[bytearray, bytearray]
"""What came early of stdout and stderr."""


def check(command: Command) -> None:
    """ValueError for a command that can't be run as it is; the text says why."""
    if command.user not in USERS:
        raise ValueError(f"command.user {command.user!r}: expected 'policy' or 'grader'")
    if command.candidate and command.user != "grader":
        raise ValueError("command.candidate: only a grader has one")
    if not command.argv or (command.candidate and not command.candidate.argv):
        raise ValueError("command.argv: expected a program and its arguments")
    for problem in validity.exec_limits(command.limits, "command.limits"):
        raise ValueError(problem)
    if (command.shell or command.background) and (command.stdin or command.candidate):
        raise ValueError("command: in a persistent shell or in the background there is neither stdin nor a candidate")
    if command.shell and command.user != "policy":
        raise ValueError("command: the persistent shell is the policy's")
    if command.shell and command.background:
        raise ValueError("command: either in the persistent shell (which has '&') or in the background")
    programs = (*command.argv, *(command.candidate.argv if command.candidate else ()))
    for text in (*programs, *command.env, *command.env.values()):
        if "\0" in text:
            raise ValueError("command: an argument or a variable contains a NUL character")
    if any("=" in name or not name for name in command.env):
        raise ValueError("command.env: expected names without '='")


def entries_of(files: Mapping[str, bytes], mode: int = 0o644) -> list[Entry]:
    """Files to write; ValueError for an impossible path."""
    return [("f", mode, check_path(path), data) for path, data in files.items()]


def request(command: Command, environment: Mapping[str, str], output_hard: int) -> dict[str, Any]:
    """What the agent is asked to run. ValueError for what can't be run."""
    check(command)
    limits = command.limits
    rlimits = (
        ("NPROC", limits.processes),
        ("NOFILE", limits.open_files),
        ("FSIZE", limits.disk_bytes),
        ("CPU", max(1, math.ceil(limits.cpu_s))),
        ("CORE", 0),
    )
    return {
        "op": "run",
        "argv": list(command.argv),
        "stdin": command.stdin,
        "entries": entries_of(command.files, 0o600 if command.candidate else 0o644),
        "env": {**environment, **command.env},
        "cwd": check_path(command.cwd) if command.cwd else b"",
        "user": USERS[command.user],
        "candidate": _candidate(command.candidate),
        "shell": command.shell,
        "keep": command.background,
        "fork": not any(name.startswith(INTERPRETER_VARIABLES) for name in command.env),
        "wall": float(limits.wall_s),
        "output": limits.output_bytes,
        "output_hard": max(output_hard, 2 * limits.output_bytes),
        "processes": limits.processes,
        "rlimits": list(rlimits),
    }


def _candidate(candidate: Candidate | None) -> tuple[list[str], list[Entry]] | None:
    return None if candidate is None else (list(candidate.argv), entries_of(candidate.files))


def execution(
    fields: Sequence[bytes], limits: ExecLimits, partial: Partial, refused_forks: int = 0
) -> tuple[Execution, frozenset[str]]:
    """A finished command and the agent's flags; SandboxLost when the answer doesn't fit."""
    if len(fields) != 12 or fields[0] != b"done":
        raise SandboxLost(f"the agent answered {fields[0][:40]!r}")
    flags = frozenset(fields[1].decode("ascii", "replace").split(","))
    if refused_forks:
        flags |= {"refused"}
    status, wall_us, cpu_us, peak = (number(field) for field in fields[2:6])
    ending = attribute(flags, status, cpu_us / 1e6, limits)
    stdout, stdout_dropped = _joined(partial[0], fields[6:9], limits.output_bytes)
    stderr, stderr_dropped = _joined(partial[1], fields[9:12], limits.output_bytes)
    found = Execution(
        outcome=ending.outcome,
        attribution=ending.attribution,
        exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        stdout=stdout,
        stderr=stderr,
        stdout_dropped=stdout_dropped,
        stderr_dropped=stderr_dropped,
        wall_s=wall_us / 1e6,
        cpu_s=cpu_us / 1e6,
        peak_memory_bytes=peak,
        shell_ended="shell" in flags,
        detail=ending.detail,
    )
    return found, flags


def jobs(fields: Sequence[bytes]) -> list[Background]:
    """Background commands; SandboxLost when the answer doesn't fit."""
    if len(fields) % 5:
        raise SandboxLost("the agent sent a malformed list of background commands")
    return [
        Background(
            number=number(fields[at]),
            program=fields[at + 4].decode("utf-8", "replace"),
            running=not fields[at + 1],
            stdout_bytes=number(fields[at + 2]),
            stderr_bytes=number(fields[at + 3]),
        )
        for at in range(0, len(fields), 5)
    ]


def keep(partial: Partial, fields: Sequence[bytes], limit: int) -> None:
    """Add early output, up to `limit` bytes a stream."""
    if len(fields) == 3 and fields[1] in (b"1", b"2"):
        into = partial[int(fields[1]) - 1]
        if len(into) + len(fields[2]) <= limit:
            into += fields[2]


def _joined(partial: bytearray, parts: Sequence[bytes], cap: int) -> tuple[bytes, int]:
    """The kept output, and how many bytes of it were dropped. `parts`: rest of the head, tail, total."""
    kept = (bytes(partial) + parts[0] + parts[1])[: 2 * cap]
    return kept, max(0, number(parts[2]) - len(kept))


def number(field: bytes, base: int = 10) -> int:
    """A number of the agent's; SandboxLost when it is none."""
    try:
        return int(field, base)
    except ValueError as error:
        raise SandboxLost("the agent sent a malformed number") from error
