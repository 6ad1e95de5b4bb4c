"""The merged log: every line of every process into one file, and what matters in readable form to the terminal.

Invariants: the file keeps every line as it came; the terminal gets warnings, errors and the events that mark progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

QUIET = frozenset({"timestamp", "level", "event", "service", "exception", "logger"})
PROGRESS = frozenset(
    {
        "service_starts",
        "service_ends",
        "sampler_ready",
        "run_status",
        "step_trained",
        "policy_published",
        "weights_updated",
        "engine_ready",
        "drain",
        "resumed",
    }
)
COLOURS = {"error": "\033[31m", "critical": "\033[31m", "warning": "\033[33m"}


def readable(name: str, line: str) -> tuple[str, str, str]:
    """(level, event, text) of one line of a process; plain text is an info line."""
    try:
        entry = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return "info", "", f"{name:10} {line}"
    if not isinstance(entry, dict):
        return "info", "", f"{name:10} {line}"
    level, event = str(entry.get("level", "info")), str(entry.get("event", ""))
    pairs = " ".join(f"{key}={_short(value)}" for key, value in entry.items() if key not in QUIET)
    failure = _failure(entry.get("exception"))
    return level, event, f"{name:10} {event} {pairs}{failure}".rstrip()


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if len(text) <= 160 else text[:157] + "..."


def _failure(exception: Any) -> str:
    if isinstance(exception, list) and exception and isinstance(exception[0], dict):
        return f" {exception[0].get('exc_type')}: {str(exception[0].get('exc_value'))[:200]}"
    return f" {exception}"[:300] if exception else ""


class MergedLog:
    """Writes to a file and, filtered, through `show`."""

    def __init__(self, path: Path, show: Callable[[str], None], *, colour: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._failed = False
        self._show = show
        self._colour = colour

    def line(self, name: str, line: str) -> None:
        """Take one line of a process."""
        self._keep(f"{name}\t{line}\n")
        level, event, text = readable(name, line)
        plain = event == "" and name != "up"
        if level in COLOURS or event in PROGRESS or name == "up" or plain:
            self.say(text, level)

    def _keep(self, text: str) -> None:
        """Into the file; a full disk must not end what could go on."""
        try:
            self._file.write(text.encode(errors="replace"))
            self._failed = False
        except OSError as error:
            if not self._failed:
                self.say(f"{self._file.name} can't be written ({error.strerror}); its lines are lost", "error")
            self._failed = True

    def say(self, text: str, level: str = "info") -> None:
        """One line of the supervisor's own."""
        colour = COLOURS.get(level, "") if self._colour else ""
        self._show(f"{time.strftime('%H:%M:%S')} {colour}{text}{chr(27) + '[0m' if colour else ''}")

    def close(self) -> None:
        self._file.close()
