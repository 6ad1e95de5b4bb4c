"""Finding verifier kinds: the built-in folders and those of other installed packages.

A folder `<kind>/` beside this file with a `kind.py` that defines `KIND` is a kind. A package offers one through the
entry point group `tiltyard.verifiers`: the entry point's name is the kind's, its value an object of class `base.Kind`.
Invariants: a name belongs to one kind, two are an error that names both; finding kinds loads no heavy library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from .base import BrokenTask, Kind, read

GROUP = "tiltyard.verifiers"
FOLDER = Path(__file__).parent
_PACKAGE = __package__
AnyKind = Kind[Any, Any]


@cache
def built_in() -> tuple[AnyKind, ...]:
    """The kinds of this package, by name."""
    return tuple(_of_folder(path.parent.name) for path in sorted(FOLDER.glob("*/kind.py")))


def _of_folder(folder: str) -> AnyKind:
    kind = import_module(f"{_PACKAGE}.{folder}.kind").KIND
    assert isinstance(kind, Kind)
    assert kind.name == folder
    return kind


def installed(only: Sequence[str] = (), points: Iterable[EntryPoint] | None = None) -> dict[str, AnyKind]:
    """Built-in kinds and those of other packages by name. ValueError: a name twice, one that can't be loaded, or one
    of `only` that isn't there."""
    kinds: dict[str, AnyKind] = {kind.name: kind for kind in built_in()}
    sources = {name: f"built-in kind {name}" for name in kinds}
    for point in entry_points(group=GROUP) if points is None else points:
        source = f"entry point {point.name} = {point.value}"
        source += f" (distribution {point.dist.name} {point.dist.version})" if point.dist else ""
        if point.name in kinds:
            raise ValueError(f"verifier kind {point.name!r} is there twice: {sources[point.name]} and {source}")
        kinds[point.name] = _load(point, source)
        sources[point.name] = source
    missing = [name for name in only if name not in kinds]
    if missing:
        raise ValueError(f"verifier kinds {missing}: not installed; there are {sorted(kinds)}")
    return {name: kind for name, kind in sorted(kinds.items()) if not only or name in only}


def _load(point: EntryPoint, source: str) -> AnyKind:
    try:
        kind = point.load()
    except (ImportError, AttributeError) as err:
        raise ValueError(f"{source}: can't be loaded: {err}") from err
    if not isinstance(kind, Kind):
        raise ValueError(f"{source}: expected an object of a class below {Kind.__module__}.Kind, got {kind!r:.100}")
    for member in ("name", "version", "data", "options"):
        if not hasattr(kind, member):
            raise ValueError(f"{source}: a verifier kind needs `{member}`")
    if kind.name != point.name:
        raise ValueError(f"{source}: the kind is named {kind.name!r}; give both the same name")
    return kind


def check_options(kinds: Mapping[str, AnyKind], kind: str, options: Mapping[str, Any]) -> None:
    """ValueError when a domain names a kind that isn't installed, or options that the kind doesn't have."""
    if kind not in kinds:
        raise ValueError(f"verifier.kind: no kind {kind!r} is installed; there are {', '.join(kinds)}")
    try:
        read(kind, "options", options, kinds[kind].options)
    except BrokenTask as err:
        raise ValueError(f"verifier.options: {err}") from err
