"""What a runsc can do: read from its own help, or tried; never guessed from its version.

Invariants: a fact is kept under `<home>/probes`, named by the hash of the binary, so that another binary at the same
path is looked at again; a file there that can't be read is as good as none. Left out: whether it isolates (`doctor`).
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import TypeVar

import msgspec

from .backend import StartFailed

HELP_S = 20.0
FLAG = re.compile(r"^  -{1,2}([A-Za-z][\w-]*)", re.MULTILINE)
PLATFORMS = ("systrap", "ptrace", "kvm")
S = TypeVar("S", bound=msgspec.Struct)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one runsc understands."""

    digest: str
    """SHA-256 of the binary."""
    flags: frozenset[str] = frozenset()
    """Names of the flags before the subcommand."""
    checkpoint: frozenset[str] = frozenset()
    """Flags of `runsc checkpoint`."""
    restore: frozenset[str] = frozenset()
    """Flags of `runsc restore`."""
    platforms: frozenset[str] = frozenset()
    """The platforms its help names; empty when the help names none."""
    overlay_dir: bool = False
    """An overlay's files may lie in a directory of ours: `--overlay2=root:dir=DIR`."""

    def given(self, *flags: str) -> list[str]:
        """Those of `flags` ('--name=value') that this runsc has."""
        return [flag for flag in flags if flag.lstrip("-").split("=")[0] in self.flags]

    @property
    def uncompressed(self) -> bool:
        """Snapshots can be written uncompressed, which makes their restore three times faster."""
        return "compression" in self.checkpoint

    @property
    def background(self) -> bool:
        """A restore can go on loading memory while the sandbox runs."""
        return "background" in self.restore

    @property
    def directfs(self) -> bool:
        """The sandbox reaches its root file system without asking a helper for each file."""
        return "directfs" in self.flags


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The self-test's verdict on a binary here."""

    accepted: bool
    snapshots: bool = False
    """A snapshot can be taken and restored."""
    leave_running: bool = False
    """A sandbox goes on after a snapshot of it."""


def digest_of(runsc: str) -> str:
    """SHA-256 of the binary; StartFailed when it can't be read."""
    try:
        with open(runsc, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StartFailed(f"runsc {runsc}: {error.strerror}") from error


def parse(digest: str, top: str, checkpoint: str, restore: str) -> Capabilities:
    """Capabilities from the texts of `runsc flags`, `runsc help checkpoint` and `runsc help restore`."""
    return Capabilities(
        digest=digest,
        flags=frozenset(FLAG.findall(top)),
        checkpoint=frozenset(FLAG.findall(checkpoint)),
        restore=frozenset(FLAG.findall(restore)),
        platforms=frozenset(name for name in PLATFORMS if name in _explained(top, "platform")),
        overlay_dir="dir=" in _explained(top, "overlay2"),
    )


def capabilities(runsc: str, home: Path) -> Capabilities:
    """What `runsc` understands. Blocks for its hash (tenths of a second), and once per binary for three helps."""
    digest = digest_of(runsc)
    kept = _load(home, f"{digest[:24]}.flags", Capabilities)
    if kept is not None and kept.digest == digest:
        return kept
    found = parse(digest, _help(runsc, "flags"), _help(runsc, "help", "checkpoint"), _help(runsc, "help", "restore"))
    _store(home, f"{digest[:24]}.flags", found)
    return found


def verdict(home: Path, digest: str, platform: str, image: Path) -> Verdict | None:
    """What the self-test said about this binary on this platform, kernel and image; None when it has not been run."""
    return _load(home, _verdict_name(digest, platform, image), Verdict)


def keep_verdict(home: Path, digest: str, platform: str, image: Path, found: Verdict) -> None:
    """Keep the self-test's verdict."""
    _store(home, _verdict_name(digest, platform, image), found)


def _verdict_name(digest: str, platform: str, image: Path) -> str:
    place = hashlib.sha256(f"{os.uname().release} {image}".encode()).hexdigest()[:12]
    return f"{digest[:24]}.{platform}.{place}"


def _explained(text: str, flag: str) -> str:
    """The explanation of one flag in a help text."""
    found = re.search(rf"^  -{{1,2}}{flag}\b.*\n((?:    .*\n?|\t.*\n?)*)", text, re.MULTILINE)
    return found[1] if found else ""


def _help(runsc: str, *arguments: str) -> str:
    """What it prints. A help that can't be had is an empty one: nothing optional is then used."""
    try:
        done = subprocess.run(
            [runsc, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=HELP_S,
            check=False,
            text=True,
            errors="replace",
            env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")},
        )
    except subprocess.TimeoutExpired:
        return ""
    except OSError as error:
        raise StartFailed(f"runsc {runsc}: {error.strerror}; get it with infra/setup/runsc.sh") from error
    return done.stdout


def _load(home: Path, name: str, kind: type[S]) -> S | None:
    try:
        return msgspec.json.decode((home / "probes" / f"{name}.json").read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def _store(home: Path, name: str, found: msgspec.Struct) -> None:
    """Write it whole or not at all; a home that can't be written only costs the next start a little time."""
    place = home / "probes" / f"{name}.json"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_suffix(f".{os.getpid()}")
        new.write_bytes(msgspec.json.encode(found, order="sorted"))
        new.replace(place)
    except OSError:
        return
