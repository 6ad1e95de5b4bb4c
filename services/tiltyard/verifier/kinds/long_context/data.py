"""What a task of kind `long_context` holds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`: `answers`, or `fields` for an answer with named parts."""

    answers: tuple[str, ...] = ()
    """What must be found, in any order; with alternatives separated by ' || '."""
    fields: dict[str, str] = {}  # noqa: RUF012
    """Named parts of the answer, such as a value and the section it stands in."""
    decoys: tuple[str, ...] = ()
    """What else the context offers: naming some of it costs precision."""


class Options(Part, frozen=True):
    """`verification.options`."""

    shotgun: Annotated[int, Meta(ge=1)] = 2
    """An answer with more than so many wrong candidates for each one that was asked for scores 0."""
    part: Annotated[float, Meta(gt=0, le=1)] = 0.6
    """So much of a sentence of five words or more, in one piece, is enough."""
    ordered: bool = False
    """Must the answers come in the order of `answers`?"""
