"""The sandbox services of this host, as the subcommands see them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import anyio

from tiltyard.cli.errors import UserError
from tiltyard.cli.main import source_of
from tiltyard.kit.settings import section
from tiltyard.sandbox.control import Answer, ControlError, Exec, List, Reap, ask, doors
from tiltyard.sandbox.images import home_of
from tiltyard.sandbox.settings import SandboxSettings


def settings_of(arguments: Namespace) -> SandboxSettings:
    """The `[sandbox]` settings that the command line gives."""
    return section(source_of(arguments), "sandbox", SandboxSettings)


def places(arguments: Namespace) -> list[Path]:
    """Instance directories of the services that run, all or the one of `--instance`; UserError without any."""
    home = home_of(settings_of(arguments))
    wanted = getattr(arguments, "instance", "")
    found = [path for path in doors(home) if path.name.startswith(wanted)]
    if not found:
        what = f"whose id begins with {wanted!r} " if wanted else ""
        raise UserError(
            f"no sandbox service {what}runs here with {home} as its home; start one with `tiltyard up` or "
            "`tiltyard run sandbox`, or name its home with --set sandbox.home=DIR"
        )
    return found


async def ask_all(found: list[Path], request: List | Reap) -> list[Answer | ControlError]:
    """The answers of all services, asked at the same time, in their order."""
    answers: dict[Path, Answer | ControlError] = {}

    async def one(place: Path) -> None:
        try:
            answers[place] = await ask(place, request, 60.0 if isinstance(request, Reap) else 10.0)
        except ControlError as error:
            answers[place] = error

    async with anyio.create_task_group() as tasks:
        for place in found:
            tasks.start_soon(one, place)
    return [answers[place] for place in found]


async def ask_for(found: list[Path], request: Exec) -> Answer:
    """The answer of the first service that has the sandbox (or any, for a new one); UserError with why it can't."""
    why = ""
    for place in found:
        try:
            return await ask(place, request, request.command.limits.wall_s + 60.0)
        except ControlError as error:
            why = f"{place.name}: {error}"
    raise UserError(why)
