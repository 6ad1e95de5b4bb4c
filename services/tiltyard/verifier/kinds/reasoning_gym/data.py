"""What a task of kind `reasoning_gym` holds."""

from __future__ import annotations

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    dataset: str
    """Name in reasoning-gym."""
    seed: int
    digest: str
    """Of the question, so that another version of reasoning-gym is noticed."""
    answer: str
    """The data set's own answer; empty when it has none."""
    level: int = -1
    """Of its curriculum; see `tiltyard.domains.procedural`."""
    exact: bool = False
    """Only that answer is right: nothing needs to run."""
    numbers: tuple[int, ...] = ()
    """For games of arithmetic: the numbers that must be used, each once."""
    target: int = 0
    """And what they must give."""


class Options(Part, frozen=True):
    """`verification.options`."""

    threshold: float = 1.0
    """The least score of the data set's scorer that counts. Most scorers pay for less than a right answer."""
