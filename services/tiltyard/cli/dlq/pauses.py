"""Domains that a stage has paused: the note below `tiltyard dlq ls`, and `tiltyard dlq resume`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import anyio
from rich.console import Console
from rich.markup import escape

from tiltyard.cli.errors import UserError
from tiltyard.kit.breaker import Pause, resume, standing
from tiltyard_proto.topology import GATE

from .choose import age, letters, who


def line(pause: Pause, now: float) -> str:
    """One pause for people."""
    if pause.stage == GATE:
        return f"kept out: {pause.domain}, {age(now - pause.since)} ago, by the entry gate ({pause.detail})"
    return (
        f"paused: {pause.domain} at {pause.stage}, {age(now - pause.since)} ago, since {pause.died} of {pause.of} "
        f"messages died there ({pause.detail})"
    )


def note(console: Console, pauses: Sequence[Pause], now: float) -> None:
    """Say which domains are paused, and how they go on."""
    for pause in pauses:
        console.print(escape(line(pause, now)), style="red")
    if pauses:
        console.print(
            "their messages wait; when the cause is mended: tiltyard dlq resume --stage STAGE --domain DOMAIN"
        )


async def _resume(arguments: Namespace) -> list[Pause]:
    async with letters(arguments) as found:
        pauses = [
            pause
            for pause in await standing(found.bus)
            if arguments.stage in ("", pause.stage) and arguments.domain in ("", pause.domain)
        ]
        for pause in pauses:
            await resume(found.bus, pause, who())
    return pauses


def resume_main(arguments: Namespace) -> int:
    if not (arguments.stage or arguments.domain or arguments.all):
        raise UserError("name what goes on by --stage or --domain, or all with --all")
    pauses = anyio.run(_resume, arguments)
    for pause in pauses:
        print(f"resumed: {pause.domain} at {pause.stage}")
    if not pauses:
        print("nothing like that is paused")
    return 0
