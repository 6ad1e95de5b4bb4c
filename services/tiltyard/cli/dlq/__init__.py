"""`tiltyard dlq`: look at dead letters, replay, correct and discard them, carry them elsewhere.

This module holds the arguments only; what an action does lies in a module of its own, imported when it is called.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLASSES = ("decode", "schema", "validation", "subject", "blob", "expired", "crash", "handler")
STATES = ("open", "replaying", "resolved", "superseded", "discarded", "any")
ACTIONS = {
    "ls": "look",
    "show": "look",
    "replay": "act",
    "edit": "act",
    "purge": "act",
    "export": "files",
    "import": "files",
    "resume": "pauses",
}
AddConfig = Callable[[argparse.ArgumentParser], None]


def _filters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which letters")
    group.add_argument("--stage", default="", metavar="STAGE", help="of this stage")
    group.add_argument("--reason", default="", choices=CLASSES, metavar="CLASS", help=f"one of {', '.join(CLASSES)}")
    group.add_argument("--domain", default="", metavar="DOMAIN", help="of this domain, or of those below it")
    group.add_argument("--since", default="", metavar="AGE", help="failed in the last 30m, 6h, 2d ...")
    group.add_argument("--older", default="", metavar="AGE", help="failed longer ago than that")
    group.add_argument("--state", default="open", choices=STATES, metavar="STATE", help=f"one of {', '.join(STATES)}")


def _ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids as `dlq ls --long` prints them")


def add_parser(commands: Any, config: AddConfig) -> None:
    """The `dlq` subcommand and its actions."""
    top = commands.add_parser("dlq", help="look at dead letters, replay, correct and discard them")
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")

    ls = actions.add_parser("ls", help="count dead letters by stage, class, domain and age")
    ls.add_argument("-l", "--long", action="store_true", help="one line for each letter")
    ls.add_argument("--json", action="store_true", help="machine-readable")
    _filters(ls)

    show = actions.add_parser("show", help="one letter: why it failed, its message, headers and history")
    show.add_argument("id", metavar="ID")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--message", action="store_true", help="only the message as JSON, to be edited")

    replay = actions.add_parser("replay", help="send letters again; safe to repeat")
    _ids(replay)
    _filters(replay)
    replay.add_argument("--all", action="store_true", help="every open letter")
    replay.add_argument("--rate", type=float, default=100.0, metavar="N", help="at most so many a second (default 100)")
    replay.add_argument("--dry-run", action="store_true", help="say what would happen, and send nothing")
    replay.add_argument("--wait", type=float, default=10.0, metavar="S", help="wait so long for how they end (10)")
    replay.add_argument("--json", action="store_true", help="machine-readable")

    edit = actions.add_parser("edit", help="send a corrected message instead of a letter's; the difference is kept")
    edit.add_argument("id", metavar="ID")
    source = edit.add_mutually_exclusive_group(required=True)
    source.add_argument("--file", type=Path, metavar="FILE", help="JSON, as `dlq show ID --message` prints it")
    source.add_argument("--json", metavar="TEXT", help="the same on the command line")

    purge = actions.add_parser("purge", help="discard letters for good; asks for their count first")
    _ids(purge)
    _filters(purge)
    purge.add_argument("--all", action="store_true", help="every open letter")
    purge.add_argument("--yes", type=int, default=None, metavar="COUNT", help="do it, if there are exactly so many")

    export = actions.add_parser("export", help="write letters as JSON lines, with what they claim")
    export.add_argument("file", nargs="?", default="-", metavar="FILE", help="default: standard output")
    _filters(export)
    back = actions.add_parser("import", help="store exported letters on this bus; what is there stays as it is")
    back.add_argument("file", metavar="FILE", help="'-' reads standard input")
    resume = actions.add_parser("resume", help="let domains go on that a stage has paused, since too much died there")
    resume.add_argument("--stage", default="", metavar="STAGE", help="at this stage")
    resume.add_argument("--domain", default="", metavar="DOMAIN", help="this domain")
    resume.add_argument("--all", action="store_true", help="every paused domain")
    for action in actions.choices.values():
        config(action)


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    module = importlib.import_module(f"tiltyard.cli.dlq.{ACTIONS[arguments.action]}")
    action: Callable[[argparse.Namespace], int] = getattr(module, f"{arguments.action}_main")
    return action(arguments)
