"""`tiltyard dlq replay`, `edit` and `purge`: what changes something."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
from rich.console import Console

from tiltyard.cli.errors import UserError
from tiltyard.kit.deadletters import OPEN, REPLAYING, RESOLVED, SUPERSEDED, Entry, Letters
from tiltyard.kit.render import rendering
from tiltyard.kit.replay import Replayer, may_replay, verdict_now
from tiltyard.kit.settle import Settler

from .choose import check_ids, letters, names_something, which
from .look import look_up

POLL_S = 0.2


async def chosen(arguments: Namespace, found: Letters) -> list[Entry]:
    """The letters that the arguments mean, their states up to date."""
    entries = await Settler(found).settle()
    wanted = which(arguments)
    check_ids(arguments, entries)
    return [entry for entry in entries if wanted.takes(entry)]


# ---------------------------------------------------------------- replay


async def _send(found: Letters, entries: Sequence[Entry], rate: float) -> list[str]:
    """Ids of what was sent, in order, `rate` a second."""
    replayer, sent = Replayer(found), []
    start = anyio.current_time()
    for number, entry in enumerate(entries):
        await anyio.sleep(max(0.0, start + number / rate - anyio.current_time()))
        if await replayer.replay(entry):
            sent.append(entry.id)
    return sent


async def _ends(found: Letters, sent: Sequence[str], wait_s: float) -> list[Entry]:
    """How the replays stand once all have ended, or after `wait_s` seconds."""
    ids, deadline = set(sent), anyio.current_time() + wait_s
    while True:
        entries = [entry for entry in await Settler(found).settle() if entry.id in ids]
        under_way = any(entry.state.state == REPLAYING for entry in entries)
        if not under_way or anyio.current_time() >= deadline:
            return entries
        await anyio.sleep(POLL_S)


def account(entries: Sequence[Entry]) -> dict[str, int]:
    """How replays ended."""
    counts = Counter(entry.state.result if entry.state.state == RESOLVED else entry.state.state for entry in entries)
    return {
        "processed": counts["processed"],
        "late": counts["late"],
        "failed_again": counts[SUPERSEDED],
        "under_way": counts[REPLAYING],
        "lost": counts[OPEN],
    }


async def _dry(found: Letters, entries: Sequence[Entry]) -> dict[str, Any]:
    says = [await verdict_now(found, entry) for entry in entries]
    refused = Counter(said.split(":")[0] for said in says if said)
    return {"would_replay": len(entries), "would_be_taken": says.count(""), "would_fail_again": dict(refused)}


async def _replay(arguments: Namespace) -> dict[str, Any]:
    names_something(arguments)
    if not arguments.rate > 0:
        raise UserError(f"--rate {arguments.rate:g}: expected more than 0 letters a second")
    async with letters(arguments) as found:
        entries = [entry for entry in await chosen(arguments, found) if may_replay(entry)]
        unfinished = await _unfinished(found, arguments)
        if arguments.dry_run:
            return await _dry(found, entries)
        sent = await _send(found, [*unfinished, *entries], arguments.rate)
        return {"replayed": len(sent), **account(await _ends(found, sent, arguments.wait) if sent else [])}


async def _unfinished(found: Letters, arguments: Namespace) -> list[Entry]:
    """Letters whose replay an earlier command had begun and not sent."""
    wanted = msgspec.structs.replace(which(arguments), state=REPLAYING)
    return [entry for entry in await found.all(wanted) if not entry.state.sequence]


def replay_main(arguments: Namespace) -> int:
    counts = anyio.run(_replay, arguments)
    if arguments.json:
        print(rendering(counts))
    elif arguments.dry_run:
        refused = "".join(f", {n} would fail again ({why})" for why, n in counts["would_fail_again"].items())
        print(f"{counts['would_replay']} letters would be replayed: {counts['would_be_taken']} would be taken{refused}")
    else:
        rest = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n and name != "replayed")
        print(f"{counts['replayed']} replayed" + (f": {rest}" if rest else ""))
    return 1 if counts.get("failed_again") or counts.get("lost") else 0


# ---------------------------------------------------------------- edit


async def _edit(arguments: Namespace, text: bytes) -> tuple[str, dict[str, int]]:
    async with letters(arguments) as found:
        entry = await look_up(found, arguments.id)
        difference = await Replayer(found).edit(entry, text)
        return difference, account(await _ends(found, [entry.id], 5.0))


def edit_main(arguments: Namespace) -> int:
    if arguments.file is not None:
        try:
            text = arguments.file.read_bytes()
        except OSError as error:
            raise UserError(f"{arguments.file}: {error.strerror}") from error
    else:
        text = arguments.json.encode("utf-8", "surrogateescape")
    difference, counts = anyio.run(_edit, arguments, text)
    print(difference or "no difference")
    print(f"{arguments.id} replayed: " + next(name.replace("_", " ") for name, n in counts.items() if n))
    return 1 if counts["failed_again"] else 0


# ---------------------------------------------------------------- purge


async def _purge(arguments: Namespace) -> tuple[int, int]:
    names_something(arguments)
    async with letters(arguments) as found:
        entries = [entry for entry in await chosen(arguments, found) if entry.state.state != REPLAYING]
        if arguments.yes is None:
            return len(entries), 0
        if arguments.yes != len(entries):
            raise UserError(f"--yes {arguments.yes}: there are {len(entries)} such letters; nothing was discarded")
        done = [await found.discard(entry) for entry in entries]
        return len(entries), sum(done)


def purge_main(arguments: Namespace) -> int:
    count, done = anyio.run(_purge, arguments)
    if arguments.yes is None:
        Console(highlight=False, markup=False).print(
            f"{count} dead letters would be discarded for good. `tiltyard dlq export` keeps a copy; "
            f"the same command with --yes {count} discards them."
        )
        return 0
    print(f"{done} dead letters discarded")
    return 0 if done == count else 1
