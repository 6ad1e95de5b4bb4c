"""What a task of kind `fields` holds."""

from __future__ import annotations

from typing import Literal

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.typed_values import DateOrder, DecimalMark

Scheme = Literal["", "iban", "luhn", "ean", "isbn10"]


class Field(Part, frozen=True):
    """One field: how it's compared and its right value (None: the document doesn't have it)."""

    type: Literal["text", "name", "decimal", "integer", "date", "iso_date", "id", "boolean", "items"] = "text"
    """'text' disregards case and spacing, 'name' also small differences of spelling, 'id' spaces and dashes;
    'iso_date' demands YYYY-MM-DD, for tasks that ask for it; 'date' takes any way to write the day."""
    value: str | None = None
    others: tuple[str, ...] = ()
    """Further right values."""
    order: DateOrder = ""
    """For dates in numbers that aren't ISO: which part comes first; empty: only what has one reading is read."""
    mark: DecimalMark = ""
    """The document's decimal mark, for amounts such as '1.234'; empty: a point, and commas group."""
    unit: str = ""
    """Of an amount, such as 'EUR' or '%'; a different one makes it another amount."""
    tolerance: str = "0"
    """Largest difference of a decimal that doesn't count."""
    scheme: Scheme = ""
    """Check digits that an id has; a reference that fails them is the task's fault."""
    columns: dict[str, Field] = {}  # noqa: RUF012  # copied for each
    """Of 'items': how each key of an item is compared; `value` isn't used."""
    rows: tuple[dict[str, str | None], ...] = ()
    """Of 'items': the right items."""
    ordered: bool = False
    """Of 'items': their order counts."""


class Data(Part, frozen=True):
    """`verification.data`."""

    fields: dict[str, Field]
    """By key; 'a.b' is key b of the object under a."""


class Options(Part, frozen=True):
    """`verification.options`."""

    base: float = 0.0
    """Credit for one readable object with at least one of the keys; the rest of the score is F1."""
