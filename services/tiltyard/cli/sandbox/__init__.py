"""`tiltyard sandbox`: check that sandboxes hold on this machine, look at them and act on them.

This module holds the arguments only; what an action does lies in a module of its own, imported when it is called.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACTIONS = {
    "doctor": "doctor",
    "images": "images",
    "ls": "look",
    "top": "look",
    "exec": "act",
    "reap": "act",
    "bench": "bench",
}
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


def _seconds(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0 seconds")
    return float(text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return int(text)


def _looking(actions: Any) -> None:
    ls = actions.add_parser("ls", help="the sandboxes of this host's services: state, owner, age, memory, CPU")
    ls.add_argument("--state", default="", choices=("busy", "grading", "debug", "session", "idle"), help="only these")
    top = actions.add_parser("top", help="the same, those at work first, again and again")
    top.add_argument("--every", type=_seconds, default=2.0, metavar="S", help="seconds between two looks (2)")
    top.add_argument("-n", type=int, default=0, metavar="COUNT", help="so many times instead of until interrupted")
    for parser in (ls, top):
        parser.add_argument("--instance", default="", metavar="ID", help="only of this service")
    ls.add_argument("--json", action="store_true", help="machine-readable")


def _acting(actions: Any) -> None:
    run = actions.add_parser(
        "exec", help="run a command in a new sandbox of a running service, or in a session's (which is then restored)"
    )
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command and its arguments")
    where = run.add_mutually_exclusive_group()
    where.add_argument("--profile", default="python", metavar="NAME", help="a new sandbox of this profile (python)")
    where.add_argument("--session", default="", metavar="ID", help="the idle session in this sandbox; its rollout goes "
                       "on from its stored workspace")  # fmt: skip
    run.add_argument("--instance", default="", metavar="ID", help="of this service")
    run.add_argument("--wall", type=_seconds, default=60.0, metavar="S", help="wall and CPU limit (60)")
    run.add_argument("--stdin", action="store_true", help="give it our standard input")
    run.add_argument("--json", action="store_true", help="machine-readable")

    reap = actions.add_parser("reap", help="remove what dead services left, and what running ones have lost track of")
    reap.add_argument("--json", action="store_true", help="machine-readable")

    bench = actions.add_parser("bench", help="time starts, commands, files and ends of sandboxes on this host")
    bench.add_argument("--profile", default="python", metavar="NAME", help="of this profile (python)")
    bench.add_argument("-n", type=_count, default=10, metavar="COUNT", help="so many sandboxes (10)")
    bench.add_argument("--json", action="store_true", help="machine-readable")


def add_parser(commands: Any, config: AddConfig) -> None:
    """The `sandbox` subcommand and its actions."""
    top = commands.add_parser("sandbox", help="check, list, measure and clean up sandboxes on this machine")
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    _doctor(actions)
    _looking(actions)
    _acting(actions)
    for action in actions.choices.values():
        config(action)
    _images(actions, config)


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    module = importlib.import_module(f"tiltyard.cli.sandbox.{ACTIONS[arguments.action]}")
    action: Callable[[argparse.Namespace], int] = getattr(module, f"{arguments.action}_main")
    return action(arguments)
