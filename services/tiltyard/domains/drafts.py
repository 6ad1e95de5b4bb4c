"""One drawn problem before it becomes a task, and what a generator is asked for.

Invariant: data only. Left out: what all tasks of a domain share is `definition`, making the task is `domain`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal

import msgspec

from tiltyard_proto.messages import ChatMessage

Split = Literal["train", "eval"]


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One drawn problem: what differs from task to task of a domain."""

    template: str
    """Family within the domain; splits never share one when the definition holds templates out."""
    source: str = ""
    """What the problem was drawn from: a table, a document, a bucket; splits never share one that is held out."""
    fields: dict[str, str] = {}
    """Filled into the definition's `user` pattern."""
    shots: tuple[tuple[dict[str, str], str], ...] = ()
    """Worked examples shown first: fields for the same pattern, and the assistant's answer."""
    messages: tuple[ChatMessage, ...] = ()
    """The whole prompt; when given, `fields`, `shots` and the pattern are not used."""
    data: dict[str, Any] = {}
    """Verification data."""
    options: dict[str, Any] = {}
    """Verifier options of this problem, on top of the definition's."""
    reference: str = ""
    """An answer that passes."""
    files: dict[str, bytes] = {}
    """Workspace at the start."""
    setup: str = ""
    """Shell text before the first action, after the definition's own."""
    labels: dict[str, str] = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator is asked for; it yields drafts, endlessly or until it has no more."""

    split: Split
    seed: int
    held_out: frozenset[str]
    options: dict[str, Any]
    held_out_sources: frozenset[str] = frozenset()

    def wants(self, template: str, source: str = "") -> bool:
        """Does the split draw from this template and source? What either holds out is for evaluation only."""
        if not self.held_out and not self.held_out_sources:
            return True
        held = template in self.held_out or source in self.held_out_sources
        return held == (self.split == "eval")


def bucket(text: str, count: int = 10) -> str:
    """A source for problems that have none of their own: 'b0' to 'b9' by the content of `text`, the same for ever.

    With `held_out_sources = ["b0"]` a tenth of all problems is for evaluation only, whatever seed draws them.
    """
    return f"b{int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), 'big') % count}"
