"""What a task of kind `tool_world` holds: a small world, tools that change it, and calls that reach the goal.

A world is data: tables of rows by key, and for each tool the steps of one call. Values in steps are expressions:
a text that starts with '$' is an argument; {"get": [table, key, field]} reads a field; {"times": [a, b]} and
{"plus": [a, b]} and {"minus": a} compute; anything else stands for itself.
"""

from __future__ import annotations

from typing import Any, Literal

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.tooling import Called, Tool

State = dict[str, dict[str, dict[str, Any]]]
"""By table and key: a row, by field."""


class Step(Part, frozen=True):
    """One step of a call."""

    op: Literal["exists", "absent", "is", "isnt", "at_least", "set", "add", "append", "insert", "delete"]
    """The first five are conditions: where one fails, the call fails and changes nothing. 'is' takes a value or a
    list of them; 'add' adds a number to a field, 'append' a value to a list; 'insert' makes a row of `value`."""
    table: str
    key: Any
    field: str = ""
    value: Any = None


class Action(Part, frozen=True):
    """A tool and what a call of it does."""

    tool: Tool
    steps: tuple[Step, ...] = ()


class Fact(Part, frozen=True):
    """Something that the task's text demands of the final state; the reference must reach it."""

    table: str
    key: str
    field: str = ""
    value: Any = None
    """Without a `field`: is the row there?"""


class Data(Part, frozen=True):
    """`verification.data`."""

    state: State
    actions: tuple[Action, ...]
    calls: tuple[Called, ...]
    """That reach the goal from `state`; none: nothing may change."""
    compared: tuple[str, ...] = ()
    """Tables of the final state that must be as the reference leaves them; empty: all."""
    facts: tuple[Fact, ...] = ()


class Options(Part, frozen=True):
    """`verification.options`."""

    max_calls: int = 30
    failures: Literal["harmless", "wrong"] = "harmless"
    """Is a call that fails, and so changes nothing, held against the answer?"""
