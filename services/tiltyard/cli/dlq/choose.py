"""Which letters an action is about, from its arguments; and who acts."""

from __future__ import annotations

import getpass
import re
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tiltyard.cli.connection import connected
from tiltyard.cli.errors import UserError
from tiltyard.cli.main import source_of
from tiltyard.kit.deadletters import Entry, Filter, Letters
from tiltyard.kit.jetstream import BusError, NotFound
from tiltyard_proto import topology

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(age: str) -> float:
    """'90s', '30m', '6h' or '2d' in seconds; UserError otherwise."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", age)
    if not found:
        raise UserError(f"{age!r}: expected an age such as 90s, 30m, 6h or 2d")
    return float(found[1]) * UNITS[found[2]]


def age(seconds_ago: float) -> str:
    """Seconds as people say them."""
    for unit, size in reversed(UNITS.items()):
        if seconds_ago >= size * (2 if unit != "s" else 0):
            return f"{seconds_ago / size:.0f}{unit}"
    return "0s"


def which(arguments: Namespace, now: float | None = None) -> Filter:
    """The filter that the arguments say."""
    now = time.time() if now is None else now
    if arguments.stage and arguments.stage not in topology.BY_NAME:
        raise UserError(f"--stage {arguments.stage!r}: expected one of {', '.join(topology.BY_NAME)}")
    return Filter(
        stage=arguments.stage,
        reason=arguments.reason,
        domain=arguments.domain,
        since=now - seconds(arguments.since) if arguments.since else 0.0,
        until=now - seconds(arguments.older) if arguments.older else 0.0,
        state="" if arguments.state == "any" else arguments.state,
        ids=frozenset(getattr(arguments, "ids", ())),
    )


def names_something(arguments: Namespace) -> None:
    """UserError unless the user said which letters are meant."""
    keys = ("ids", "stage", "reason", "domain", "since", "older", "all")
    if not any(getattr(arguments, key) for key in keys):
        raise UserError("name letters by ID, by --stage, --reason, --domain, --since or --older, or all with --all")


def check_ids(arguments: Namespace, known: list[Entry]) -> None:
    """UserError for ids that no letter has."""
    missing = sorted(set(arguments.ids) - {entry.id for entry in known})
    if missing:
        raise UserError(f"no dead letter {missing[0]!r}; `tiltyard dlq ls --long` lists them")


def who() -> str:
    """The acting user, for the account of a letter."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        return "unknown"


@asynccontextmanager
async def letters(arguments: Namespace) -> AsyncIterator[Letters]:
    """The dead letters of the configured bus."""
    async with connected(source_of(arguments)) as bus:
        try:
            yield Letters(bus, who())
        except NotFound as error:
            raise UserError(f"{error}: run `tiltyard provision` or `tiltyard up`") from error
        except BusError as error:
            raise UserError(f"the bus: {error}; try again, what was done stays done") from error
