"""The judgement of `tool_world`. Only children of `limits` import this."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from tiltyard.verifier.kinds import tooling
from tiltyard.verifier.kinds.strict_json import Unreadable

from .data import Data, Options, State
from .engine import Failed, Malformed, World, canonical


class Broken(Exception):
    """The task is at fault."""


def check(asked: dict[str, Any]) -> dict[str, str]:
    """{} when the answer leads to the right state, else {'wrong': why} or {'broken': why}."""
    data = msgspec.convert(asked["data"], Data)
    options = msgspec.convert(asked["options"], Options)
    try:
        wrong = _wrong(data, options, asked["text"])
    except (Broken, Malformed) as error:
        return {"broken": str(error)[:300]}
    return {"wrong": wrong[:300]} if wrong else {}


def _wrong(data: Data, options: Options, text: str) -> str:
    right = _reference(data)
    try:
        calls = tooling.submitted(text)
    except Unreadable as error:
        return str(error)
    if len(calls) > options.max_calls:
        return f"there are {len(calls)} calls, at most {options.max_calls} may be made"
    world, failed = World(data.state, data.actions), ""
    for call in calls:
        try:
            world.call(call)
        except Failed as error:
            failed = failed or f"a call fails: {error}"
    got = canonical(world.state, data.compared)
    if _text(got) != _text(right):
        return next(_differences(got, right), "the final state is another") + (f" ({failed})" if failed else "")
    return failed if options.failures == "wrong" else ""


def _reference(data: Data) -> Any:
    """The compared part of the state that the reference reaches; Broken when it is no good."""
    if len({action.tool.name for action in data.actions}) != len(data.actions):
        raise Broken("two tools have the same name")
    if unknown := set(data.compared) - set(data.state):
        raise Broken(f"compared tables that the state doesn't have: {sorted(unknown)}")
    for action in data.actions:
        try:
            tooling.check_schema(action.tool)
        except tooling.BadTool as error:
            raise Broken(str(error)) from error
    world = World(data.state, data.actions)
    for call in data.calls:
        try:
            world.call(call)
        except Failed as error:
            raise Broken(f"the reference: {error}") from error
    right = canonical(world.state, data.compared)
    if data.calls and _text(right) == _text(canonical(data.state, data.compared)):
        raise Broken("the reference changes nothing that is compared")
    _check_facts(data, world.state)
    return right


def _check_facts(data: Data, state: State) -> None:
    for fact in data.facts:
        row = state.get(fact.table, {}).get(fact.key)
        there = row is not None if not fact.field else row is not None and fact.field in row
        value = there if not fact.field else row[fact.field] if row is not None and there else None
        wanted = fact.value if fact.field or fact.value is not None else True
        if not tooling.same(value, wanted):
            raise Broken(
                f"the text demands {fact.table} {fact.key} {fact.field or 'to be there'} = {wanted!r}, "
                f"the reference leaves {value!r}"
            )


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _differences(got: Any, right: Any, path: str = "") -> Iterator[str]:
    if isinstance(got, dict) and isinstance(right, dict):
        for key in sorted(set(got) | set(right)):
            inner = f"{path}.{key}" if path else key
            if key not in got or key not in right:
                yield f"{inner} {'is missing' if key in right else 'should not be there'}"
            else:
                yield from _differences(got[key], right[key], inner)
    elif _text(got) != _text(right):
        yield f"{path} is {str(got)[:80]}, right is {str(right)[:80]}"
