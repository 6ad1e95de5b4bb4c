"""Python requirements of a recipe, installed with our own pip running inside the image on the image's interpreter.

Invariants: pip itself, its configuration, certificates and the name servers are there while it runs and never stay in
the image; the host's pip settings (`PIP_*`, proxies, configuration files) hold. Left out: locking; a recipe that
needs the same versions for ever names them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from .errors import BuildFailed
from .inside import resolve, run_inside, seen_at

TIMEOUT_S = 1800.0
PASSED = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def install(root: Path, wanted: Sequence[str]) -> None:
    """Install `wanted` where the image's interpreter has its own packages; BuildFailed with pip's own reason."""
    environment, host = _settings()
    options = ["--no-input", "--disable-pip-version-check", "--no-compile", "--no-cache-dir", "--quiet"]
    options += ["--root-user-action=ignore", "--break-system-packages", "--no-warn-script-location"]
    with _name_servers(root):
        done = run_inside(
            root,
            ["python3", "-m", "pip", "install", *options, "--", *wanted],
            network=True,
            environment=environment,
            host=host,
            timeout_s=TIMEOUT_S,
        )
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR:")] or done.stdout.splitlines()
        said = errors[-1].removeprefix("ERROR: ")[:300] if errors else f"status {done.returncode}"
        raise BuildFailed(f"pip: {said}; correct the recipe's 'python', or see that pip works here with these settings")


def _settings() -> tuple[dict[str, str], list[Path]]:
    """The environment of pip inside, and the host's paths that it needs there: pip itself first."""
    environment = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith("PIP_")}
    environment.pop("PIP_CACHE_DIR", None)
    certificates = next((os.environ[name] for name in CERTIFICATES if os.environ.get(name)), SYSTEM_CERTIFICATES)
    if Path(certificates).is_file():
        environment["PIP_CERT"] = certificates
    for file in ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf"):
        if Path(file).expanduser().is_file():
            environment.setdefault("PIP_CONFIG_FILE", str(Path(file).expanduser()))
    named = (part for value in environment.values() for part in value.split() if part.startswith("/"))
    host = [_pip(), *(Path(part) for part in dict.fromkeys(named) if Path(part).exists())]
    moved = {str(path): seen_at(host, place) for place, path in enumerate(host)}
    inside = {name: " ".join(moved.get(part, part) for part in value.split()) for name, value in environment.items()}
    return {**inside, "PYTHONPATH": seen_at(host, 0).rsplit("/", 1)[0], "PYTHONNOUSERSITE": "1"}, host


def _pip() -> Path:
    """The directory of the package pip of this interpreter."""
    found = util.find_spec("pip")
    if found is None or not found.origin:
        raise BuildFailed("pip is not installed for the Python that runs Tiltyard; install it: python -m ensurepip")
    return Path(found.origin).parent


@contextmanager
def _name_servers(root: Path) -> Iterator[None]:
    """The host's resolver inside, for a while."""
    place = resolve(root, "/etc") / "resolv.conf"
    kept = place.with_name(".resolv.conf.kept")
    had = place.is_symlink() or place.exists()
    if had:
        place.rename(kept)
    shutil.copyfile("/etc/resolv.conf", place)
    try:
        yield
    finally:
        place.unlink()
        if had:
            kept.rename(place)
