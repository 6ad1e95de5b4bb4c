"""`tiltyard domains`: look at the registry, check it, add to it, and judge files of cases.

This module holds the arguments only; what an action does lies in a module of its own, imported when it is called.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACTIONS = {"ls": "look", "show": "look", "sample": "look", "check": "check", "new": "new", "cases": "cases"}
"""Action to the module here that has `<action>_main`."""
AddConfig = Callable[[argparse.ArgumentParser], None]


def _looking(actions: Any) -> None:
    ls = actions.add_parser("ls", help="the built-in and installed domains with kind, level and gate")
    ls.add_argument("beginning", nargs="?", default="", metavar="NAME", help="only these: a name or its first parts")
    ls.add_argument("--json", action="store_true", help="machine-readable")
    show = actions.add_parser("show", help="one domain: its whole definition, and what the gate said")
    show.add_argument("name", metavar="NAME")
    sample = actions.add_parser("sample", help="draw tasks of a domain and print them")
    sample.add_argument("name", metavar="NAME")
    sample.add_argument("-n", type=int, default=1, metavar="COUNT", help="so many (1)")
    sample.add_argument("--split", choices=("train", "eval"), default="", help="default: train where there is one")
    sample.add_argument("--seed", type=int, default=0)
    sample.add_argument("--json", action="store_true", help="whole tasks as JSON lines, for `tiltyard publish`")


def _checking(actions: Any, config: AddConfig) -> None:
    check = actions.add_parser("check", help="the entry gate: may these domains be sampled?")
    check.add_argument("names", nargs="*", metavar="NAME", help="names or their first parts; none: all")
    check.add_argument("--file", type=Path, metavar="FILE.toml", help="the domains of this file instead")
    check.add_argument("--again", action="store_true", help="even what was checked before in the same state")
    check.add_argument("--full", action="store_true", help="five times as many tasks")
    check.add_argument("--jobs", type=int, default=2, metavar="N", help="so many at a time (2)")
    check.add_argument("--pause", action="store_true", help="tell the running bus: what fails is not sampled any more")
    check.add_argument("--results", type=Path, metavar="FILE", help="also write the reports as JSON")
    cases = actions.add_parser("cases", help="judge a file of cases by the real verifiers, in the real sandbox")
    cases.add_argument("file", type=Path, metavar="FILE.jsonl")
    cases.add_argument("--json", type=Path, metavar="OUT", help="write a row for each case")
    cases.add_argument("--kind", action="append", default=[], metavar="KIND", help="only cases of this kind")
    for action in (check, cases):
        config(action)


def add_parser(commands: Any, config: AddConfig) -> None:
    """The `domains` subcommand and its actions."""
    top = commands.add_parser("domains", help="list, show, check and add what can be trained on; lists by itself")
    top.set_defaults(beginning="", json=False)
    actions = top.add_subparsers(dest="action", metavar="ACTION")
    _looking(actions)
    _checking(actions, config)
    new = actions.add_parser("new", help="write a package with a domain to start from; it passes the gate as it is")
    new.add_argument("name", metavar="NAME", help="dotted, its first part the category: math.coins")
    new.add_argument("--kind", default="last_number", metavar="KIND", help="its verifier kind (last_number)")
    new.add_argument("--into", type=Path, metavar="DIR", help="where the files go (a folder of the domain's name)")


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    chosen = arguments.action or "ls"
    module = importlib.import_module(f"tiltyard.cli.domains.{ACTIONS[chosen]}")
    action: Callable[[argparse.Namespace], int] = getattr(module, f"{chosen}_main")
    return action(arguments)
