"""What the self-test tries in a sandbox: what it must allow, and what it must refuse.

Invariants: a probe is judged by what it did, and each names the mend. Left out: starting the sandbox (`doctor`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

from .backend import Sandbox

RUNSC = "get a working runsc with infra/setup/runsc.sh"
PLATFORM = "take another sandbox.platform, or " + RUNSC
PACK = "install erofs-utils"
GROUPS = "give the service control groups with memory and pids (see the operations page)"
LIMITS = ExecLimits(wall_s=5.0, cpu_s=4.0, memory_bytes=64 << 20, processes=8, disk_bytes=16 << 20)
FORK = """
import os, time
made = 0
try:
    while made < 20:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        made += 1
except BlockingIOError:
    print("refused", made)
"""
FILL = """
try:
    for number in range(10):
        with open(f"part{number}", "wb") as file:
            file.write(bytes(4 << 20))
except OSError as error:
    print("refused", error.errno)
"""
REACH = """
import socket
for address in ("1.1.1.1", "169.254.169.254"):
    try:
        socket.create_connection((address, 80), timeout=2)
    except TimeoutError:
        print("hangs")
    except OSError:
        print("refused")
"""
USER = """
import os, signal
try:
    os.kill(1, signal.SIGKILL)
except PermissionError:
    print("refused", os.getuid())
"""
EAT = "block = b'x' * (1 << 30)\n"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    name: str
    ok: bool
    detail: str = ""
    mend: str = ""
    optional: bool = False
    """Without it sandboxes hold all the same; something is slower or missing."""


def _script(source: str) -> Command:
    return Command(argv=("python3", "check.py"), files={"check.py": source.encode()}, limits=LIMITS)


class Probe(msgspec.Struct, frozen=True):
    """A command, and whether its ending is the right one."""

    name: str
    command: Command
    good: Callable[[Execution], bool]
    mend: str


PROBES = (
    Probe(
        "files",
        Command(argv=("sh", "-c", "ls -d /usr && stat -c %F /usr"), limits=LIMITS),
        lambda found: found.stdout == b"/usr\ndirectory\n",
        RUNSC,
    ),
    Probe("processes", _script(FORK), lambda found: found.stdout.startswith(b"refused"), RUNSC),
    Probe("disk", _script(FILL), lambda found: found.stdout.startswith(b"refused"), RUNSC),
    Probe("network", _script(REACH), lambda found: found.stdout == b"refused\nrefused\n", RUNSC),
    Probe("user", _script(USER), lambda found: found.stdout.startswith(b"refused"), RUNSC),
    Probe("memory", _script(EAT), lambda found: found.outcome is Outcome.OUT_OF_MEMORY, GROUPS),
)


async def check(sandbox: Sandbox, tried: Probe) -> Check:
    """Try one probe in a sandbox."""
    found = await sandbox.run(tried.command)
    ok = tried.good(found)
    said = (found.stdout + found.stderr).decode("utf-8", "replace").strip().replace("\n", ", ")
    detail = found.detail or said[-120:]
    return Check(name=tried.name, ok=ok, detail=detail, mend="" if ok else tried.mend)
