"""What makes a root file system fit for a sandbox, whatever it came from.

Invariants: mount points, the agent's directory and the user are there; nothing of the build is; no file is setuid or
setgid, since nobody inside may become anyone else and the file lies on the host too; names that a program of ours
would write to are real files and directories, never links that lead out. Left out: the agent (`images`).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from tiltyard.sandbox import images
from tiltyard.sandbox.images import AGENT_ROOT

from . import interpreter
from .errors import BuildFailed
from .inside import resolve, run_inside

MOUNT_POINTS = ("workspace", "tmp", "proc", "dev", "sys", "run", AGENT_ROOT)
EMPTIED = (
    "var/lib/apt/lists",
    "var/cache",
    "var/log",
    "tmp",
    "run",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
)
REMOVED = ("usr/share/locale", "usr/share/lintian", "etc/hostname", "etc/resolv.conf", "etc/machine-id", ".dockerenv")
USER = "user:x:1000:1000::/workspace:/bin/sh\n"
OLDEST = (3, 9)
ELSEWHERE = ("usr/local/bin/python3", "opt/conda/bin/python3", "opt/venv/bin/python3")
COMPILE = """
import compileall, re, sys, sysconfig
paths = {sysconfig.get_path("stdlib"), *(p for p in sys.path if p.endswith("-packages"))}
mode = compileall.py_compile.PycInvalidationMode.UNCHECKED_HASH
skip = re.compile(r"/(tests?|idlelib|lib2to3|turtledemo)/")
for path in sorted(paths):
    compileall.compile_dir(path, quiet=2, rx=skip, invalidation_mode=mode)
"""


def prepare(root: Path, donor: Path | None) -> bool:
    """Make the mount points, without which nothing runs inside, and see that the agent has a Python: the image's own,
    or that of the image `donor`. Whether it is its own; BuildFailed when there is none."""
    for name in MOUNT_POINTS:
        _directory(root / name)
    _directory(resolve(root, "etc"))
    if own_python(root):
        return True
    if donor is None:
        mend = "build the profile 'python' first, whose interpreter the agent then uses"
        raise BuildFailed(f"the image has no Python 3: {mend}, or add Python to the image")
    interpreter.lend(donor, root)
    check_python(root)
    return False


def finish(root: Path) -> None:
    """Trim and complete a root file system."""
    for name in EMPTIED:
        _empty(resolve(root, name))
    for name in REMOVED:
        _remove(resolve(root, name, follow=False))
    for name in ("var/cache", "var/log"):
        _directory(resolve(root, name))
    _write(root, "etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", keep=False)
    _write(root, "etc/passwd", USER, keep=True)
    _write(root, "etc/group", "user:x:1000:\n", keep=True)
    _trust_workspaces(root)
    _harmless(root)


def own_python(root: Path) -> bool:
    """Does the image have a Python? It is then to be found as /usr/bin/python3, and can run the agent."""
    elsewhere = next((path for path in ELSEWHERE if resolve(root, path).exists()), "")
    if elsewhere:  # what `python3` means in this image
        _directory(resolve(root, "usr/bin"))
        _remove(resolve(root, "usr/bin/python3", follow=False))
        resolve(root, "usr/bin/python3", follow=False).symlink_to(f"/{elsewhere}")
    if not resolve(root, "usr/bin/python3").exists():
        return False
    check_python(root)
    return True


def check_python(root: Path) -> None:
    """BuildFailed unless the agent's Python runs here and is new enough."""
    ask = "import sys, resource, select; print(*sys.version_info[:2])"
    done = run_inside(root, [*images.interpreter(root), "-c", ask])
    version = done.stdout.split()
    if done.returncode or len(version) != 2:
        raise BuildFailed(f"the image's Python does not run: {done.stdout.strip()[-200:]}")
    if (int(version[0]), int(version[1])) < OLDEST:
        raise BuildFailed(f"the image's Python is {'.'.join(version)}; the agent needs {'.'.join(map(str, OLDEST))}")


def compile_python(root: Path) -> None:
    """Byte code of everything importable, checked by nothing at run time: a start in the sandbox reads less."""
    if images.interpreter(root) != ["/usr/bin/python3"]:
        return  # a lent one comes with it
    done = run_inside(root, ["/usr/bin/python3", "-c", COMPILE], timeout_s=900.0)
    if done.returncode:
        raise BuildFailed(f"byte code could not be made: {done.stdout.strip()[-200:]}")


def probe(root: Path, probes: Iterable[Sequence[str]]) -> None:
    """Run the recipe's probes as the sandbox's user, without a network; BuildFailed names the first that fails."""
    environment = {"PYTHONDONTWRITEBYTECODE": "1"}
    for argv in probes:
        done = run_inside(root, argv, user=1000, environment=environment, timeout_s=120.0)
        if done.returncode:
            said = done.stdout.strip()[-300:] or f"status {done.returncode}"
            raise BuildFailed(f"probe {' '.join(argv)!r} fails in the new image: {said}")


def _directory(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)


def _empty(path: Path) -> None:
    if path.is_dir():
        for child in list(path.iterdir()):
            _remove(child)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def _write(root: Path, name: str, text: str, *, keep: bool) -> None:
    """Write a file inside, or with `keep` add a line to it."""
    path = resolve(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = path.read_text(errors="surrogateescape") if keep and path.is_file() else ""
    lines = [line for line in kept.splitlines(keepends=True) if line.split(":")[0] != text.split(":")[0]]
    _remove(path)
    path.write_text("".join(lines) + text, errors="surrogateescape")


def _trust_workspaces(root: Path) -> None:
    """Let git work in the workspace, whose directory is not the user's own."""
    if resolve(root, "usr/bin/git").exists():
        path = resolve(root, "etc/gitconfig")
        with path.open("a") as file:
            file.write("[safe]\n\tdirectory = *\n")


def _harmless(root: Path) -> None:
    """Take setuid and setgid bits from every file."""
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
                os.chmod(path, stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))
