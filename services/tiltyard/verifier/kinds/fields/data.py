"""What a task of kind `fields` holds."""

from __future__ import annotations

from typing import Literal

from tiltyard.verifier.kinds.base import Part


class Field(Part, frozen=True):
    """One field: how it's compared and its right value (None: the document doesn't have it)."""

    type: Literal["text", "decimal", "date", "iso_date"] = "text"
    """'iso_date' demands YYYY-MM-DD, for tasks that ask for it; 'date' takes any way to write the day."""
    value: str | None = None
    order: Literal["", "dmy", "mdy"] = ""
    """For dates in numbers that aren't ISO: which part comes first; empty: only ISO and named months are read."""


class Data(Part, frozen=True):
    """`verification.data`."""

    fields: dict[str, Field]


class Options(Part, frozen=True):
    """`verification.options`."""

    base: float = 0.0
    """Credit for one readable object with at least one of the keys; the rest of the score is F1."""
