"""The verifier's outside world: the installed kinds and the clock.

A package offers a kind through the entry point group `tiltyard.verifiers`: the entry point's name is the kind's, its
value an object with the shape of `kinds.base.Kind`. Invariant: a name belongs to one kind; two are an error
that names both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from .kinds.base import Kind
from .kinds.fields.kind import KIND as FIELDS
from .kinds.files.kind import KIND as FILES
from .kinds.humaneval.kind import KIND as HUMANEVAL
from .kinds.last_number.kind import KIND as LAST_NUMBER
from .kinds.python_calls.kind import KIND as PYTHON_CALLS

GROUP = "tiltyard.verifiers"
BUILT_IN: tuple[Kind, ...] = (FIELDS, FILES, HUMANEVAL, LAST_NUMBER, PYTHON_CALLS)


class World(Protocol):
    """What the handler needs besides its message."""

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Kinds by name."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def cpu(self) -> float:
        """CPU seconds of this process; only differences count."""


@dataclass(frozen=True)
class System:
    """The real world."""

    kinds: Mapping[str, Kind]

    def now(self) -> float:
        return time.time()

    def cpu(self) -> float:
        return time.process_time()


@dataclass
class Fake:
    """A world with clocks that tick at every look."""

    kinds: Mapping[str, Kind] = field(default_factory=lambda: {kind.name: kind for kind in BUILT_IN})
    time: float = 1_000.0

    def now(self) -> float:
        self.time += 0.5
        return self.time

    def cpu(self) -> float:
        self.time += 0.5
        return self.time


def installed(only: Sequence[str] = (), points: Iterable[EntryPoint] | None = None) -> dict[str, Kind]:
    """Built-in kinds and those of other packages by name. ValueError: a name twice, one that can't be loaded, or one
    of `only` that isn't there."""
    kinds: dict[str, Kind] = {kind.name: kind for kind in BUILT_IN}
    sources = {kind.name: f"built-in kind {kind.name}" for kind in BUILT_IN}
    for point in entry_points(group=GROUP) if points is None else points:
        source = f"entry point {point.name} = {point.value}"
        if point.name in kinds:
            raise ValueError(f"verifier kind {point.name!r} is there twice: {sources[point.name]} and {source}")
        kinds[point.name] = _load(point, source)
        sources[point.name] = source
    missing = [name for name in only if name not in kinds]
    if missing:
        raise ValueError(f"verifier kinds {missing}: not installed; there are {sorted(kinds)}")
    return {name: kind for name, kind in sorted(kinds.items()) if not only or name in only}


def _load(point: EntryPoint, source: str) -> Kind:
    try:
        kind: Kind = point.load()
    except (ImportError, AttributeError) as err:
        raise ValueError(f"{source}: can't be loaded: {err}") from err
    for member in ("name", "version", "plan", "judge"):
        if not hasattr(kind, member):
            raise ValueError(f"{source}: a verifier kind needs `{member}`")
    if kind.name != point.name:
        raise ValueError(f"{source}: the kind is named {kind.name!r}; give both the same name")
    return kind
