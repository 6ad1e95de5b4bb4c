"""What a task of kind `files` holds."""

from __future__ import annotations

from typing import Literal

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    expected: dict[str, str]
    """Path to content of the files that must be there."""
    absent: tuple[str, ...] = ()
    """Paths that must not be there."""
    compare: Literal["exact", "lines", "words"] = "lines"
    """'exact': byte for byte; 'lines': white space at the end of lines and empty lines at the end don't count;
    'words': white space doesn't count."""


class Options(Part, frozen=True):
    """`verification.options`."""

    partial: float = 0.0
    """Credit shared out over the demanded changes that were made, paid only when nothing else was damaged."""
