"""What kinds share that judge a function in another language than Python by hidden calls: the data, and the options."""

from __future__ import annotations

from typing import Any

from .base import Part


class Call(Part, frozen=True):
    """One hidden call; arguments and result as JSON values."""

    args: tuple[Any, ...]
    expect: Any


class Options(Part, frozen=True):
    """`verification.options`: partial credit and tolerance. Keep the credit far below 1."""

    calls: float = 0.0
    """Credit for all calls right, shared out over them; full credit needs all of them anyway."""
    tolerance: float = 1e-9
    """Relative, for numbers that aren't integers."""
