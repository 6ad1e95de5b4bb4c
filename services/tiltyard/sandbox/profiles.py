"""Profiles: what a sandbox is made from (an image) and how it is kept ready (preload, pool, snapshot).

A profile is a TOML file in `profiles/`; a directory named by `sandbox.profiles` adds to them or replaces them by name.
Invariants: a profile is checked when it is read, and an error names the file, the key and what was expected; its
digest changes with everything that changes the image. Left out: building images (`images`), pools (`pool`).
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from tiltyard.kit.ranges import Above0, Positive, Whole

NAME = "[a-z0-9][a-z0-9.+-]*"
PACKAGE = "[a-z0-9][a-z0-9.+:=~-]*"


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the image is built. Exactly one of `packages` and `oci`."""

    suite: str = "bookworm"
    """Debian's suite that the packages come from, whatever the host runs; it fixes the version of Python."""
    packages: tuple[str, ...] = ()
    """Debian packages on top of the smallest system; `python3` is always there, for the agent."""
    python: tuple[str, ...] = ()
    """Requirements installed for the system's Python, in pip's syntax."""
    oci: str = ""
    """An OCI image reference, a `docker save` archive, an OCI layout directory or a Dockerfile to take instead."""
    probes: tuple[tuple[str, ...], ...] = ()
    """Commands that must succeed inside a new image before it is used."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of sandbox."""

    name: str
    description: str
    """One line for a person."""
    image: Recipe
    preload: tuple[str, ...] = ()
    """Python modules that the agent imports before it is ready; scripts run in a fork that has them."""
    snapshot: Literal["never", "auto"] = "auto"
    """'auto': the pool refills by restoring a snapshot where there is a preload, which makes a cold start dear."""
    environment: dict[str, str] = {}
    """Variables of every command, on top of the service's."""
    cpus: Above0 = 1.0
    """CPU quota, cores."""
    disk_bytes: Positive = 64 << 20
    """Workspace of pooled sandboxes."""
    tmp_bytes: Positive = 16 << 20
    """Size of /tmp inside."""
    overhead_bytes: Positive = 64 << 20
    """Memory of the sandbox itself and its preload, on top of what a command may use."""
    pool: Whole = 0
    """Idle sandboxes kept ready at least; `sandbox.pool` overrides it."""


FORMAT = 2
"""Changes when the builder makes something else of the same recipe."""


class ProfileError(ValueError):
    """A profile that can't be used; the message says which file and why."""


def digest(profile: Profile) -> str:
    """Names the image: the same for profiles whose images are built the same way."""
    recipe = msgspec.json.encode((FORMAT, platform.machine(), profile.image), order="sorted")
    return hashlib.sha256(recipe).hexdigest()[:12]


def parse(text: bytes, where: str) -> Profile:
    """A profile from TOML; ProfileError names `where`, the key and what was expected."""
    try:
        profile = msgspec.toml.decode(text, type=Profile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ProfileError(f"{where}: {error}") from error
    if bool(profile.image.packages) == bool(profile.image.oci):
        raise ProfileError(f"{where}: image: give either 'packages' or 'oci'")
    for word, pattern in (
        (profile.name, NAME),
        (profile.image.suite, NAME),
        *((p, PACKAGE) for p in profile.image.packages),
    ):
        if not re.fullmatch(pattern, word):
            raise ProfileError(f"{where}: {word!r}: expected a name like 'python' or 'libc6-dev'")
    return profile


def find(name: str, folders: Iterable[Path] = ()) -> Profile:
    """The profile of this name; ProfileError, with the names there are, when there is none."""
    known = load(folders)
    if name not in known:
        raise ProfileError(unknown(name, known))
    return known[name]


def unknown(name: str, known: Iterable[str]) -> str:
    """What is said of a profile that nobody has defined."""
    return f"no profile {name!r}; there are {', '.join(sorted(known))}"


def load(folders: Iterable[Path] = ()) -> dict[str, Profile]:
    """The shipped profiles and those in `folders`, by name; a later one of the same name wins."""
    shipped = resources.files("tiltyard.sandbox") / "profiles"
    sources = [(item.name, item.read_bytes()) for item in shipped.iterdir() if item.name.endswith(".toml")]
    sources += [(str(path), path.read_bytes()) for folder in folders for path in sorted(folder.glob("*.toml"))]
    found = [parse(text, where) for where, text in sources]
    return {profile.name: profile for profile in found}
