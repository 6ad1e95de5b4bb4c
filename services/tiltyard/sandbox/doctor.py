"""Does the sandbox hold here? Judged by behaviour, in about a second: `python -m tiltyard.sandbox.doctor`.

Invariants: version strings are never looked at; every check that fails says how to mend it; nothing is left behind.
Left out: escapes from the sandbox, which no self-test can rule out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import anyio
import msgspec

from tiltyard_proto.messages import Command, ExecLimits, Execution
from tiltyard_proto.outcomes import Outcome

from .backend import Sandbox, StartFailed, Want
from .gvisor import GVisorBackend
from .settings import SandboxSettings

RUNSC = "get a working runsc with infra/setup/runsc.sh"
GROUPS = "give the service control groups with memory and pids (see the operations page)"
LIMITS = ExecLimits(wall_s=5.0, cpu_s=4.0, memory_bytes=64 << 20, processes=16, disk_bytes=16 << 20)
FORK = """
import os, time
made = 0
try:
    while made < 40:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        made += 1
except BlockingIOError:
    print("refused", made)
"""
FILL = """
try:
    with open("big", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
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
EAT = "block = b'x' * (1 << 30)\n"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    name: str
    ok: bool
    detail: str = ""
    mend: str = ""


def _script(source: str) -> Command:
    return Command(argv=("python3", "check.py"), files={"check.py": source.encode()}, limits=LIMITS)


class _Probe(msgspec.Struct, frozen=True):
    name: str
    command: Command
    good: Callable[[Execution], bool]
    mend: str


PROBES = (
    _Probe(
        "files",
        Command(argv=("sh", "-c", "ls -d /usr && stat -c %F /usr"), limits=LIMITS),
        lambda found: found.stdout == b"/usr\ndirectory\n",
        RUNSC,
    ),
    _Probe("processes", _script(FORK), lambda found: found.stdout.startswith(b"refused"), RUNSC),
    _Probe("disk", _script(FILL), lambda found: found.stdout.startswith(b"refused"), RUNSC),
    _Probe("network", _script(REACH), lambda found: found.stdout == b"refused\nrefused\n", RUNSC),
    _Probe("memory", _script(EAT), lambda found: found.outcome is Outcome.OUT_OF_MEMORY, GROUPS),
)


async def doctor(settings: SandboxSettings, profile: str = "python") -> list[Check]:
    """Start one sandbox and try what it must allow and what it must refuse."""
    try:
        backend = GVisorBackend.open(settings)
    except StartFailed as error:
        return [_not_started(error)]
    try:
        sandbox = await backend.start(Want(profile=profile, disk_bytes=LIMITS.disk_bytes))
        checks = [Check(name="start", ok=True, detail=f"{sandbox.start_s * 1000:.0f} ms, {backend.platform}")]
        checks += [await _check(sandbox, probe) for probe in PROBES]
        await sandbox.kill()
        checks.append(Check(name="clean-up", ok=backend.leaked == 0, detail=f"{backend.leaked} left", mend=GROUPS))
        return checks
    except StartFailed as error:
        return [_not_started(error)]
    finally:
        await backend.close()


def _not_started(error: StartFailed) -> Check:
    said = str(error)  # what is missing is named with its mend already
    return Check(name="start", ok=False, detail=said, mend="" if "infra/setup" in said else RUNSC)


async def _check(sandbox: Sandbox, probe: _Probe) -> Check:
    found = await sandbox.run(probe.command)
    ok = probe.good(found)
    said = (found.stdout + found.stderr).decode("utf-8", "replace").strip().replace("\n", ", ")
    detail = found.detail or said[-120:]
    return Check(name=probe.name, ok=ok, detail=detail, mend="" if ok else probe.mend)


def render(check: Check) -> str:
    """One finding as a line."""
    mend = f"; mend: {check.mend}" if check.mend and not check.ok else ""
    return f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}{mend}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; 0 when all is well."""
    parser = argparse.ArgumentParser(
        prog="python -m tiltyard.sandbox.doctor", description="Does the sandbox hold here?"
    )
    parser.add_argument("--runsc", default="", help="path of the runsc to judge")
    parser.add_argument("--home", default="", help="directory of runsc and images")
    parser.add_argument("--platform", default=SandboxSettings().platform, help="auto, systrap or ptrace")
    options = parser.parse_args(argv)
    settings = SandboxSettings(runsc=options.runsc, home=options.home, platform=options.platform)
    checks = anyio.run(doctor, settings, backend_options={"use_uvloop": True})
    for check in checks:
        print(render(check))
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
