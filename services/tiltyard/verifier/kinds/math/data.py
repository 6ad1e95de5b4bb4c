"""What a task of kind `math` holds."""

from __future__ import annotations

from typing import Literal

from tiltyard.verifier.kinds.base import Part

Type = Literal[
    "auto",
    "number",
    "integer",
    "decimal",
    "fraction",
    "set",
    "tuple",
    "interval",
    "expression",
    "equation",
    "choice",
    "text",
]
Form = Literal["", "lowest", "expanded", "factored", "solved", "simplified", "percent"]


class Data(Part, frozen=True):
    """`verification.data`."""

    answer: str
    """The right answer, in LaTeX without dollar signs or plain text: '\\frac{1}{2}', '[0, 1)', '10\\text{ cm}', 'B'."""


class Options(Part, frozen=True):
    """`verification.options`."""

    type: Type = "auto"
    """What the answer is; 'auto' reads it off the reference. 'integer', 'decimal' and 'fraction' also demand that
    notation of the answer, 'number' leaves it open."""
    tolerance: float = 0.0
    """Relative, for numbers; 0 demands the exact value."""
    places: int = -1
    """Agreement after rounding to so many decimals is enough; -1: it isn't."""
    unit: str = ""
    """The unit that the question asks for: a number without a unit is read in it. 'percent', 'degree', 'cm', '$' ..."""
    literal: bool = True
    """A number must be written out: where the reference is a plain number, something to be computed is no answer."""
    form: Form = ""
    """A form that the question demands: a fraction in lowest terms, an expanded or a factored expression, an equation
    solved for a variable ('y = ...'), a number without square factors under roots or degree signs, a percent sign."""
    boxed: bool = False
    """Only what stands in \\boxed{} counts; without it other places of an answer are looked at."""
    choices: str = "ABCDEFGHIJ"
    """Letters of a choice."""
