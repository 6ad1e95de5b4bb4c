"""What the entry gate tries on a task of kind `tool_calls`."""

from __future__ import annotations

import json
from typing import Any

from tiltyard.verifier.kinds.base import Probe

from .data import Data, Options


def probes(data: Data, options: Options) -> tuple[Probe, ...]:
    """Other ways to write the wanted calls, and calls that are wrong in one thing."""
    calls: list[dict[str, Any]] = [{"name": call.name, "arguments": dict(call.arguments)} for call in data.calls]
    if not calls:
        invented = [{"name": tool.name, "arguments": {}} for tool in data.tools]
        return tuple(Probe(name="a call", texts=(json.dumps([call]),), wanted="reject") for call in invented[:3])
    good = [
        ("compact", json.dumps(calls, separators=(",", ":"))),
        ("fenced", f"```json\n{json.dumps(calls, indent=2)}\n```"),
        ("tagged", "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)),
        ("wrapped", json.dumps([{"type": "function", "function": _packed(call)} for call in calls])),
    ]
    if not options.ordered:
        good.append(("turned", json.dumps(calls[::-1])))
    bad = [
        ("one call twice", json.dumps([*calls, calls[0]])),
        ("no call", "[]"),
        ("another tool", json.dumps([{**calls[0], "name": "no_such_tool"}, *calls[1:]])),
        ("an argument more", json.dumps([_with(calls[0], "zzz", 1), *calls[1:]])),
        ("not JSON", json.dumps(calls).replace("}]", ",}]")),
    ]
    bad += [("a call less", json.dumps(calls[1:]))] if len(calls) > 1 else []
    bad += [(f"{key} is another", json.dumps([_with(calls[0], key, _other(value)), *calls[1:]]))
            for key, value in calls[0]["arguments"].items()]  # fmt: skip
    return (
        *(Probe(name=name, texts=(text,)) for name, text in good),
        *(Probe(name=name, texts=(text,), wanted="reject") for name, text in bad),
    )


def _packed(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["name"], "arguments": json.dumps(call["arguments"])}


def _with(call: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    return {**call, "arguments": {**call["arguments"], key: value}}


def _other(value: Any) -> Any:
    """A value of the same shape that is wrong."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1_000_003
        case str():
            return f"{value} -zz"
        case list():
            return [*value, "zz"]
    return {"zz": 1}
