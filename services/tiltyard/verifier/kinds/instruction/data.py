"""What a task of kind `instruction` holds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from tiltyard.verifier.kinds.base import Part


class Data(Part, frozen=True):
    """`verification.data`."""

    rules: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1)]
    """Each a table with `id`, one of `rules.RULES`, and that rule's own keys; the same id may be there twice."""
    content: tuple[str, ...] = ()
    """What an answer must say, as whole words: one that lacks any scores 0. The prompt should hold none of it."""


class Options(Part, frozen=True):
    """`verification.options`."""

    content_share: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Credit for the content alone; the rest is shared evenly by the rules."""
