"""Try whether a runsc can take a snapshot, go on after it, and restore it.

The smallest sandbox there is (`cat` as its first process) is asked to echo before and after. Some versions destroy the
original of a snapshot, some write images that they can't read, and no help text says so. Invariants: everything runs
in the control group that is handed in, and nothing of it is left. Left out: snapshots of real sandboxes.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from .cgroups import Cgroup, Limits
from .probe import Capabilities
from .reaper import reap

ECHO_S = 10.0
LIMITS = Limits(memory_bytes=512 << 20, pids=1024, cpus=2.0)


class Snapshots(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    restore: bool = False
    leave_running: bool = False
    detail: str = ""


class Trial:
    """One trial, in a directory and a control group of its own. Blocks: use a thread."""

    def __init__(self, able: Capabilities, runsc: str, platform: str, image: Path, path: Path, group: Cgroup) -> None:
        self.able, self.path, self.group = able, path, group
        self.flags = [runsc, "--root", str(path / "state"), f"--platform={platform}", "--network=none"]
        self.flags += able.given("--net-raw=false", "--ignore-cgroups", "--overlay2=none")
        self.bundle = path / "bundle"
        self.bundle.mkdir(parents=True)
        (self.bundle / "config.json").write_text(json.dumps(_spec(image)))

    def run(self) -> Snapshots:
        """Snapshot and go on; restore. A runsc that can't go on is tried again without."""
        try:
            going = self._attempt("a", leave_running=True)
            if going.restore:
                return going
            return msgspec.structs.replace(self._attempt("b", leave_running=False), detail=going.detail)
        except subprocess.TimeoutExpired as error:
            return Snapshots(detail=f"runsc {error.cmd[-1]}: no end within {error.timeout:g} s")

    def _attempt(self, name: str, *, leave_running: bool) -> Snapshots:
        image = self.path / f"image-{name}"
        with self._sandbox("run", f"trial-{name}", []) as original:
            if not echoes(original):
                return Snapshots(detail="the sandbox did not answer")
            code, said = self._checkpoint(f"trial-{name}", image, leave_running)
            if code and not leave_running:
                return Snapshots(detail=f"checkpoint: {said}")
            goes_on = leave_running and code == 0 and echoes(original)
            if leave_running and not goes_on:
                return Snapshots(detail="the original of a snapshot is lost")
        with self._sandbox("restore", f"trial-{name}-2", ["--image-path", str(image)]) as clone:
            if not echoes(clone):
                return Snapshots(leave_running=goes_on, detail="the restored sandbox did not answer")
        return Snapshots(restore=True, leave_running=goes_on)

    def _checkpoint(self, name: str, image: Path, leave_running: bool) -> tuple[int, str]:
        options = ["--image-path", str(image)]
        options += ["--compression=none"] if self.able.uncompressed else []
        options += ["--leave-running"] if leave_running else []
        done = subprocess.run(
            [*self.flags, "checkpoint", *options, name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ECHO_S,
            check=False,
            start_new_session=True,
        )
        return done.returncode, done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]

    @contextmanager
    def _sandbox(self, how: str, name: str, options: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A sandbox in the control group; afterwards the group is gone with all that was in it."""
        self.group.create(LIMITS)
        command = ["setpriv", "--pdeathsig", "KILL", "--", *self.flags, how, *options]
        entries = [str(entry) for entry in self.group.entries]
        enter = 'for entry in "$@"; do [ "$entry" = -- ] && break; echo 0 > "$entry"; shift; done; shift; exec "$@"'
        process = subprocess.Popen(
            ["/bin/sh", "-c", enter, "enter", *entries, "--", *command, "--bundle", str(self.bundle), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        family = set(self.group.pids())
        self.group.destroy()
        process.kill()
        process.wait()
        reap(family - {process.pid})
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self.path / "state", ignore_errors=True)


def echoes(process: subprocess.Popen[bytes]) -> bool:
    """Does `cat` inside give back a line, in time?"""
    assert process.stdin is not None
    assert process.stdout is not None
    line = f"{time.monotonic_ns()}\n".encode()
    try:
        os.write(process.stdin.fileno(), line)
    except BrokenPipeError:
        return False
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    return bool(poll.poll(ECHO_S * 1000)) and os.read(process.stdout.fileno(), 100) == line


def _spec(image: Path) -> dict[str, object]:
    """The OCI specification of a sandbox that echoes."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 65534, "gid": 65534},
            "args": ["/bin/cat"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": str(image), "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
