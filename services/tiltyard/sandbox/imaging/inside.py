"""Running a program inside a root file system that is being built, and resolving paths in it.

Invariants: a program runs in mount and process namespaces of its own, so that no mount and no process outlives it, and
without the host's environment; unless it is told otherwise it has no network either. A path is resolved as the
program inside would see it: links lead nowhere else. Left out: isolation from hostile programs, for which the sandbox
is there; what runs here is chosen by whoever wrote the recipe.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import BuildFailed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_LINKS = 40
SCRIPT = """
root=$1 count=$2; shift 2
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero random urandom; do : > "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
mkdir -m 1777 "$root/dev/shm"
while [ "$count" -gt 0 ]; do
    seen=$root/tmp/host/$count/${1##*/}
    mkdir -p "$root/tmp/host/$count"
    if [ -d "$1" ]; then mkdir "$seen" && mount --bind -o ro "$1" "$seen"; else cp -L "$1" "$seen"; fi
    shift; count=$((count - 1))
done
exec chroot "$@"
"""


def run_inside(
    root: Path,
    argv: Sequence[str],
    *,
    user: int = 0,
    network: bool = False,
    environment: Mapping[str, str] | None = None,
    host: Sequence[Path] = (),
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a program in `root`, its standard error joined to its output. The host's files and directories `host` are to
    be seen where `seen_at` says."""
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private", "--ipc"]
    if not network:
        namespaces.append("--net")
    places = [str(path) for path in host]
    command = [*namespaces, "--", "/bin/sh", "-ec", SCRIPT, "inside", str(root), str(len(places)), *places]
    given = {"PATH": PATH, "HOME": "/tmp", "LC_ALL": "C.UTF-8", **(environment or {})}
    who = ["--userspec", f"{user}:{user}", "--groups="] if user else []
    try:
        return subprocess.run(
            [*command, *who, str(root), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=given,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{' '.join(argv)[:200]}: not done within {timeout_s:g} s") from error


def seen_at(host: Sequence[Path], index: int) -> str:
    """Where a program run with these host paths sees one of them."""
    return f"/tmp/host/{len(host) - index}/{host[index].name}"


def resolve(root: Path, path: str, *, follow: bool = True) -> Path:
    """Where `path` lies on the host when it is looked up inside `root`; `follow` is for its last part. Parts that are
    not there are taken as they are. BuildFailed for a loop of links."""
    parts = [part for part in path.split("/") if part not in ("", ".")][::-1]
    here: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            del here[-1:]
            continue
        full = root.joinpath(*here, part)
        if not full.is_symlink() or (not parts and not follow):
            here.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise BuildFailed(f"{path}: links that lead round in a circle")
        target = os.readlink(full)
        if target.startswith("/"):
            here = []
        parts += [step for step in target.split("/") if step not in ("", ".")][::-1]
    return root.joinpath(*here)
