"""Where an OCI image comes from: what is on this disk, a registry, or a Dockerfile.

Invariant: registries and Dockerfiles are left to the tools made for them (skopeo, docker, buildah); what they hand
over is read by our own reader like any other archive. Left out: credentials, for which those tools have their places.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from . import oci
from .errors import BuildFailed
from .oci import Taken

TIMEOUT_S = 1800.0


def take(source: str, root: Path, work: Path) -> Taken:
    """Unpack the image that `source` names to `root`, with `work` for what is fetched. `source`: an OCI layout
    directory, an archive of one or of `docker save`, a Dockerfile or a directory with one, or a reference."""
    path = Path(source).expanduser()
    if path.is_dir() and not (path / "index.json").exists():
        if not (path / "Dockerfile").is_file():
            raise BuildFailed(f"{source}: neither an OCI layout (no index.json) nor a Dockerfile in it")
        path /= "Dockerfile"
    if path.is_file() and "dockerfile" in path.name.lower():
        return oci.unpack(_built(path, work), root)
    if path.exists():
        return oci.unpack(path, root)
    if source.startswith(("/", "./", "../", "~")):
        raise BuildFailed(f"{source}: there is no such file or directory")
    return oci.unpack(_fetched(source, work), root)


def _fetched(reference: str, work: Path) -> Path:
    """The image of a registry, on this disk."""
    work.mkdir(parents=True, exist_ok=True)
    if shutil.which("skopeo"):
        _run(["skopeo", "copy", "--quiet", f"docker://{reference}", f"oci:{work / 'layout'}:image"], reference)
        return work / "layout"
    if shutil.which("docker"):
        _run(["docker", "pull", "--quiet", reference], reference)
        return _saved(reference, work)
    mend = f"install skopeo, or run `docker save {reference} -o FILE` elsewhere and name the file as 'oci'"
    raise BuildFailed(f"{reference}: neither skopeo nor docker is here; {mend}")


def _built(dockerfile: Path, work: Path) -> Path:
    """What a Dockerfile makes, on this disk; its directory is the context."""
    work.mkdir(parents=True, exist_ok=True)
    context, tag = str(dockerfile.parent), f"tiltyard-{work.parent.name.removeprefix('.build-')}"
    if shutil.which("buildah"):
        _run(["buildah", "build", "--quiet", "--file", str(dockerfile), "--tag", tag, context], str(dockerfile))
        _run(["buildah", "push", "--quiet", tag, f"oci:{work / 'layout'}:image"], str(dockerfile))
        _run(["buildah", "rmi", tag], str(dockerfile))
        return work / "layout"
    if shutil.which("docker"):
        _run(["docker", "build", "--quiet", "--file", str(dockerfile), "--tag", tag, context], str(dockerfile))
        archive = _saved(tag, work)
        _run(["docker", "image", "rm", tag], str(dockerfile))
        return archive
    mend = "install buildah, or build it elsewhere and name the archive that `docker save` makes"
    raise BuildFailed(f"{dockerfile}: neither buildah nor docker is here; {mend}")


def _saved(reference: str, work: Path) -> Path:
    archive = work / "image.tar"
    _run(["docker", "save", "--output", str(archive), reference], reference)
    return archive


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{what}: {command[0]} was not done within {TIMEOUT_S:g} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BuildFailed(f"{what}: {command[0]}: {lines[-1][:300] if lines else f'status {done.returncode}'}")
