"""`tiltyard doctor`: this machine's prerequisites, one line each."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import anyio

from tiltyard.kit.embedded import EmbeddedError, find_binary

from .errors import UserError
from .main import source_of
from .models import can_make, present
from .sections import check_all
from .up import preflight


def main(arguments: Namespace) -> int:
    sections = check_all(source_of(arguments))
    failures = 0

    def say(line: str) -> None:
        print(f"ok    {line}")

    async def sandbox() -> None:
        await preflight.check_sandbox(sections["sandbox"], sections["data"], say)

    async def model() -> None:
        name, data = sections["run"].model, sections["data"]
        if can_make(name) and present(name, data.cache_path) is None:
            say(f"model: {name} is built in and will be made when it is first needed")
        else:
            await preflight.check_model(name, data, say)

    def disk() -> None:
        preflight.check_disk(Path(sections["data"].root).absolute(), sections["supervisor"])
        say(f"disk: {sections['data'].root}")

    def bus() -> None:
        say(f"nats-server: {find_binary(sections['bus'].binary)}")

    for check in (disk, bus, lambda: anyio.run(model), lambda: anyio.run(sandbox)):
        try:
            check()
        except (UserError, EmbeddedError) as error:
            print(f"FAIL  {error}")
            failures += 1
    return 1 if failures else 0
