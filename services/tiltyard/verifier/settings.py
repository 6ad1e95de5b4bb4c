"""Settings of the verifier. Left out: options of a kind, which come with each task."""

from __future__ import annotations

import msgspec

from tiltyard.kit.ranges import Positive


class VerifierSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table `[verifier]`."""

    slots: Positive = 32
    """Messages in hand at once in this process; grading runs elsewhere, so this bounds memory only."""
    kinds: tuple[str, ...] = ()
    """Verifier kinds to serve; empty: every installed one."""
    threads: Positive = 4
    """Verdicts at once of kinds that wait for a child process or a judge."""
    evidence: bool = True
    """Store what a grading job wrote and left as a blob beside its verdict."""
