"""`tiltyard sandbox ls` and `top`."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence

import anyio
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tiltyard.sandbox.control import ControlError, List, Listing, Row

from .services import ask_all, places

ORDER = ("busy", "grading", "debug", "session", "idle")


def age(seconds: float) -> str:
    """'12s', '4m', '2h'."""
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


async def _listings(arguments: Namespace) -> tuple[list[Listing], list[str]]:
    answers = await ask_all(places(arguments), List())
    found = [answer for answer in answers if isinstance(answer, Listing)]
    return found, [str(answer) for answer in answers if isinstance(answer, ControlError)]


def rows_of(listings: Sequence[Listing], state: str = "") -> list[Row]:
    """The sandboxes of all services, those at work first."""
    rows = [row for listing in listings for row in listing.rows if not state or row.state == state]
    return sorted(rows, key=lambda row: (ORDER.index(row.state), -row.cpus, -row.age_s))


def table_of(rows: Sequence[Row], *, cpus: bool) -> Table:
    table = Table("instance", "id", "profile", "state", "age", "memory", "cpu", box=None)
    if cpus:
        table.add_column("cores")
    for name in ("tenant", "domain", "rollout"):
        table.add_column(name)
    for row in rows:
        used = [age(row.age_s), f"{row.memory_bytes / 2**20:.0f} MiB", f"{row.cpu_s:.1f}s"]
        used += [f"{row.cpus:.2f}"] if cpus else []
        table.add_row(
            row.instance, row.id, row.profile, row.state, *used, *map(escape, (row.tenant, row.domain, row.rollout))
        )
    return table


def summary(listings: Sequence[Listing]) -> str:
    """One line: how many in which state, what they use, what is wrong."""
    rows = rows_of(listings)
    states = Counter(row.state for row in rows)
    counted = ", ".join(f"{states[state]} {state}" for state in ORDER if states[state]) or "none"
    memory = sum(row.memory_bytes for row in rows) / 2**20
    line = f"{len(rows)} sandboxes ({counted}), {memory:.0f} MiB, {sum(row.cpus for row in rows):.1f} cores"
    breakers = {name: state for listing in listings for name, state in listing.breakers.items()}
    for state in sorted(set(breakers.values())):
        line += f", {sum(found == state for found in breakers.values())} breakers {state.replace('_', ' ')}"
    if waiting := sum(listing.waiting for listing in listings):
        line += f", {waiting} waiting for a quota"
    leaked = sum(listing.leaked for listing in listings)
    return line + (f", {leaked} LEAKED" if leaked else "")


def ls_main(arguments: Namespace) -> int:
    """All sandboxes, once; 1 when a service did not answer."""
    listings, problems = anyio.run(_listings, arguments)
    rows = rows_of(listings, arguments.state)
    if arguments.json:
        sys.stdout.write(msgspec.json.encode({"sandboxes": rows, "services": listings}).decode() + "\n")
    else:
        console = _wide()
        console.print(table_of(rows, cpus=False))
        console.print(summary(listings))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def top_main(arguments: Namespace) -> int:
    """The same again and again, those at work first, until interrupted or `-n` times."""
    return anyio.run(_top, arguments)


async def _top(arguments: Namespace) -> int:
    console, shown = _wide(), 0
    with Live(console=console, auto_refresh=False, screen=console.is_terminal and not arguments.n) as live:
        while True:
            listings, problems = await _listings(arguments)
            live.update(_screen(listings, problems, console.height), refresh=True)
            shown += 1
            if arguments.n and shown >= arguments.n:
                return 1 if problems else 0
            await anyio.sleep(arguments.every)


def _screen(listings: Sequence[Listing], problems: Sequence[str], height: int) -> RenderableType:
    rows = rows_of(listings)[: max(5, height - 5)]
    breakers = sorted({f"{name}: {state}" for each in listings for name, state in each.breakers.items()})
    lines = [*breakers[:5], *problems]
    return Group(Text(summary(listings)), table_of(rows, cpus=True), *(Text(line) for line in lines))


def _wide() -> Console:
    """A console that cuts no ids where nobody looks at it."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
