"""Live progress: one status line that rich keeps at the bottom of a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltyard_proto.messages import RunStatus

PLAIN_EVERY_S = 15.0


class Progress:
    """Shows where the run stands; a context manager."""

    def __init__(self, run: Any, *, plain: bool) -> None:
        self.run = run
        self.plain = plain
        self._console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True)
        self._live = None if plain else Live(console=self._console, refresh_per_second=4, transient=True)
        self._started = time.monotonic()
        self._said = self._started
        self._status: RunStatus | None = None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def print(self, line: str) -> None:
        """One line of the log."""
        if self._live is None:
            print(line, flush=True)
        else:
            self._console.print(Text.from_ansi(line))

    def status(self, status: RunStatus) -> None:
        self._status = status

    def refresh(self, queues: dict[str, int]) -> None:
        """Show the state and the depth of each queue."""
        line = self._line(queues)
        if self._live is not None:
            self._live.update(Text(line, style="bold"))
        elif time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._said = time.monotonic()
            self.print(f"{time.strftime('%H:%M:%S')} {line}")

    def _line(self, queues: dict[str, int]) -> str:
        elapsed = time.monotonic() - self._started
        state = f"{self._status.state}, {self._status.detail}" if self._status else "starting"
        waiting = "  ".join(f"{name} {count}" for name, count in queues.items())
        return f"{self.run.name}  {elapsed:4.0f} s  {state}  |  in flight: {waiting}"
