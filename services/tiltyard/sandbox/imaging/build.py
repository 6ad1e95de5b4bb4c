"""One call that makes a profile's image, whatever its recipe: `build`.

Invariants: an image is made in a directory of its own and moved into place when its probes have passed, under a lock,
so that it is there whole or not at all and built once however many ask for it. Left out: which recipe (`profiles`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tiltyard.sandbox import images, packs, profiles
from tiltyard.sandbox.backend import StartFailed
from tiltyard.sandbox.imagestore import Meta, Store, disk_bytes
from tiltyard.sandbox.profiles import Profile

from . import debian, finish, requirements, sources
from .errors import BuildFailed

NEEDED_BYTES = 1_500_000_000
Say = Callable[[str], None]


def build(profile: Profile, home: Path, *, say: Say = lambda text: None, again: bool = False) -> Path:
    """The image of a profile, built if it is not there yet or if asked for again; BuildFailed with the reason."""
    if os.geteuid() != 0:
        raise BuildFailed("building a root file system needs root; run it as root or under sudo")
    store = Store(home)
    name = f"{profile.name}-{profiles.digest(profile)}"
    with store.alone(f".build-{name}"):
        found = store.found(profile.name, profiles.digest(profile))
        if found is not None and not again:
            _pack(found, say)
            return found
        _check_room(store.path)
        work = store.path / f".build-{name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        try:
            built = _build(profile, store, work, name, say)
            _pack(built, say)
            return built
        except OSError as error:
            raise BuildFailed(f"{error}; is the disk of {store.path} full?") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _build(profile: Profile, store: Store, work: Path, name: str, say: Say) -> Path:
    begun = time.time()
    root, recipe = work / "root", profile.image
    environment: dict[str, str] = {}
    if recipe.oci:
        say(f"taking {recipe.oci}")
        taken = sources.take(recipe.oci, root, work / "source")
        source, environment, name = taken.digest, taken.environment, f"{name}-{taken.digest.split(':')[1][:12]}"
    else:
        source = debian.find_mirror()
        say(f"installing {len(recipe.packages)} packages of Debian {recipe.suite} from {source}")
        debian.bootstrap(root, recipe.suite, recipe.packages, source)
    own = finish.prepare(root, _donor(store))
    if recipe.python and not own:
        raise BuildFailed("the recipe's 'python' needs a Python in the image, which has none")
    if recipe.python:
        say(f"installing {', '.join(recipe.python)}")
        requirements.install(root, recipe.python)
    say("compiling and checking")
    finish.finish(root)
    finish.compile_python(root)
    finish.probe(root, recipe.probes)
    root.chmod(0o755)
    meta = Meta(
        name=name,
        profile=profile.name,
        recipe=msgspec.json.encode(recipe).decode(),
        size_bytes=disk_bytes(root),
        built=time.time(),
        built_s=round(time.time() - begun, 1),
        source=source,
        environment=environment,
    )
    return _place(store, root, meta)


def _donor(store: Store) -> Path | None:
    """The image whose Python is lent to images without one."""
    return store.found("python", profiles.digest(profiles.find("python")))


def _place(store: Store, root: Path, meta: Meta) -> Path:
    """Move a finished image to where it is found; one that is there already and in use stays."""
    target = store.path / meta.name
    if target.exists() and not store.remove(target):
        raise BuildFailed(f"{target} is in use; stop the services that use it to build it again")
    with store.alone(meta.name):
        store.note(meta)
        root.rename(target)
    return target


def _pack(image: Path, say: Say) -> None:
    """Make the image's file now, so that no service has to when it starts; without one a start costs more."""
    try:
        packed = packs.take(image, images.install_agent(image))
    except StartFailed as error:
        say(f"not packed: {error}")
        return
    if packed is None:
        say(f"not packed, so that each start costs more; {packs.PROGRAM} is in the package erofs-utils")


def _check_room(path: Path) -> None:
    free = shutil.disk_usage(path).free
    if free < NEEDED_BYTES:
        mend = "free some, or choose another disk with TILTYARD_HOME"
        raise BuildFailed(f"1.5 GB of free disk are needed under {path}, {free / 1e9:.1f} GB are there; {mend}")
