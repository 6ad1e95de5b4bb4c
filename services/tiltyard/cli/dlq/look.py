"""`tiltyard dlq ls` and `show`."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tiltyard.cli.errors import UserError
from tiltyard.kit.breaker import Pause, standing
from tiltyard.kit.deadletters import Entry, Letters
from tiltyard.kit.errors import UNREADABLE
from tiltyard.kit.render import hexdump, rendering
from tiltyard.kit.replay import body_of, verdict_now
from tiltyard.kit.settle import Settler

from .choose import age, letters, which
from .pauses import note


def groups(entries: Sequence[Entry], now: float) -> list[dict[str, Any]]:
    """Counts by stage, class, domain and state, the largest first."""
    found: dict[tuple[str, str, str, str], list[Entry]] = {}
    for entry in entries:
        key = entry.letter.stage, entry.letter.reason, entry.domain, entry.state.state
        found.setdefault(key, []).append(entry)
    rows = []
    for (stage, reason, domain, state), members in found.items():
        failed = [entry.letter.failed for entry in members]
        commonest = Counter(entry.letter.detail for entry in members).most_common(1)[0][0]
        results = Counter(entry.state.result for entry in members if state == "resolved")
        rows.append(
            {
                "stage": stage,
                "reason": reason,
                "domain": domain,
                "state": state,
                "count": len(members),
                "oldest_s": round(now - min(failed), 1),
                "newest_s": round(now - max(failed), 1),
                "results": dict(results),
                "example": members[-1].id,
                "detail": commonest,
            }
        )
    return sorted(rows, key=lambda row: (-row["count"], row["stage"], row["reason"], row["domain"]))


def row_of(entry: Entry) -> dict[str, Any]:
    """One letter in short, for machines."""
    letter, state = entry.letter, entry.state
    return {
        "id": entry.id,
        "stage": letter.stage,
        "reason": letter.reason,
        "domain": entry.domain,
        "state": state.state,
        "result": state.result,
        "replays": state.replays,
        "failed": letter.failed,
        "subject": letter.subject,
        "detail": letter.detail,
    }


def _one_line(text: str, width: int = 80) -> str:
    line = " ".join(text.split())
    return escape(line if len(line) <= width else line[: width - 3] + "...")


def _print_groups(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    table = Table("stage", "class", "domain", "state", "count", "oldest", "newest", "example", "detail", box=None)
    for row in rows:
        results = ", ".join(f"{count} {name}" for name, count in row["results"].items())
        table.add_row(
            row["stage"],
            row["reason"],
            escape(row["domain"]),
            row["state"] + (f" ({results})" if results else ""),
            str(row["count"]),
            age(row["oldest_s"]),
            age(row["newest_s"]),
            row["example"],
            _one_line(row["detail"], 60),
        )
    console.print(table)


def _print_letters(console: Console, entries: Sequence[Entry], now: float) -> None:
    table = Table("id", "domain", "state", "replays", "age", "detail", box=None)
    for entry in entries:
        state = entry.state.state + (f" ({entry.state.result})" if entry.state.result else "")
        old = age(now - entry.letter.failed)
        table.add_row(
            entry.id, escape(entry.domain), state, str(entry.state.replays), old, _one_line(entry.letter.detail)
        )
    console.print(table)


def wide(console: Console) -> Console:
    """A console that cuts no ids where nobody looks at it."""
    return console if console.is_terminal else Console(highlight=False, width=240)


async def _ls(arguments: Namespace) -> tuple[list[Entry], list[Pause]]:
    chosen = which(arguments)
    async with letters(arguments) as found:
        entries = [entry for entry in await Settler(found).settle() if chosen.takes(entry)]
        return entries, await standing(found.bus)


def ls_main(arguments: Namespace) -> int:
    (entries, pauses), now = anyio.run(_ls, arguments), time.time()
    rows = groups(entries, now)
    if arguments.json:
        listed = {"letters": [row_of(entry) for entry in entries]} if arguments.long else {}
        print(rendering({"total": len(entries), "groups": rows, "paused": pauses, **listed}))
        return 0
    console = wide(Console(highlight=False))
    if not entries:
        console.print(f"no dead letters ({arguments.state})")
    elif arguments.long:
        _print_letters(console, entries, now)
    else:
        _print_groups(console, rows)
        console.print(f"{len(entries)} dead letters")
    note(console, pauses, now)
    return 0


# ---------------------------------------------------------------- show


async def look_up(found: Letters, letter: str) -> Entry:
    """The letter of an id, or of the only id that begins so; UserError when there is none."""
    entries = [entry for entry in await Settler(found).settle() if entry.id.startswith(letter)]
    exact = [entry for entry in entries if entry.id == letter] or entries
    if len(exact) != 1:
        what = f"{len(exact)} dead letters begin with" if exact else "no dead letter"
        raise UserError(f"{what} {letter!r}; `tiltyard dlq ls --long` lists them")
    return exact[0]


async def _show(arguments: Namespace) -> tuple[Entry, bytes, str]:
    async with letters(arguments) as found:
        entry = await look_up(found, arguments.id)
        return entry, await body_of(found.bus, entry), await verdict_now(found, entry)


def structure(body: bytes) -> Any:
    """What the bytes hold, whatever it is; None when they hold nothing that can be read."""
    for codec in (msgspec.json, msgspec.msgpack):
        try:
            found = codec.decode(body)
            msgspec.json.encode(found)
        except UNREADABLE:
            continue
        return found if isinstance(found, dict) else None
    return None


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _print_letter(entry: Entry, body: bytes, now_says: str) -> None:
    letter, state = entry.letter, entry.state
    say = Console(highlight=False, markup=False, width=None if Console().is_terminal else 240).print
    say(f"{entry.id}: {letter.reason} at stage {letter.stage}, {state.state} {state.result}".rstrip())
    say(f"  why         {letter.detail}")
    say(f"  now         {now_says or 'this release would take it'}")
    say(f"  domain      {entry.domain}")
    say(f"  subject     {letter.subject}")
    say(f"  position    {letter.sequence} of {letter.stream}, read by {letter.consumer}")
    say(f"  deliveries  {letter.deliveries}")
    say(f"  stored      {_time(letter.first_seen)}, failed {_time(letter.failed)}")
    say(f"  trace       {letter.headers.get('traceparent', 'none')}")
    for name, value in letter.headers.items():
        say(f"  header      {name}: {value}")
    if state.subject:
        say(f"  replay      {state.replays}, the newest at {state.sequence or '?'} on {state.subject}")
    for action in state.history:
        say(f"  {_time(action.at)} {action.action} by {action.by or '?'}: {action.detail}")
    found = structure(body)
    say(f"  message     {len(body)} bytes" + ("" if found is not None else ", which can't be decoded:"))
    say(rendering(found) if found is not None else hexdump(body))


def show_main(arguments: Namespace) -> int:
    entry, body, now_says = anyio.run(_show, arguments)
    found = structure(body)
    if arguments.message:
        if found is None:
            raise UserError(f"{entry.id}: its {len(body)} bytes can't be decoded; `tiltyard dlq show` dumps them")
        print(rendering(found))
    elif arguments.json:
        dump = hexdump(body) if found is None else None
        parts = {"letter": entry.letter, "state": entry.state, "message": found, "hexdump": dump, "now": now_says}
        print(rendering({"id": entry.id, "domain": entry.domain, **parts}))
    else:
        _print_letter(entry, body, now_says)
    return 0
