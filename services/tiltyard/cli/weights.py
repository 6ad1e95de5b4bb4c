"""`tiltyard weights ls`, `set` and `unset`: the shares of domains at the stages where they share a scarce resource.

A weight takes effect within seconds, in running services. Left out: weights of the run's own configuration.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from tiltyard.kit import weights
from tiltyard.kit.bus import Bus
from tiltyard_proto.keys import check_domain

from .connection import connected
from .errors import UserError
from .main import source_of


def parse(pairs: Sequence[str]) -> dict[str, float]:
    """`DOMAIN=WEIGHT` arguments; UserError for one that is none."""
    found: dict[str, float] = {}
    for pair in pairs:
        domain, equals, text = pair.partition("=")
        try:
            weight = float(text) if equals else None
        except ValueError:
            weight = None
        if weight is None:
            raise UserError(f"{pair!r}: expected DOMAIN=WEIGHT, for example code.python.functions=2")
        if domain in found:
            raise UserError(f"{domain} is named twice")
        weights.check_weight(domain, weight)
        found[domain] = weight
    return found


async def _ls(bus: Bus, stages: Sequence[str], arguments: Namespace) -> None:
    found = {stage: await weights.read(bus, stage) for stage in stages}
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    _print(found)


def _print(found: dict[str, dict[str, float]]) -> None:
    table = Table("domain", *found, box=None)
    for domain in sorted({domain for each in found.values() for domain in each}):
        table.add_row(domain, *(f"{each.get(domain, weights.DEFAULT):g}" for each in found.values()))
    table.add_row("every other", *(f"{weights.DEFAULT:g}" for _ in found))
    Console(highlight=False).print(table)


async def _set(bus: Bus, stages: Sequence[str], arguments: Namespace) -> None:
    wanted = parse(arguments.weights)
    _print({stage: await weights.change(bus, stage, wanted, anew=arguments.only) for stage in stages})


async def _unset(bus: Bus, stages: Sequence[str], arguments: Namespace) -> None:
    for domain in arguments.domains:
        check_domain(domain)
    _print({stage: await weights.change(bus, stage, {}, arguments.domains) for stage in stages})


ACTIONS = {"ls": _ls, "set": _set, "unset": _unset}


async def _run(arguments: Namespace) -> None:
    stages = tuple(dict.fromkeys(arguments.stage)) or weights.SHARED
    async with connected(source_of(arguments)) as bus:
        try:
            await ACTIONS[arguments.action](bus, stages, arguments)
        except weights.WeightsUnreadable as error:
            raise UserError(f"{error}; `tiltyard weights set --only DOMAIN=WEIGHT` writes them anew") from error
        except weights.WeightsContended as error:
            raise UserError(str(error)) from error


def main(arguments: Namespace) -> int:
    anyio.run(_run, arguments)
    return 0
