"""Finding domains: the built-in definitions and those of other installed packages.

A package offers a domain through the entry point group `tiltyard.domains`: the entry point's name is the domain's,
its value an object that is the path of the TOML file (str or Path), or a function without arguments returning it.
Invariant: a name belongs to one definition; two of them are an error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from .definition import read_file
from .domain import Domain

GROUP = "tiltyard.domains"
FOLDER = Path(__file__).parent / "definitions"


def load_all(points: Iterable[EntryPoint] | None = None, folder: Path = FOLDER) -> dict[str, Domain]:
    """Every domain by name, sorted. ValueError: a broken definition, or one name twice."""
    domains: dict[str, Domain] = {}
    for path in sorted(folder.glob("*.toml")):
        _add(domains, _open(path, str(path)))
    for point in entry_points(group=GROUP) if points is None else points:
        source = f"entry point {point.name} = {point.value}"
        domain = _open(_path(point, source), source)
        if domain.name != point.name:
            raise ValueError(f"{source}: its definition is named {domain.name!r}; give both the same name")
        _add(domains, domain)
    return dict(sorted(domains.items()))


def load(name: str) -> Domain:
    """The domain of that name; ValueError lists the known ones."""
    path = FOLDER / f"{name}.toml"
    mine = [point for point in entry_points(group=GROUP) if point.name == name]
    if path.is_file() and not mine:
        return _open(path, str(path))
    domains = load_all()
    if name not in domains:
        raise ValueError(f"no domain {name!r}; known are: {', '.join(domains)}")
    return domains[name]


def _add(domains: dict[str, Domain], domain: Domain) -> None:
    other = domains.setdefault(domain.name, domain)
    if other is not domain:
        raise ValueError(f"domain {domain.name!r} is defined twice: {other.source} and {domain.source}; rename one")


def _open(path: Path, source: str) -> Domain:
    return Domain(definition=read_file(path), source=source, folder=path.parent)


def _path(point: EntryPoint, source: str) -> Path:
    try:
        value = point.load()
    except (ImportError, AttributeError) as err:
        raise ValueError(f"{source}: can't be loaded: {err}") from err
    path = value() if callable(value) else value
    if not isinstance(path, str | Path):
        raise ValueError(f"{source}: expected the path of a TOML file, got {type(path).__name__}")
    return Path(path)
