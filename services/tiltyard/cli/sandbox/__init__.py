"""`tiltyard sandbox`: check that sandboxes hold on this machine, look at them and act on them.

This module holds the arguments only; what an action does lies in a module of its own, imported when it is called.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACTIONS = {"doctor": "doctor", "images": "images"}
"""Action to the module here that has `<action>_main`."""
PLATFORMS = ("systrap", "ptrace", "kvm")
AddConfig = Callable[[argparse.ArgumentParser], None]


def _doctor(actions: Any) -> None:
    doctor = actions.add_parser("doctor", help="does the sandbox hold here? judged by behaviour, in about a second")
    doctor.add_argument("--runsc", type=Path, metavar="PATH", help="judge this runsc instead of the configured one")
    doctor.add_argument("--platform", default="", choices=PLATFORMS, metavar="NAME", help="judge on this platform")
    doctor.add_argument("--profile", default="python", metavar="NAME", help="judge in this profile's image (python)")
    doctor.add_argument("--json", action="store_true", help="machine-readable")


def _images(actions: Any, config: AddConfig) -> None:
    top = actions.add_parser("images", help="list, build and remove the root file systems of sandboxes")
    what = top.add_subparsers(dest="what", required=True, metavar="WHAT")
    ls = what.add_parser("ls", help="the images that are here, and the profiles that have none")
    ls.add_argument("--json", action="store_true", help="machine-readable")
    build = what.add_parser("build", help="build the images of profiles; prints where they lie")
    build.add_argument("names", nargs="*", metavar="PROFILE", help="python, shell, node, c, geometry or your own")
    build.add_argument("--all", action="store_true", help="of every profile")
    build.add_argument("--again", action="store_true", help="even if it is there already")
    gc = what.add_parser("gc", help="remove images that no profile names and nobody uses")
    gc.add_argument("--age", default="7d", metavar="AGE", help="unused for so long: 30m, 6h, 7d (default 7d)")
    gc.add_argument("--budget", metavar="SIZE", help="also the least recently used while all are larger: 500M, 10G")
    gc.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    for action in what.choices.values():
        config(action)


def add_parser(commands: Any, config: AddConfig) -> None:
    """The `sandbox` subcommand and its actions."""
    top = commands.add_parser("sandbox", help="check, list, measure and clean up sandboxes on this machine")
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    _doctor(actions)
    for action in actions.choices.values():
        config(action)
    _images(actions, config)


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    module = importlib.import_module(f"tiltyard.cli.sandbox.{ACTIONS[arguments.action]}")
    action: Callable[[argparse.Namespace], int] = getattr(module, f"{arguments.action}_main")
    return action(arguments)
