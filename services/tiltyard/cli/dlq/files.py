"""`tiltyard dlq export` and `import`: letters as JSON lines, to attach to a bug or to run again elsewhere.

One object a line: the letter (its bytes in base64), how it stands, and the blob that its claim check refers to.
Invariants: importing what is there changes nothing; a letter that is imported is open on the new bus.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec

from tiltyard.cli.errors import UserError
from tiltyard.kit.deadletters import Entry, Letters
from tiltyard.kit.intake import CLAIM, Reject, claim
from tiltyard.kit.replay import body_of
from tiltyard.kit.settle import Settler
from tiltyard_proto import keys
from tiltyard_proto.messages import DeadLetter, LetterState
from tiltyard_proto.topology import BY_NAME, DLQ

from .choose import letters, which


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exported letter."""

    letter: DeadLetter
    state: LetterState | None = None
    blob: bytes | None = None
    """What the letter's claim check refers to; none without one, or when the blob is gone."""


async def _line(found: Letters, entry: Entry) -> bytes:
    body = await body_of(found.bus, entry) if entry.letter.headers.get(CLAIM) else entry.letter.body
    blob = None if body == entry.letter.body else body
    return msgspec.json.encode(Line(letter=entry.letter, state=entry.state, blob=blob)) + b"\n"


async def _export(arguments: Namespace, file: BinaryIO) -> int:
    chosen, count = which(arguments), 0
    async with letters(arguments) as found:
        for entry in await Settler(found).settle():
            if chosen.takes(entry):
                file.write(await _line(found, entry))
                count += 1
    return count


def export_main(arguments: Namespace) -> int:
    if arguments.file == "-":
        anyio.run(_export, arguments, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return 0
    try:
        with Path(arguments.file).open("wb") as file:
            count = anyio.run(_export, arguments, file)
    except OSError as error:
        raise UserError(f"{arguments.file}: {error.strerror}") from error
    print(f"{count} dead letters written to {arguments.file}")
    return 0


def read_lines(lines: Iterable[bytes], name: str) -> list[Line]:
    """Exported letters; UserError names the line that is none, before anything is stored."""
    found: list[Line] = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=Line)
            keys.check_token(DLQ.key(line.letter), "id")
            if line.letter.stage not in BY_NAME:
                raise ValueError(f"stage {line.letter.stage!r}: expected one of {', '.join(BY_NAME)}")
            found.append(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise UserError(f"{name}:{number}: no exported dead letter: {error}; nothing was imported") from error
    return found


async def _import(arguments: Namespace, lines: list[Line]) -> tuple[int, int]:
    new = 0
    async with letters(arguments) as found:
        for line in lines:
            if line.blob is not None:
                await _restore(found, line.letter, line.blob)
            new += await found.store(line.letter)
    return new, len(lines) - new


async def _restore(found: Letters, letter: DeadLetter, blob: bytes) -> None:
    try:
        wanted = claim(letter.body)
    except Reject:
        return  # its claim check is what is wrong with it
    ref = await anyio.to_thread.run_sync(found.bus.blobs.put, blob)
    if ref.sha256 != wanted.sha256:
        raise UserError(f"{DLQ.key(letter)}: its blob does not match its claim check")


def import_main(arguments: Namespace) -> int:
    try:
        if arguments.file == "-":
            lines = read_lines(sys.stdin.buffer, "standard input")
        else:
            with Path(arguments.file).open("rb") as file:
                lines = read_lines(file, arguments.file)
    except OSError as error:
        raise UserError(f"{arguments.file}: {error.strerror}") from error
    new, old = anyio.run(_import, arguments, lines)
    print(f"{new} dead letters stored, {old} were there already")
    return 0
