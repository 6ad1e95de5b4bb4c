"""What a task of kind `sql` holds."""

from __future__ import annotations

from typing import Literal

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    query: str
    """The reference."""
    setups: tuple[str, ...]
    """Statements that make a data base; a submission must be right on each, so that no constant is."""

    def __post_init__(self) -> None:
        if not self.query.strip() or not self.setups:
            raise ValueError("a reference query and at least one setup are needed")


class Options(Part, frozen=True):
    """`verification.options`."""

    order: Literal["auto", "rows", "any"] = "auto"
    """'auto': the order of rows counts when the reference sorts them at its top."""
    columns: Literal["position", "any"] = "position"
    """'any': columns may come in any order. Their names never count."""
    tolerance: float = 1e-6
    """Relative, for numbers that aren't integers."""
    dialect: str = "duckdb"
    """That the reference is written in, for finding its ORDER BY."""
