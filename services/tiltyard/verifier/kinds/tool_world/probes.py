"""What the entry gate tries on a task of kind `tool_world`."""

from __future__ import annotations

import json

import msgspec

from tiltyard.verifier.kinds.base import Probe

from .data import Data, Options


def probes(data: Data, options: Options) -> tuple[Probe, ...]:
    """Other ways to write the reference's calls, and plans that end elsewhere or nowhere."""
    calls = list(msgspec.to_builtins(data.calls))
    if not calls:
        return ()
    good = [
        Probe(name="fenced", texts=(f"```json\n{json.dumps(calls, indent=2)}\n```",)),
        Probe(name="tagged", texts=("\n".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls),)),
    ]
    if options.failures == "harmless":
        good.append(Probe(name="a call that fails", texts=(json.dumps([*calls, {"name": "no_such_tool"}]),)))
    many = json.dumps(calls + [{"name": "no_such_tool"}] * options.max_calls)
    return (
        *good,
        Probe(name="nothing done", texts=("[]",), wanted="reject"),
        Probe(name="too many calls", texts=(many,), wanted="reject"),
        Probe(name="the last call missing", texts=(json.dumps(calls[:-1]),), wanted="reject"),
        Probe(name="the state itself", texts=(json.dumps(data.state),), wanted="reject"),
    )
