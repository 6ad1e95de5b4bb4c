"""What a task of kind `tool_calls` holds."""

from __future__ import annotations

from typing import Any, Literal

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.tooling import Tool


class Call(Part, frozen=True):
    """A call that is wanted."""

    name: str
    arguments: dict[str, Any] = {}  # noqa: RUF012  # copied for each
    others: dict[str, tuple[Any, ...]] = {}  # noqa: RUF012  # copied for each
    """By argument: further right values."""
    optional: tuple[str, ...] = ()
    """Arguments that may be left out."""


class Data(Part, frozen=True):
    """`verification.data`."""

    tools: tuple[Tool, ...]
    calls: tuple[Call, ...]
    """None: no tool fits, and the right answer is an empty list."""


class Options(Part, frozen=True):
    """`verification.options`."""

    ordered: bool = False
    """The calls' order counts."""
    text: Literal["exact", "loose"] = "exact"
    """How texts are compared; 'loose' disregards case, spacing and the kind of quotes, and nothing else."""
    refusal: Literal["list", "prose"] = "list"
    """How an answer says that no tool fits; 'prose': a sentence without any call does, too."""
