"""What kinds share whose submissions run in a sandbox: what may be sent there, and how results come back unforged.

Two ways keep a result honest. *Calls*: a child in the sandbox only evaluates calls and writes plain values, and the
comparison is made here, so expected values never enter the sandbox (`call_results`, `values`). *Nonce*: a checking
process of another user prints a line that begins with what only it was told (`nonce`, `said_with`), for checks that
must lie beside what they check. An exit status, a printed pattern or a report file alone can be forged.
"""

from __future__ import annotations

import hashlib

from tiltyard_proto.messages import BlobRef, Rollout

from .values import Unreadable, decode_line

MAX_CODE = 65_536
"""Characters of code that is sent into a sandbox."""
MAX_RESULTS = 1 << 20


def unrunnable(code: str, what: str = "code") -> str:
    """Why a text can't be sent into a sandbox as a program; empty when it can."""
    if not code.strip():
        return f"there is no {what}"
    if len(code) > MAX_CODE or "\0" in code:
        return f"the {what} is longer than {MAX_CODE} characters or contains a NUL"
    if any("\ud800" <= char <= "\udfff" for char in code):
        return f"the {what} isn't valid Unicode"
    return ""


def last_workspace(rollout: Rollout) -> BlobRef | None:
    """The files that the session left; None when nothing ran."""
    return next((turn.workspace for turn in reversed(rollout.turns) if turn.workspace), None)


def call_results(raw: bytes, count: int) -> tuple[dict[int, dict[str, object]], str]:
    """The first record of each call of a results file, and the error of loading if there was one.

    A line is {"call": index, "value": tagged value} or {"call": index, "error": text}; index -1 is the loading.
    """
    found: dict[int, dict[str, object]] = {}
    loading = ""
    for line in raw[:MAX_RESULTS].splitlines()[: count + 1]:
        try:
            record = decode_line(line)
        except Unreadable:
            continue
        index = record.get("call")
        if index == -1:
            loading = str(record.get("error"))
        elif type(index) is int and 0 <= index < count:
            found.setdefault(index, record)
    return found, loading


def nonce(kind: str, rollout: Rollout) -> str:
    """What a checking process must repeat: derived from ids that never enter the sandbox."""
    key = f"{rollout.id}/{rollout.attempt}/{rollout.task.id}/{rollout.created}".encode()
    return hashlib.blake2b(key, digest_size=16, person=kind.encode()[:16]).hexdigest()


def said_with(stdout: bytes, key: str) -> str:
    """What the last line that begins with the nonce `key` says; empty when there is none."""
    for line in reversed(stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(f"{key} "):
            return line.removeprefix(f"{key} ")
    return ""


def shown(value: object) -> str:
    """A value in a reason."""
    try:
        return repr(value)[:100]
    except ValueError:  # an integer with more digits than Python prints
        return "a huge number"
