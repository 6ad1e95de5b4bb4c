"""`tiltyard quotas ls`, `set` and `clear`: how many sandboxes runs and domains may have, in running services.

What is set here stands in place of `sandbox.tenants` and `sandbox.domains` within seconds, and outlives restarts.
Invariant: a file with a mistake changes nothing. Left out: shares between domains (`weights`).
"""

from __future__ import annotations

import tomllib
from argparse import Namespace
from pathlib import Path

import anyio
import msgspec

from tiltyard.kit.bus import Bus
from tiltyard.sandbox.housekeeping import QUOTAS_KEY, Quotas
from tiltyard_proto.topology import WEIGHTS_BUCKET

from .connection import connected
from .errors import UserError
from .main import source_of


def read_file(path: Path) -> Quotas:
    """The quotas in a TOML file with tables `tenants` and `domains`; UserError where it is wrong."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Quotas)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: {error}; expected tables [tenants] and [domains] as in docs/sandbox.md") from error


async def _ls(bus: Bus, _: Namespace) -> None:
    entry = await bus.kv(WEIGHTS_BUCKET).get(QUOTAS_KEY)
    if entry is None or not entry[0]:
        print("none is set; those of each service's settings hold")
    else:
        print(msgspec.json.format(entry[0]).decode())


async def _set(bus: Bus, arguments: Namespace) -> None:
    await bus.kv(WEIGHTS_BUCKET).put(QUOTAS_KEY, msgspec.json.encode(arguments.quotas))
    await _ls(bus, arguments)


async def _clear(bus: Bus, arguments: Namespace) -> None:
    await bus.kv(WEIGHTS_BUCKET).put(QUOTAS_KEY, b"")
    await _ls(bus, arguments)


ACTIONS = {"ls": _ls, "set": _set, "clear": _clear}


async def _run(arguments: Namespace) -> None:
    async with connected(source_of(arguments)) as bus:
        await ACTIONS[arguments.action](bus, arguments)


def main(arguments: Namespace) -> int:
    """Run one action."""
    if arguments.action == "set":
        arguments.quotas = read_file(arguments.file)
    anyio.run(_run, arguments)
    return 0
