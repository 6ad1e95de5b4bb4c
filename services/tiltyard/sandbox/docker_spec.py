"""A container as Docker is asked for it: gVisor's specification in its words, with labels that say whose it is.

Left out: the calls (`docker_api`) and the life of a container (`docker`).
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from .backend import Want
from .launch import CAPABILITIES
from .profiles import Profile
from .remote import ENVIRONMENT
from .settings import SandboxSettings

INSTANCE, OWNER = "org.tiltyard.instance", "org.tiltyard.owner"
"""Labels: the service that made a container, and the home it shares with those that may clean up after it."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's image as the daemon has it."""

    name: str
    command: tuple[str, ...]
    variables: dict[str, str]
    """Of every command in it."""


def owner(home: Path) -> str:
    """Names the home: drawn once, kept in it."""
    place = home / "owner"
    try:
        with place.open("x") as file:
            file.write(secrets.token_hex(8))
    except FileExistsError:
        pass
    return place.read_text()


def container(
    settings: SandboxSettings, labels: dict[str, str], want: Want, profile: Profile, image: Image
) -> dict[str, Any]:
    """The body of the call that makes a container."""
    memory = settings.docker_memory_bytes + want.disk_bytes + profile.overhead_bytes
    tmpfs = "rw,exec,nosuid,nodev"
    return {
        "Image": image.name,
        "Cmd": image.command,
        "Env": [f"{key}={value}" for key, value in ENVIRONMENT.items()],
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "Labels": labels,
        "HostConfig": {
            "Runtime": settings.docker_runtime,
            "NetworkMode": "none",
            "Dns": ["127.0.0.1"],
            "DnsSearch": ["."],
            "ReadonlyRootfs": True,
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": settings.host_pids,
            "NanoCpus": int(profile.cpus * 1e9),
            "ShmSize": profile.tmp_bytes,
            "Tmpfs": {
                "/tmp": f"{tmpfs},size={profile.tmp_bytes},mode=1777",
                "/workspace": f"{tmpfs},size={want.disk_bytes},mode=777",
            },
            "CapDrop": ["ALL"],
            "CapAdd": CAPABILITIES,
            "SecurityOpt": ["no-new-privileges"],
            "Ulimits": [{"Name": "nofile", "Soft": 1024, "Hard": 1024}, {"Name": "core", "Soft": 0, "Hard": 0}],
            "LogConfig": {"Type": "none"},
        },
    }
