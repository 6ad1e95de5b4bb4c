"""How sandboxes of one want are started on gVisor: image, agent, specification, and the key of their snapshot.

Invariants: a plan holds nothing on the disk, so any number may be made and forgotten; the key names everything that a
snapshot is bound to. Left out: starting them (`gvisor`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from . import images, packs
from .backend import NotHere, Want
from .launch import UID, Runsc, spec
from .profiles import Profile, unknown
from .remote import ENVIRONMENT, variables_of
from .settings import SandboxSettings
from .snapshots import key_of


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How sandboxes of one want are started."""

    want: Want
    profile: Profile
    spec: dict[str, Any]
    """The OCI specification, but for what is each sandbox's own."""
    environment: dict[str, str]
    """Variables of every command."""
    pack: Path | None = None
    """The image as one file; None: it is a directory."""
    key: str = ""
    """Names the snapshot they are restored from; empty: they start cold."""


def make(
    settings: SandboxSettings,
    known: Mapping[str, Profile],
    runsc: Runsc,
    want: Want,
    *,
    packed: bool = False,
) -> Plan:
    """The plan of a want. StartFailed without profile or image. Blocks: use a thread.

    `packed`: take the image as one file where that can be had.
    """
    profile = known.get(want.profile)
    if profile is None:
        raise NotHere(unknown(want.profile, known))
    image = images.find_image(settings, want.profile)
    agent = images.install_agent(image)
    argv = [*images.interpreter(image), "-c", images.boot_line(agent, "/workspace", UID, profile.preload)]
    said = spec(image, argv, want.disk_bytes, profile.tmp_bytes, ENVIRONMENT)
    pack = packs.take(image, agent) if packed else None
    if pack is not None:
        said["annotations"] = packs.root_of(pack)
    variables = variables_of(images.environment_of(image), profile.environment)
    plan = Plan(want=want, profile=profile, spec=said, environment=variables, pack=pack)
    if not profile.preload or profile.snapshot == "never" or want.egress:
        return plan
    with open(runsc.path, "rb") as file:
        binary = hashlib.file_digest(file, "sha256").hexdigest()
    place = (str(image.resolve()), image.stat().st_ino, os.uname().release, pack and packs.marks(pack))
    return msgspec.structs.replace(plan, key=key_of(binary, runsc.flags, said, *place))
