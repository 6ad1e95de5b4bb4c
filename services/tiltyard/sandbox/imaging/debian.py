"""A root file system from Debian packages, with mmdebstrap or debootstrap.

Invariants: what goes wrong is told with the package or the address that it went wrong with. The mirror is
$IMAGE_MIRROR, else the host's own when it runs Debian, else Debian's. Left out: other distributions; take an OCI
image of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import BuildFailed

DEFAULT_MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*")
TIMEOUT_S = 1800.0


def bootstrap(root: Path, suite: str, packages: Sequence[str], mirror: str) -> None:
    """Make `root`: the smallest system and `packages`. BuildFailed names what could not be had."""
    names = ",".join(dict.fromkeys(("python3", *packages)))
    keyring = [f"--keyring={KEYRING}"] if KEYRING.exists() else []
    if shutil.which("mmdebstrap") or not shutil.which("debootstrap"):
        install_tool()
        leave = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
        command = ["mmdebstrap", "--verbose", "--mode=root", "--format=directory", *leave]
    else:
        command = ["debootstrap"]
    command += ["--variant=minbase", "--components=main", f"--include={names}", *keyring, suite, str(root), mirror]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{command[0]}: not done within {TIMEOUT_S:g} s; is {mirror} slow?") from error
    if done.returncode:
        raise BuildFailed(explain(done.stdout, suite, mirror))


def install_tool() -> None:
    """See that mmdebstrap is there; BuildFailed when it can't be installed."""
    if shutil.which("mmdebstrap"):
        return
    wanted = ["mmdebstrap"] + ([] if KEYRING.exists() else ["debian-archive-keyring"])
    if shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "-qq", "-y", "--no-install-recommends", "install", *wanted]
        for command in (["apt-get", "-qq", "update"], install):
            subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not shutil.which("mmdebstrap"):
        raise BuildFailed(f"neither mmdebstrap nor debootstrap is here; install {' and '.join(wanted)}")


def explain(output: str, suite: str, mirror: str) -> str:
    """What to tell the user of a bootstrap that failed."""
    missing = re.findall(r"Unable to locate package (\S+)|Couldn't find these debs: (.+)", output)
    if missing:
        names = ", ".join(sorted({name for pair in missing for name in pair if name}))
        return f"no package {names} in Debian {suite} at {mirror}; correct the recipe's 'packages'"
    broken = re.search(r"Package '(\S+)' has no installation candidate", output)
    if broken:
        return (
            f"package {broken[1]} can't be installed from Debian {suite} at {mirror}; correct the recipe's 'packages'"
        )
    if re.search(r"^E: The repository .* does not have a Release file", output, re.MULTILINE):
        return (
            f"{mirror} has no suite {suite!r}; correct the recipe's 'suite', or name another mirror with IMAGE_MIRROR"
        )
    fetch = re.search(r"^E: (?:Failed to fetch )?(https?://\S+)\s+(.*)", output, re.MULTILINE)
    if fetch:
        return f"{fetch[1]} can't be fetched ({fetch[2].strip()[:160]}); name a reachable mirror with IMAGE_MIRROR"
    lines = [line for line in output.splitlines() if line.startswith("E:")] or output.splitlines()[-1:]
    said = lines[0][:300] if lines else "it said nothing"
    return f"no root file system from {mirror}: {said}; name a reachable mirror with IMAGE_MIRROR"


def find_mirror() -> str:
    """The mirror to use."""
    chosen = os.environ.get("IMAGE_MIRROR")
    if chosen:
        return chosen
    if not re.search(r"^ID=debian$", _text(Path("/etc/os-release")), re.MULTILINE):
        return DEFAULT_MIRROR
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        for line in _text(path).splitlines():
            found = re.search(r"^(?:URIs:|deb\s).*?(https?://\S+)", line)
            if found and "security" not in found[1] and "snapshot" not in found[1]:
                return found[1]
    return DEFAULT_MIRROR


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
