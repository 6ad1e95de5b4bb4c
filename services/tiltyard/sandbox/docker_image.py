"""An image directory as an image of a Docker daemon, with the agent in it.

Invariants: named by what it holds, so an image that is there is the right one; older ones of the profile go once no
container uses them. Left out: building the directory (`images`).
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import structlog

from .docker_api import Docker, DockerError

IMPORT_S = 600.0
REPOSITORY = "tiltyard"


async def ensure(docker: Docker, profile: str, root: Path, folder: str) -> str:
    """Name of the image for `root` with the agent at `folder`; imported when it is not there (seconds)."""
    tag = await anyio.to_thread.run_sync(_tag, root, folder)
    name = f"{REPOSITORY}/{profile}:{tag}"
    try:
        await docker.call("GET", f"/images/{name}/json")
        return name
    except DockerError as error:
        if error.status != 404:
            raise
    structlog.get_logger().info("docker_imports_image", image=name)
    query = {"fromSrc": "-", "repo": f"{REPOSITORY}/{profile}", "tag": tag}
    await docker.call("POST", "/images/create", _tar(root), within_s=IMPORT_S, **query)
    await _drop_others(docker, profile, name)
    return name


def _tag(root: Path, folder: str) -> str:
    return hashlib.sha256(f"{root.resolve().name} {root.stat().st_ino} {folder}".encode()).hexdigest()[:16]


async def _tar(root: Path) -> AsyncIterator[bytes]:
    command = ["tar", "-C", str(root), "--exclude=./proc/*", "--exclude=./sys/*", "-c", "."]
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        async for chunk in process.stdout:
            yield chunk


async def _drop_others(docker: Docker, profile: str, keep: str) -> None:
    """Remove the profile's other images; those in use stay until a later call."""
    filters = f'{{"reference": ["{REPOSITORY}/{profile}"]}}'
    for item in await docker.call("GET", "/images/json", filters=filters):
        for name in item.get("RepoTags") or ():
            if name != keep:
                try:
                    await docker.call("DELETE", f"/images/{name}")
                except DockerError as error:
                    if error.status not in (404, 409):
                        raise
