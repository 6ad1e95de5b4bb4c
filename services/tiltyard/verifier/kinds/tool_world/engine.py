"""Making calls in a world. Invariants: a call changes all that it should or nothing; nothing outside the state is read.

Left out: time, chance and anything else that would make a replay differ.
"""

from __future__ import annotations

import copy
from typing import Any

from tiltyard.verifier.kinds import tooling
from tiltyard.verifier.kinds.tooling import Called

from .data import Action, State, Step

MAX_VALUE = 10**15


class Failed(Exception):
    """A call that can't be made; the state is as before."""


class Malformed(Exception):
    """Steps that make no sense: the world is at fault."""


class World:
    """A state and the tools that change it."""

    def __init__(self, state: State, actions: tuple[Action, ...]) -> None:
        self.state = copy.deepcopy(state)
        self.actions = {action.tool.name: action for action in actions}

    def call(self, call: Called) -> None:
        """Make a call; Failed says why it can't be made, Malformed that its steps make no sense."""
        action = self.actions.get(call.name)
        if action is None:
            raise Failed(f"there is no tool {call.name[:60]!r}")
        if fault := tooling.fault(action.tool, call.arguments):
            raise Failed(fault)
        state, arguments = copy.deepcopy(self.state), tooling.filled(action.tool, call.arguments)
        for step in action.steps:
            _Making(state, arguments, call.name).step(step)
        self.state = state


class _Making:
    """One call on its way."""

    def __init__(self, state: State, arguments: dict[str, Any], name: str) -> None:
        self.state, self.arguments, self.name = state, arguments, name

    def step(self, step: Step) -> None:
        table, key = self.table(step.table), str(self.value(step.key))
        present = key in table
        if step.op in ("absent", "insert"):
            self.demand(not present, f"{step.table} {key} is there already")
        else:
            self.demand(present, f"there is no {step.table} {key}")
        value = self.value(step.value)
        if step.op == "insert":
            table[key] = copy.deepcopy(value)
        elif step.op == "delete":
            del table[key]
        elif step.op not in ("exists", "absent"):
            self.field(step, table[key], value)

    def field(self, step: Step, row: dict[str, Any], value: Any) -> None:
        if step.field not in row and step.op != "set":
            raise Malformed(f"{self.name}: {step.table} has no field {step.field!r}")
        now = row.get(step.field)
        said = f"{step.field} of {step.table} {self.value(step.key)} is {now!r}"
        match step.op:
            case "is" | "isnt":
                allowed = value if isinstance(value, list) else [value]
                self.demand(any(tooling.same(now, each) for each in allowed) == (step.op == "is"), said)
            case "at_least":
                self.demand(_number(now) >= _number(value), said)
            case "set":
                row[step.field] = copy.deepcopy(value)
            case "add":
                row[step.field] = _number(_number(now) + _number(value))
            case "append":
                if not isinstance(now, list):
                    raise Malformed(f"{self.name}: field {step.field!r} is no list")
                now.append(copy.deepcopy(value))

    def demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Failed(f"{self.name}: {otherwise}")

    def table(self, name: str) -> dict[str, dict[str, Any]]:
        if name not in self.state:
            raise Malformed(f"{self.name}: there is no table {name!r}")
        return self.state[name]

    def value(self, expression: Any) -> Any:
        """What an expression stands for."""
        match expression:
            case str() if expression.startswith("$"):
                if expression[1:] not in self.arguments:
                    raise Failed(f"{self.name}: the argument {expression[1:]!r} is missing")
                return self.arguments[expression[1:]]
            case {"get": [str() as table, key, str() as field]}:
                rows, row = self.table(table), str(self.value(key))
                self.demand(row in rows, f"there is no {table} {row}")
                if field not in rows[row]:
                    raise Malformed(f"{self.name}: {table} has no field {field!r}")
                return rows[row][field]
            case {"times": [left, right]}:
                return _number(_number(self.value(left)) * _number(self.value(right)))
            case {"plus": [left, right]}:
                return _number(_number(self.value(left)) + _number(self.value(right)))
            case {"minus": one}:
                return -_number(self.value(one))
            case dict():
                return {key: self.value(value) for key, value in expression.items()}
            case list():
                return [self.value(value) for value in expression]
        return expression


def _number(value: Any) -> int:
    """A whole number of bounded size; worlds count in cents and pieces."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Failed(f"{str(value)[:40]!r} is no whole number")
    if abs(value) > MAX_VALUE:
        raise Failed("a number is too large")
    return value


def canonical(state: State, tables: tuple[str, ...]) -> Any:
    """The compared tables in a form in which equal states are equal."""
    return {name: _plain(state[name]) for name in sorted(tables or tuple(state))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
