"""A Docker daemon of the tests' own, with gVisor as a runtime: nothing of the host's daemon is used or changed.

`socket()` starts it once per test process, in a directory of its own, without networks; it ends with the process.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tiltyard.sandbox import images
from tiltyard.sandbox.settings import SandboxSettings

READY_S = 30.0


@functools.cache
def socket() -> str:
    """Path of the daemon's socket."""
    program = shutil.which("dockerd", path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert program is not None, "dockerd is missing; `make sandbox-docker` installs it"
    place = Path(tempfile.mkdtemp(prefix="tiltyard-docker-"))
    runsc = {"path": images.find_runsc(SandboxSettings()), "runtimeArgs": ["--platform=systrap", "--network=none"]}
    (place / "daemon.json").write_text(json.dumps({"runtimes": {"runsc": runsc}}))
    options = {
        "config-file": place / "daemon.json",
        "data-root": place / "data",
        "exec-root": place / "exec",
        "host": f"unix://{place}/socket",
        "pidfile": place / "pid",
        "bridge": "none",
        "iptables": "false",
        "ip6tables": "false",
    }
    command = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        "--",
        program,
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    with (place / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    atexit.register(_stop, daemon, place)
    deadline = time.monotonic() + READY_S
    while "API listen" not in (place / "log").read_text():
        assert daemon.poll() is None, (place / "log").read_text()[-2000:]
        assert time.monotonic() < deadline, (place / "log").read_text()[-2000:]
        time.sleep(0.05)
    return str(place / "socket")


def _stop(daemon: subprocess.Popen[bytes], place: Path) -> None:
    daemon.terminate()
    try:
        daemon.wait(20)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
    for mount in Path("/proc/mounts").read_text().splitlines():
        where = mount.split()[1]
        if where.startswith(str(place)):
            subprocess.run(["umount", "-l", where], check=False)
    shutil.rmtree(place, ignore_errors=True)
