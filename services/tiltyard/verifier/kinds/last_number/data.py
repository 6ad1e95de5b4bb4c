"""What a task of kind `last_number` holds."""

from __future__ import annotations

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    answer: str
    """The right number, written like an answer: '-12', '1,000', '0.5', '3/4', '12.5%'."""


class Options(Part, frozen=True):
    """`verification.options`."""

    tolerance: float = 0.0
    """Relative; 0 demands the exact number."""
