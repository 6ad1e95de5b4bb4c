"""What a task of kind `program_runs` holds."""

from __future__ import annotations

from typing import Literal

import msgspec

from tiltyard.verifier.kinds.base import Part

Language = Literal["bash", "python", "javascript", "c"]


class Run(Part, frozen=True):
    """One hidden run: what the program is given, and what it must print."""

    stdout: str
    args: tuple[str, ...] = ()
    stdin: str = ""
    files: dict[str, str] = msgspec.field(default_factory=dict)
    """In the directory that it runs in."""
    status: int = 0


class Data(Part, frozen=True):
    """`verification.data`."""

    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("at least one run is needed")
        if any(path.startswith(("/", ".")) or ".." in path for run in self.runs for path in run.files):
            raise ValueError("files of a run lie in its directory")


class Options(Part, frozen=True):
    """`verification.options`."""

    language: Language = "bash"
    runs: float = 0.0
    """Credit for all runs right, shared out over them; full credit needs all of them anyway."""
    compare: Literal["exact", "lines", "words"] = "lines"
    """As in kind `files`."""
