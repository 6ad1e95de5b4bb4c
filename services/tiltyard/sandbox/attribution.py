"""What an ending inside a sandbox means.

Judged by the agent's flags, the kernel's counters and the wait status, never by an exit code alone. Invariants: total
and pure. A limit that we enforced ourselves is the policy's doing; a sandbox that is gone for no counted reason is
the infrastructure's. Left out: what follows from an outcome (`tiltyard_proto.outcomes`).
"""

from __future__ import annotations

import os
import signal

from tiltyard_proto.messages import ExecLimits
from tiltyard_proto.outcomes import Outcome

from .cgroups import Counters


def signal_name(number: int) -> str:
    """'SIGSEGV' for 11; the number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def attribute(flags: frozenset[str], status: int, cpu_s: float, limits: ExecLimits) -> tuple[Outcome, str]:
    """Outcome and one line for a command that came to its end. `status` is a wait status, `flags` the agent's."""
    if "output" in flags:
        return Outcome.OUTPUT_LIMIT, "wrote too much output and was killed"
    if "processes" in flags and (status != 0 or "left" in flags or "wall" in flags):
        return Outcome.PROCESS_LIMIT, f"reached the limit of {limits.processes} processes and threads"
    if "wall" in flags:
        return Outcome.WALL_LIMIT, f"stopped after {limits.wall_s:g} s"
    if os.WIFSIGNALED(status):
        return _signalled(os.WTERMSIG(status), flags, cpu_s, limits)
    code = os.WEXITSTATUS(status)
    if code == 0:
        return Outcome.FINISHED, ""
    if "disk" in flags:
        return Outcome.DISK_LIMIT, f"the workspace of {limits.disk_bytes >> 20} MiB is full"
    return Outcome.NONZERO_EXIT, f"exit status {code}"


def _signalled(number: int, flags: frozenset[str], cpu_s: float, limits: ExecLimits) -> tuple[Outcome, str]:
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s >= limits.cpu_s):
        return Outcome.WALL_LIMIT, f"used more than {limits.cpu_s:g} s of CPU"
    if number == signal.SIGXFSZ or "disk" in flags:
        return Outcome.DISK_LIMIT, f"wrote more than {limits.disk_bytes >> 20} MiB"
    return Outcome.SIGNALLED, f"killed by {signal_name(number)}"


def attribute_loss(before: Counters, after: Counters, limits: ExecLimits) -> tuple[Outcome, str]:
    """Outcome and one line for a sandbox that died under a command."""
    if after.oom_kills > before.oom_kills:
        return Outcome.OUT_OF_MEMORY, f"used more than {limits.memory_bytes >> 20} MiB of memory and was killed"
    if after.pids_refused > before.pids_refused:
        return Outcome.PROCESS_LIMIT, "reached the host's limit of threads; the sandbox was killed"
    return Outcome.SANDBOX_LOST, "the sandbox died for no counted reason"
