"""A Python for the agent in an image that has none: that of the profile `python`, lent with its libraries.

Invariants: it lies under the agent's directory, is started by its own loader, and looks for libraries there only, so
that it neither needs nor touches what the image has, whatever C library that is; commands don't find it.
Left out: packages; what a sandbox's own programs need, the image brings.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tiltyard.sandbox.images import LENT, LOADER

from .errors import BuildFailed
from .inside import resolve, run_inside

LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "pydoc_data", "distutils")
WHICH = "import sys, sysconfig; print(sys.executable, sysconfig.get_path('stdlib'))"


def lend(donor: Path, root: Path) -> None:
    """Copy the interpreter of the image `donor` into `root`; BuildFailed when it does not run there."""
    binary, library = _asked(donor)
    place = root / LENT
    shutil.rmtree(place, ignore_errors=True)
    (place / "bin").mkdir(parents=True)
    shutil.copy2(resolve(donor, binary), place / "bin/python3")
    modules = resolve(donor, library)
    shutil.copytree(modules, place / "lib" / modules.name, symlinks=False, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for needed in _libraries(donor, binary, modules):
        target = LOADER if needed.rpartition("/")[2].startswith("ld-") else needed.rpartition("/")[2]
        shutil.copy2(resolve(donor, needed), place / "lib" / target)


def _asked(donor: Path) -> tuple[str, str]:
    done = run_inside(donor, ["/usr/bin/python3", "-c", WHICH])
    said = done.stdout.split()
    if done.returncode or len(said) != 2:
        raise BuildFailed(f"the Python of {donor.name} can't be lent: {done.stdout.strip()[-200:]}")
    return said[0], said[1]


def _libraries(donor: Path, binary: str, modules: Path) -> list[str]:
    """Paths inside of the shared libraries that the interpreter and its extension modules need, the loader too."""
    extensions = [f"/{path.relative_to(donor)}" for path in sorted((modules / "lib-dynload").glob("*.so"))]
    done = run_inside(donor, ["ldd", binary, *extensions])
    found = re.findall(r"(?:=>\s*)?(/\S+)\s+\(0x", done.stdout)
    if not any(path.rpartition("/")[2].startswith("ld-") for path in found):
        raise BuildFailed(f"the libraries of {donor.name}'s Python can't be found: {done.stdout.strip()[-200:]}")
    return list(dict.fromkeys(found))
