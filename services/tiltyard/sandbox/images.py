"""Root file systems, and the agent's place in them.

Invariants: an image is named by the digest of its profile's recipe, read-only to what runs in it, shared by all, and
not collected while a process that found it lives; the agent's directory is named by the hash of its sources, put in
once and whole, so that any number of services may do it at the same time. Left out: building images (`imaging`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from . import profiles
from .backend import NotHere, StartFailed
from .guest import enter
from .imagestore import Store
from .settings import SandboxSettings

AGENT_ROOT = "tiltyard"
LENT = f"{AGENT_ROOT}/python"
"""Where the agent's Python lies in an image that has none of its own; see `imaging.interpreter`."""
LOADER = "loader.so"
BOOT = "import sys; sys.path[0] = {path!r}; from guest.agent import main; main({workspace!r}, {uid!r}, {modules!r})"


def home_of(settings: SandboxSettings) -> Path:
    """Where runsc, images and live sandboxes are."""
    chosen = settings.home or os.environ.get("TILTYARD_HOME") or "~/.cache/tiltyard"
    return Path(chosen).expanduser().absolute()


def find_image(settings: SandboxSettings, profile: str) -> Path:
    """The root file system of a profile, in use from now until this process ends; StartFailed, with how to build it,
    when there is none."""
    named = settings.image.get(profile)
    if named:
        if not Path(named).is_dir():
            raise NotHere(f"no image for profile {profile!r} at {named} (sandbox.image); {_mend(profile)}")
        return Path(named)
    try:
        wanted = profiles.digest(profiles.find(profile, profile_folders(settings)))
    except profiles.ProfileError as error:
        raise StartFailed(str(error)) from error
    store = Store(home_of(settings))
    found = store.found(profile, wanted)
    if found is None or not _in_use(store, found):
        raise NotHere(f"no image for profile {profile!r} in {store.path}; {_mend(profile)}")
    return found


def _mend(profile: str) -> str:
    return f"build it with `tiltyard sandbox images build {profile}`"


def environment_of(image: Path) -> dict[str, str]:
    """Variables that an image sets for its commands."""
    meta = Store(image.parent.parent).meta(image)
    return meta.environment if meta else {}


_held: dict[Path, int] = {}


def _in_use(store: Store, image: Path) -> bool:
    """Keep the image from being collected while this process lives."""
    if image not in _held:
        try:
            _held[image] = store.hold(image)
        except FileNotFoundError:
            return False
        except PermissionError:  # an image of another user, who alone can remove it
            return True
    return True


def profile_folders(settings: SandboxSettings) -> list[Path]:
    """Directories of profiles besides the shipped ones; ProfileError when the one that is named is not there."""
    if not settings.profiles:
        return []
    folder = Path(settings.profiles).expanduser()
    if not folder.is_dir():
        raise profiles.ProfileError(f"sandbox.profiles {settings.profiles!r}: there is no such directory")
    return [folder]


def find_runsc(settings: SandboxSettings) -> str:
    """Path of runsc; StartFailed, with how to get it, when there is none."""
    installed = home_of(settings) / "bin" / "runsc"
    found = settings.runsc or (str(installed) if installed.exists() else shutil.which("runsc"))
    if not found or not Path(found).exists():
        raise StartFailed(f"no runsc at {found or installed} or on the PATH; get it with infra/setup/runsc.sh")
    return found


def agent_sources() -> dict[str, bytes]:
    """The agent's modules by file name."""
    folder = resources.files("tiltyard.sandbox") / "guest"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(".py")}


def boot_line(folder: str, workspace: str, uid: int, modules: tuple[str, ...] = ()) -> str:
    """What `python3 -c` is given to become the agent; it imports `modules` before it is ready."""
    return BOOT.format(path=folder, workspace=workspace, uid=str(uid), modules=modules)


def interpreter(image: Path) -> list[str]:
    """The command line that runs Python for the agent: the image's own, or the one that was lent to it."""
    if not (image / LENT).is_dir():
        return ["/usr/bin/python3"]
    return [f"/{LENT}/lib/{LOADER}", "--library-path", f"/{LENT}/lib", f"/{LENT}/bin/python3"]


def install_agent(image: Path) -> str:
    """Put the agent with its byte code into the image, if it is not there; its directory as seen inside."""
    sources = agent_sources()
    digest = hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:12]
    inside = f"/{AGENT_ROOT}/{digest}"
    place = image / AGENT_ROOT / digest
    if place.is_dir():
        return inside
    try:
        (image / AGENT_ROOT).mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=image / AGENT_ROOT) as work:
            guest = Path(work) / "whole" / "guest"
            guest.mkdir(parents=True)
            for name, source in sources.items():
                (guest / name).write_bytes(source)
            (guest / "enter").write_bytes(enter.program())
            (guest / "enter").chmod(0o755)
            _compile(image, f"/{AGENT_ROOT}/{Path(work).name}/whole")
            guest.parent.chmod(0o755)
            try:
                guest.parent.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
    except (OSError, subprocess.SubprocessError) as error:
        raise StartFailed(f"can't put the agent into {image}: {error}; is it writable for this user?") from error
    return inside


def _compile(image: Path, folder: str) -> None:
    command = [*interpreter(image), "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", folder]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(["chroot", str(image), *command], check=True, timeout=60, env=environment, capture_output=True)
