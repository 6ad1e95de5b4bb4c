"""What an ending inside a sandbox means.

Judged by the agent's flags, the kernel's counters and the wait status, never by an exit code alone. Invariants: total
and pure. A limit that we enforced ourselves is the policy's doing. A sandbox that died under a command for no counted
reason, or whose agent stopped answering, may be the doing of either side: its outcome is the infrastructure's (it is
tried again) or the wall limit, its attribution ambiguous. A fork that the guest's kernel refused is the process limit,
however the main process coped. Where nobody counts those (`refusals`), the agent's looks at the number of processes
stand in, twenty a second while they are many, and a bomb that is over between two ends as its main process says.
Left out: what follows from an outcome (`tiltyard_proto.outcomes`).
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

from tiltyard_proto.messages import ExecLimits
from tiltyard_proto.outcomes import Attribution, Outcome

from .cgroups import Counters


class Ending(NamedTuple):
    """How a command ended, one line for a person, and whose doing it was."""

    outcome: Outcome
    detail: str
    attribution: Attribution = Attribution.POLICY


def signal_name(number: int) -> str:
    """'SIGSEGV' for 11; the number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def attribute(flags: frozenset[str], status: int, cpu_s: float, limits: ExecLimits) -> Ending:
    """Outcome and one line for a command that came to its end. `status` is a wait status, `flags` the agent's."""
    if "output" in flags:
        return Ending(Outcome.OUTPUT_LIMIT, "wrote too much output and was killed")
    if "refused" in flags:
        return Ending(Outcome.PROCESS_LIMIT, f"forks were refused at the limit of {limits.processes} processes")
    if "processes" in flags and (status != 0 or "left" in flags or "wall" in flags):
        return Ending(Outcome.PROCESS_LIMIT, f"reached the limit of {limits.processes} processes and threads")
    if "interrupted" in flags:
        return Ending(Outcome.WALL_LIMIT, "interrupted")
    if "wall" in flags:
        return Ending(Outcome.WALL_LIMIT, f"stopped after {limits.wall_s:g} s")
    if os.WIFSIGNALED(status):
        return _signalled(os.WTERMSIG(status), flags, cpu_s, limits)
    code = os.WEXITSTATUS(status)
    if code == 0:
        return Ending(Outcome.FINISHED, "")
    if "disk" in flags:
        return Ending(Outcome.DISK_LIMIT, f"the workspace of {limits.disk_bytes >> 20} MiB is full")
    return Ending(Outcome.NONZERO_EXIT, f"exit status {code}")


def _signalled(number: int, flags: frozenset[str], cpu_s: float, limits: ExecLimits) -> Ending:
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= limits.cpu_s):
        return Ending(Outcome.WALL_LIMIT, f"used more than {limits.cpu_s:g} s of CPU")
    if number == signal.SIGXFSZ or "disk" in flags:
        return Ending(Outcome.DISK_LIMIT, f"wrote more than {limits.disk_bytes >> 20} MiB")
    return Ending(Outcome.SIGNALLED, f"killed by {signal_name(number)}")


def attribute_loss(before: Counters, after: Counters, limits: ExecLimits) -> Ending:
    """Outcome and one line for a sandbox that died under a command."""
    if after.oom_kills > before.oom_kills:
        return Ending(Outcome.OUT_OF_MEMORY, f"used more than {limits.memory_bytes >> 20} MiB of memory and was killed")
    if after.pids_refused > before.pids_refused:
        return Ending(Outcome.PROCESS_LIMIT, "reached the host's limit of threads; the sandbox was killed")
    return Ending(Outcome.SANDBOX_LOST, "the sandbox died for no counted reason", Attribution.AMBIGUOUS)


def unanswered(limits: ExecLimits) -> Ending:
    """The ending of a command whose sandbox had to be killed, since its agent did not answer after the wall limit."""
    why = f"stopped after {limits.wall_s:g} s; the sandbox had to be killed"
    return Ending(Outcome.WALL_LIMIT, why, Attribution.AMBIGUOUS)
