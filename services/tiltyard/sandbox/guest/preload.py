"""Modules imported ahead of need, and random numbers that no two sandboxes or scripts share.

A script runs in a fork of an interpreter that has them, so it doesn't wait for numpy. Invariants: a script that brings
a module of the same name gets its own, as in a fresh interpreter; generators that modules seeded when they were
imported are seeded anew in every fork, since a copy of their state would repeat its numbers, in one sandbox or in all
that are restored from a snapshot; the agent itself draws none. Left out: generators that code inside made itself.
"""

import os
import sys

PRELOADED: "frozenset[str]" = frozenset()
"""Names of the modules that a fresh interpreter would not have, up to the first dot."""


def load(names: "tuple[str, ...]") -> None:
    """Import modules; ImportError for one that is not there."""
    global PRELOADED
    before = set(sys.modules)
    for name in names:
        __import__(name)
    PRELOADED = frozenset(name.split(".")[0] for name in set(sys.modules) - before)


def reseed() -> None:
    """Seed the generators of imported modules from the system's entropy."""
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module is not None:
            module.seed()


def shadowed(folder: str) -> bool:
    """Does a file in `folder`, where a script lies, take the place of a preloaded module?"""
    if not PRELOADED:
        return False
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(name.split(".")[0] in PRELOADED for name in names)
