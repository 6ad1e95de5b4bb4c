"""Runtimes with one defect each: the real runsc behind a script that spoils one thing.

Made with `spoil(folder, runsc, defect)`; the doctor has to find the defect by what happens.
"""

from __future__ import annotations

import sys
from pathlib import Path

WRAPPER = """#!{python}
import json, os, sys

def respec(change):
    at = sys.argv.index("--bundle") + 1
    with open(os.path.join(sys.argv[at], "config.json")) as file:
        spec = json.load(file)
    change(spec)
    place = os.path.join({folder!r}, "bundle-%d" % os.getpid())
    os.makedirs(place)
    with open(os.path.join(place, "config.json"), "w") as file:
        json.dump(spec, file)
    sys.argv[at] = place

def no_stat(spec):
    broken = dict(destination="/usr/bin/stat", type="bind", source="/bin/false", options=["bind", "ro"])
    spec["mounts"].append(broken)

def no_sizes(spec):
    for mount in spec["mounts"]:
        mount["options"] = [o for o in mount.get("options", []) if not o.startswith("size=")]

def no_rights(spec):
    spec["process"]["capabilities"] = {{}}

if {defect!r} in ("no_stat", "no_sizes", "no_rights") and {{"run", "restore"}} & set(sys.argv):
    respec({{"no_stat": no_stat, "no_sizes": no_sizes, "no_rights": no_rights}}[{defect!r}])
if {defect!r} == "leaves_nothing_running" and "--leave-running" in sys.argv:
    sys.argv.remove("--leave-running")
if {defect!r} == "bad_snapshots" and "checkpoint" in sys.argv:
    sys.exit("checkpoint: not today")
if {defect!r} == "odd_version" and "--version" in sys.argv:
    sys.exit("runsc version 0.0~20221219")
os.execv({runsc!r}, [{runsc!r}, *sys.argv[1:]])
"""


def spoil(folder: Path, runsc: str, defect: str) -> str:
    """Path of a runsc with the defect."""
    path = folder / f"runsc-{defect}"
    path.write_text(WRAPPER.format(python=sys.executable, folder=str(folder), defect=defect, runsc=runsc))
    path.chmod(0o755)
    return str(path)
