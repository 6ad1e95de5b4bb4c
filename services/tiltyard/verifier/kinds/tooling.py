"""Tools and calls: their typed form, and reading and checking the calls in an answer.

Invariants: JSON is read strictly (`strict_json`); arguments are checked by the tool's JSON Schema, and one that the
schema doesn't name is wrong; values are equal as JSON values are: 10 and 10.0 are, 1 and true or "1" are not. Meant
for children of `limits`: only they may give it an answer, for a schema's patterns may take long.
Left out: schemas that refer to other documents.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

from . import strict_json
from .base import Part
from .strict_json import Unreadable

MAX_CALLS = 64
_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NAMES, _ARGUMENTS = ("name", "tool", "function"), ("arguments", "args", "parameters", "input")
_IGNORED = frozenset({"id", "type"})


class Tool(Part, frozen=True):
    """A tool as the policy is told of it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}  # noqa: RUF012  # copied for each
    """JSON Schema of the arguments object; empty: it takes none."""


class Called(Part, frozen=True):
    """A call in an answer."""

    name: str
    arguments: dict[str, Any] = {}  # noqa: RUF012  # copied for each


class BadTool(ValueError):
    """A tool's schema can't be used."""


def submitted(text: str) -> list[Called]:
    """The calls of an answer: a JSON list, one object, or <tool_call> blocks; Unreadable when it holds none."""
    blocks = _TAGGED.findall(text)
    if blocks:
        values = [strict_json.loads(block) for block in blocks]
    elif "<tool_call>" in text:
        raise Unreadable("a <tool_call> isn't closed")
    else:
        value = strict_json.find(text)
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        values = value if isinstance(value, list) else [value]
    if len(values) > MAX_CALLS:
        raise Unreadable(f"there are more than {MAX_CALLS} calls")
    return [_called(value) for value in values]


def _called(value: Any) -> Called:
    """A call from {"name", "arguments"}, or as chat interfaces wrap it."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict) and set(value) <= {"function", *_IGNORED}:
        value = value["function"]
    if not isinstance(value, dict):
        raise Unreadable("a call isn't an object")
    names = [key for key in _NAMES if key in value]
    keys = [key for key in _ARGUMENTS if key in value]
    if len(names) != 1 or len(keys) > 1 or set(value) - {*names, *keys, *_IGNORED}:
        raise Unreadable('a call isn\'t {"name": ..., "arguments": {...}}')
    name, arguments = value[names[0]], value[keys[0]] if keys else {}
    if isinstance(arguments, str):
        arguments = strict_json.loads(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Unreadable("a call's name isn't a text, or its arguments aren't an object")
    return Called(name=name, arguments=arguments)


def check_schema(tool: Tool) -> None:
    """BadTool when the tool's schema is none."""
    import jsonschema  # slow to import

    try:
        jsonschema.Draft202012Validator.check_schema(tool.parameters)
    except jsonschema.SchemaError as err:
        raise BadTool(f"tool {tool.name}: its parameters are no JSON Schema: {err.message[:150]}") from err
    if '"$ref"' in json.dumps(tool.parameters):
        raise BadTool(f"tool {tool.name}: its schema refers to another")


def fault(tool: Tool, arguments: dict[str, Any]) -> str:
    """What is wrong with arguments by the tool's schema; empty when nothing is."""
    import jsonschema  # slow to import

    known = tool.parameters.get("properties", {})
    unknown = sorted(set(arguments) - set(known))
    if unknown and not tool.parameters.get("additionalProperties", False):
        return f"{tool.name} has no argument {unknown[0][:60]!r}"
    errors = jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments)
    said = sorted(f"{tool.name}.{'.'.join(map(str, error.path)) or '*'}: {error.message[:120]}" for error in errors)
    return said[0] if said else ""


def filled(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with the schema's defaults for those that are left out."""
    known = tool.parameters.get("properties", {})
    return {**{key: each["default"] for key, each in known.items() if "default" in each}, **arguments}


def same(got: Any, right: Any, *, loose: bool = False) -> bool:
    """Equal as JSON; `loose`: texts without regard to case, spacing and the kind of quotes."""
    if isinstance(got, bool) or isinstance(right, bool) or got is None or right is None:
        return got is right
    if isinstance(got, int | float) and isinstance(right, int | float):
        exact = isinstance(got, int) and isinstance(right, int)
        return got == right if exact else math.isclose(got, right, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(got, str) and isinstance(right, str):
        return _text(got, loose) == _text(right, loose)
    if isinstance(got, list) and isinstance(right, list):
        return len(got) == len(right) and all(same(*pair, loose=loose) for pair in zip(got, right, strict=True))
    if isinstance(got, dict) and isinstance(right, dict):
        return set(got) == set(right) and all(same(got[key], right[key], loose=loose) for key in right)
    return False


def _text(text: str, loose: bool) -> str:
    text = " ".join(unicodedata.normalize("NFC", text).split())
    return re.sub(r"\s", "", text.casefold().replace('"', "'")) if loose else text
