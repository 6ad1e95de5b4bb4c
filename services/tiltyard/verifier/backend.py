"""The verifier's outside world: the installed kinds, the clocks, and where evidence is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from tiltyard_proto.messages import BlobRef

from . import limits
from .kinds.registry import AnyKind, built_in


class World(Protocol):
    """What the handler needs besides its message."""

    @property
    def kinds(self) -> Mapping[str, AnyKind]:
        """Kinds by name."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def cpu(self) -> float:
        """CPU seconds of this thread and of the children that worked for it; only differences count."""

    def keep(self, evidence: bytes) -> BlobRef | None:
        """Store evidence; None when none is kept."""


def keep_nothing(evidence: bytes) -> BlobRef | None:
    """For a verifier without a blob store."""
    return None


@dataclass(frozen=True)
class System:
    """The real world."""

    kinds: Mapping[str, AnyKind]
    keep: Callable[[bytes], BlobRef | None] = keep_nothing

    def now(self) -> float:
        return time.time()

    def cpu(self) -> float:
        return time.thread_time() + limits.spent()


@dataclass
class Fake:
    """A world with clocks that tick at every look."""

    kinds: Mapping[str, AnyKind] = field(default_factory=lambda: {kind.name: kind for kind in built_in()})
    time: float = 1_000.0
    kept: list[bytes] = field(default_factory=list)

    def now(self) -> float:
        self.time += 0.5
        return self.time

    def cpu(self) -> float:
        self.time += 0.5
        return self.time

    def keep(self, evidence: bytes) -> BlobRef | None:
        self.kept.append(evidence)
        digest = sha256(evidence).hexdigest()
        return BlobRef(uri=f"sha256:{digest}", size=len(evidence), sha256=digest)
