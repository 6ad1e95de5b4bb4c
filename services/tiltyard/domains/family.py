"""From a TOML file to definitions: one domain, or a family of them.

A family's file says once what its domains share. `[[domain]]` tables give the domains, `[levels.NAME]` tables their
levels of difficulty, and both together every domain at every level: `<family>.<domain>.<level>`. What a more special
table says stands in place of what a more general one says, key by key (family, its level, domain, the domain's own
level). A domain's `skip = ["hard"]` leaves a level out.
Invariants: unknown keys are refused; a mistake names the file, the domain and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .definition import Definition

_PAGE = "the keys are described in docs/domains.md"


def read(text: str, where: str) -> list[Definition]:
    """The definitions of a TOML text in order; ValueError names the file, the domain and the key that's wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ValueError(f"{where}: not TOML: {err}") from err
    found = []
    for one in expand(table, where):
        inside = f"{where}: domain {one.get('name')}" if one.get("name") != table.get("name") else where
        try:
            found.append(msgspec.convert(one, Definition, strict=True))
        except (msgspec.ValidationError, ValueError) as err:
            raise ValueError(f"{inside}: {err}; mend that key ({_PAGE})") from err
    return found


def read_file(path: Path) -> list[Definition]:
    """The definitions of a TOML file; ValueError when it can't be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ValueError(f"domain definition {path}: can't be read: {err}") from err
    return read(text, str(path))


def expand(table: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """One table for each domain of a file's table."""
    shared = {key: value for key, value in table.items() if key not in ("domain", "levels")}
    domains, levels = table.get("domain", [{}]), table.get("levels", {})
    if not isinstance(domains, list) or not domains or not all(isinstance(one, dict) for one in domains):
        raise ValueError(f"{where}: `domain`: expected tables [[domain]]; {_PAGE}")
    if "domain" in table and not all(isinstance(one.get("name"), str) for one in domains):
        raise ValueError(f"{where}: `domain`: each [[domain]] needs a `name`, which follows the family's; {_PAGE}")
    for domain in domains:
        yield from _levels(shared, _tables(levels, where), domain, where)


def _levels(
    shared: dict[str, Any], general: dict[str, Any], domain: dict[str, Any], where: str
) -> Iterator[dict[str, Any]]:
    """A family's domain at each of its levels, or as it is when there are none."""
    own = _tables(domain.get("levels", {}), where)
    skip = domain.get("skip", [])
    special = {key: value for key, value in domain.items() if key not in ("name", "levels", "skip")}
    name = ".".join(part for part in (shared.get("name"), domain.get("name")) if isinstance(part, str))
    names = list(dict.fromkeys([*general, *own]))
    if not isinstance(skip, list) or not set(skip) <= set(names):
        raise ValueError(f"{where}: domain {name}: `skip`: expected some of the levels {names}, got {skip!r}")
    for level in names:
        if level not in skip:
            merged = _merge(_merge(_merge(shared, general.get(level, {})), special), own.get(level, {}))
            title = f"{merged.get('title', '')} ({level})"
            yield {"level": level, **merged, "name": f"{name}.{level}", "title": title}
    if not names:
        yield {**_merge(shared, special), "name": name} if name else _merge(shared, special)


def _tables(levels: Any, where: str) -> dict[str, Any]:
    if not isinstance(levels, dict) or not all(isinstance(level, dict) for level in levels.values()):
        raise ValueError(f"{where}: `levels`: expected a table [levels.NAME] for each level; {_PAGE}")
    return levels


def _merge(general: Mapping[str, Any], special: Mapping[str, Any]) -> dict[str, Any]:
    """`special` over `general`: tables key by key, anything else as a whole."""
    merged = dict(general)
    for key, value in special.items():
        before = merged.get(key)
        merged[key] = _merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
