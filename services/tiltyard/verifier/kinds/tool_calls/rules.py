"""The comparison of `tool_calls`. Only children of `limits` import this.

Invariant: which wanted call a given one stands for is decided by an assignment, never greedily, as alternatives may
overlap.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tiltyard.verifier.kinds import tooling
from tiltyard.verifier.kinds.strict_json import Unreadable

from .data import Call, Data, Options


class Broken(Exception):
    """The task is at fault."""


def check(asked: dict[str, Any]) -> dict[str, str]:
    """{} when the answer is right, else {'wrong': why} or {'broken': why}."""
    data = msgspec.convert(asked["data"], Data)
    options = msgspec.convert(asked["options"], Options)
    try:
        wrong = _wrong(data, options, asked["text"])
    except Broken as error:
        return {"broken": str(error)[:300]}
    return {"wrong": wrong[:300]} if wrong else {}


def _wrong(data: Data, options: Options, text: str) -> str:
    tools = {tool.name: tool for tool in data.tools}
    _sound(data, tools)
    try:
        calls = tooling.submitted(text)
    except Unreadable as error:
        if not data.calls and options.refusal == "prose" and _is_prose(text):
            return ""
        return str(error)
    for call in calls:
        if call.name not in tools:
            return f"there is no tool {call.name[:60]!r}"
        if fault := tooling.fault(tools[call.name], call.arguments):
            return fault
    if len(calls) != len(data.calls):
        return f"there are {len(calls)} calls, right are {len(data.calls)}"
    loose = options.text == "loose"
    fits = [[_fits(tools[call.name], call, want, loose) for want in data.calls] for call in calls]
    if options.ordered:
        return next((_said(call) for at, call in enumerate(calls) if not fits[at][at]), "")
    return _unmatched(calls, fits)


def _sound(data: Data, tools: dict[str, tooling.Tool]) -> None:
    """Broken unless every wanted call, in every way that counts as right, is one that its tool takes."""
    if len(tools) != len(data.tools):
        raise Broken("two tools have the same name")
    for tool in data.tools:
        try:
            tooling.check_schema(tool)
        except tooling.BadTool as error:
            raise Broken(str(error)) from error
    for call in data.calls:
        if call.name not in tools:
            raise Broken(f"the reference calls {call.name!r}, which is no tool of the task")
        ways = [call.arguments]
        ways += [{**call.arguments, key: value} for key, values in call.others.items() for value in values]
        ways.append({key: value for key, value in call.arguments.items() if key not in call.optional})
        for arguments in ways:
            if fault := tooling.fault(tools[call.name], arguments):
                raise Broken(f"the reference: {fault}")


def _is_prose(text: str) -> bool:
    """A sentence in which no call is hidden."""
    return len(text.split()) >= 2 and not any(char in text for char in "{}[]<>`") and "(" not in text


def _fits(tool: tooling.Tool, call: tooling.Called, want: Call, loose: bool) -> bool:
    if call.name != want.name:
        return False
    got, right = tooling.filled(tool, call.arguments), tooling.filled(tool, want.arguments)
    if not set(right) - set(want.optional) <= set(got) <= set(right) | set(want.others):
        return False
    return all(
        any(tooling.same(value, each, loose=loose) for each in (*_given(right, key), *want.others.get(key, ())))
        for key, value in got.items()
    )


def _given(right: dict[str, Any], key: str) -> tuple[Any, ...]:
    return (right[key],) if key in right else ()


def _unmatched(calls: list[tooling.Called], fits: list[list[bool]]) -> str:
    """What is said of the first call for which no wanted one is left; empty when each has its own."""
    taken: dict[int, int] = {}

    def place(at: int, tried: set[int]) -> bool:
        for want, fit in enumerate(fits[at]):
            if fit and want not in tried:
                tried.add(want)
                if want not in taken or place(taken[want], tried):
                    taken[want] = at
                    return True
        return False

    return next((_said(call) for at, call in enumerate(calls) if not place(at, set())), "")


def _said(call: tooling.Called) -> str:
    return f"this call isn't wanted, or isn't like this: {call.name}({str(call.arguments)[:150]})"
