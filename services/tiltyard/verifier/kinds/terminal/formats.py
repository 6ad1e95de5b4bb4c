"""What texts mean to a parser. Only children of `limits` import this.

Invariant: nothing is included from elsewhere and no alias is followed, so that a small text stays small.
"""

from __future__ import annotations

import configparser
import csv
import io
import json
import tempfile
import tomllib
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 60


class Unreadable(ValueError):
    """The text isn't of its format."""


def same(asked: dict[str, str]) -> str:
    """'' when the texts mean the same, 'wanted' or 'got' when that one can't be read, else 'differs'."""
    read = _READERS[asked["format"]]
    values = []
    for name in ("wanted", "got"):
        try:
            values.append(read(asked[name]))
        except (Unreadable, ValueError, RecursionError, KeyError, TypeError):
            return name
    return "" if _canonical(values[0]) == _canonical(values[1]) else "differs"


def _canonical(value: Any, depth: int = 0) -> str:
    """Text that is equal for equal values of equal types; keys in any order."""
    if depth > MAX_DEPTH:
        raise Unreadable("too deep")
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_canonical(value[key], depth + 1)}" for key in sorted(value, key=repr)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_canonical(item, depth + 1) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def _json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise Unreadable("a key is there twice")
        return dict(pairs)

    def refuse(name: str) -> Any:
        raise Unreadable(name)

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def _yaml(text: str) -> Any:
    import yaml  # type: ignore[import-untyped]

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Follows no alias, takes no key twice."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise Unreadable("an alias")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep=deep)
            if len(mapping) != len(node.value):
                raise Unreadable("a key is there twice")
            return mapping

    try:
        return yaml.load(text, Loader)  # a safe loader
    except yaml.YAMLError as error:
        raise Unreadable(str(error)[:100]) from error


def _ini(text: str) -> Any:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise Unreadable(str(error)[:100]) from error
    return {name: dict(section) for name, section in parser.items()}


def _csv(text: str) -> Any:
    try:
        return [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except csv.Error as error:
        raise Unreadable(str(error)) from error


def _nginx(text: str) -> Any:
    import crossplane

    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        found = crossplane.parse(file.name, single=True, check_ctx=False, check_args=False)
    if found["status"] != "ok" or not found["config"][0]["parsed"]:
        raise Unreadable("no nginx configuration")
    return _directives(found["config"][0]["parsed"])


def _directives(block: list[dict[str, Any]]) -> dict[str, Any]:
    """Directives by name, those of one name in order: nginx gives no meaning to the order of others."""
    found: dict[str, Any] = {}
    for one in block:
        found.setdefault(one["directive"], []).append([one["args"], _directives(one.get("block", []))])
    return found


_READERS: dict[str, Callable[[str], Any]] = {
    "json": _json,
    "yaml": _yaml,
    "toml": tomllib.loads,
    "ini": _ini,
    "csv": _csv,
    "nginx": _nginx,
}
