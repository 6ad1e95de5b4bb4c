"""Command lines of runsc: what a sandbox is started, snapshotted and restored with.

Invariants: the flags before the subcommand are the same for all three, since a snapshot is bound to them; whatever is
started enters its control group before it becomes runsc and gets SIGKILL when the thread that started it ends.
Left out: starting anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

UID = 1000
CAPABILITIES = [
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_KILL",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_SYS_RESOURCE",
]
"""What the agent needs; programs it starts have none. The last: to raise its own limits again after a command."""
ENTER = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 > "$1" || exit 97; shift; n=$((n-1)); done; exec "$@"'
"""Shell that enters control groups, then becomes its remaining arguments."""
TIED = ("setpriv", "--pdeathsig", "KILL", "--")


def environment() -> dict[str, str]:
    """All that runsc is told of the host's environment."""
    return {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}


class Runsc(msgspec.Struct, frozen=True, kw_only=True):
    """One binary on one platform."""

    path: str
    platform: str
    network: str = "none"
    before: tuple[str, ...] = ()
    """What leads to runsc from the sandbox's network; see `network.Network.launcher`."""

    traces: tuple[str, ...] = ()
    """More flags for a start, which no snapshot is bound to."""

    @property
    def flags(self) -> list[str]:
        """The flags that a snapshot is bound to."""
        return [
            f"--platform={self.platform}",
            f"--network={self.network}",
            "--net-raw=false",
            "--ignore-cgroups",
            "--overlay2=none",
        ]

    def run(self, root: Path, entries: Iterable[Path], bundle: Path, name: str) -> list[str]:
        """Start the sandbox `name`, attached, in the groups whose `entries` these are. `root`: state directory."""
        start = [*_entering(entries), *self.before, self.path, "--root", str(root), *self.flags, *self.traces]
        return [*start, "run", "--bundle", str(bundle), name]

    def restore(self, root: Path, entries: Iterable[Path], bundle: Path, image: Path, name: str) -> list[str]:
        """Start it from a snapshot."""
        start = [*_entering(entries), *self.before, self.path, "--root", str(root), *self.flags, *self.traces]
        return [*start, "restore", "--image-path", str(image), "--bundle", str(bundle), name]

    def checkpoint(self, root: Path, image: Path, name: str, *, leave_running: bool) -> list[str]:
        """Take a snapshot into the empty directory `image`. Uncompressed: its restore takes a third of the time."""
        start = [*TIED, self.path, "--root", str(root), *self.flags]
        going_on = ["--leave-running"] if leave_running else []
        return [*start, "checkpoint", "--image-path", str(image), "--compression=none", *going_on, name]


def _entering(entries: Iterable[Path]) -> list[str]:
    names = [str(entry) for entry in entries]
    return ["/bin/sh", "-c", ENTER, "enter", str(len(names)), *names, *TIED]


def spec(image: Path, argv: list[str], disk_bytes: int, tmp_bytes: int, variables: dict[str, str]) -> dict[str, Any]:
    """The OCI specification of a sandbox. Sizes are bytes."""

    def tmpfs(where: str, size: int, mode: str) -> dict[str, Any]:
        options = ["nosuid", "nodev", f"size={size}", f"mode={mode}"]
        return {"destination": where, "type": "tmpfs", "source": "tmpfs", "options": options}

    capabilities = dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES)
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": argv,
            "env": [f"{key}={value}" for key, value in variables.items()],
            "cwd": "/",
            "capabilities": {**capabilities, "inheritable": [], "ambient": []},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": True,
        },
        "root": {"path": str(image), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            tmpfs("/dev/shm", tmp_bytes, "1777"),
            tmpfs("/tmp", tmp_bytes, "1777"),
            tmpfs("/workspace", disk_bytes, "777"),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
