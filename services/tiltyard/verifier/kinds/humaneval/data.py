"""What a task of kind `humaneval` holds."""

from __future__ import annotations

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`: the fields of a HumanEval problem."""

    function: str
    prompt: str
    """Imports, helpers, and the function's head with its docstring."""
    check: str
    """Source that defines `check(candidate)`, which raises when the candidate is wrong."""
