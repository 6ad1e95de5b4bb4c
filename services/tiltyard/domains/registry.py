"""Finding domains: the built-in definitions and those of other installed packages.

A package offers domains through the entry point group `tiltyard.domains`: the entry point's value is an object that is
the path of a TOML file or of a folder of them (str or Path), or a function without arguments returning it. Every domain
of it is named like the entry point or below it ('acme' gives 'acme.sql.joins').
Invariant: a name belongs to one definition; two of them are an error that names both and the distributions they are in.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from .domain import Domain
from .family import read_file

GROUP = "tiltyard.domains"
FOLDER = Path(__file__).parent / "definitions"


def load_all(points: Iterable[EntryPoint] | None = None, folder: Path = FOLDER) -> dict[str, Domain]:
    """Every domain by name, sorted. ValueError: a broken definition, or one name twice."""
    if points is None and folder == FOLDER:
        return dict(_installed())
    return _find(entry_points(group=GROUP) if points is None else points, folder)


def load(name: str) -> Domain:
    """The domain of that name; ValueError lists the nearest ones."""
    domains = _installed()
    if name not in domains:
        near = [one for one in domains if one.startswith(f"{name}.")][:8]
        near = near or difflib.get_close_matches(name, domains, 8, 0.5) or sorted(domains)[:8]
        raise ValueError(f"no domain {name!r}; near it are: {', '.join(near)} (`tiltyard domains ls` lists all)")
    return domains[name]


@cache
def _installed() -> dict[str, Domain]:
    """What is installed does not change while a process runs."""
    return _find(entry_points(group=GROUP), FOLDER)


def _find(points: Iterable[EntryPoint], folder: Path) -> dict[str, Domain]:
    domains: dict[str, Domain] = {}
    for path in sorted(folder.rglob("*.toml")):
        for domain in open_file(path, f"{path} (built in)"):
            _add(domains, domain)
    for point in points:
        source = f"entry point {point.name} = {point.value}" + _distribution(point)
        for domain in _offered(point, source):
            if domain.name != point.name and not domain.name.startswith(f"{point.name}."):
                raise ValueError(
                    f"{source}: one of its domains is named {domain.name!r}; "
                    f"give all of them the name {point.name!r} or one below it"
                )
            _add(domains, domain)
    return dict(sorted(domains.items()))


def open_file(path: Path, source: str = "") -> list[Domain]:
    """The domains of one TOML file. ValueError: a broken definition."""
    return [Domain(definition=one, source=source or str(path), folder=path.parent) for one in read_file(path)]


def _add(domains: dict[str, Domain], domain: Domain) -> None:
    other = domains.setdefault(domain.name, domain)
    if other is not domain:
        raise ValueError(f"domain {domain.name!r} is defined twice: {other.source} and {domain.source}; rename one")


def _distribution(point: EntryPoint) -> str:
    """Which installed distribution an entry point belongs to, for messages."""
    return f" (distribution {point.dist.name} {point.dist.version})" if point.dist else ""


def _offered(point: EntryPoint, source: str) -> Iterator[Domain]:
    try:
        value = point.load()
    except (ImportError, AttributeError) as err:
        raise ValueError(f"{source}: can't be loaded: {err}") from err
    path = value() if callable(value) else value
    if not isinstance(path, str | Path):
        raise ValueError(f"{source}: expected the path of a TOML file, got {type(path).__name__}")
    for one in sorted(Path(path).rglob("*.toml")) if Path(path).is_dir() else [Path(path)]:
        yield from open_file(one, source)
