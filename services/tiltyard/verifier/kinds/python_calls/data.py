"""What a task of kind `python_calls` holds."""

from __future__ import annotations

import ast

import msgspec

from tiltyard.verifier.kinds.base import BrokenTask, Part
from tiltyard.verifier.kinds.values import literal


class Call(Part, frozen=True):
    """One hidden call, written as in source: `call` 'f(2, "a")', `expect` 'True'; arguments and result are literals."""

    call: str
    expect: str


class Data(Part, frozen=True):
    """`verification.data`."""

    function: str
    calls: tuple[Call, ...]
    examples: tuple[Call, ...] = ()
    """Calls that the prompt shows; the hidden ones must ask for more."""
    parameters: tuple[str, ...] = ()
    """Names of the positional parameters, where `limits` speaks of them."""
    limits: dict[str, tuple[float | None, float | None]] = msgspec.field(default_factory=dict)
    """Smallest and greatest value of a parameter that the prompt allows; no call may go beyond."""

    def __post_init__(self) -> None:
        if not self.calls or not self.function.isidentifier():
            raise ValueError("a function's name and at least one call are needed")
        expected: dict[str, str] = {}
        for call in self.calls:
            if expected.setdefault(call.call, call.expect) != call.expect:
                raise ValueError(f"{call.call} can't be both {expected[call.call]} and {call.expect}")
        if self.examples and {call.call for call in self.calls} <= {call.call for call in self.examples}:
            raise ValueError("the hidden calls add nothing to the examples")


class Options(Part, frozen=True):
    """`verification.options`: partial credit and tolerance. Keep the sum of the credits far below 1."""

    definition: float = 0.0
    """Credit for code that parses and defines the function."""
    calls: float = 0.0
    """Credit for all calls right, shared out over them; full credit needs all of them anyway."""
    tolerance: float = 1e-9
    """Relative, for floats."""


def arguments(data: Data, call: Call) -> tuple[list[object], dict[str, object]]:
    """Positional and keyword arguments of a call. BrokenTask: it isn't a call of the function on literals."""
    try:
        node = ast.parse(call.call, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise BrokenTask(f"call {call.call[:100]!r} doesn't parse") from err
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == data.function):
        raise BrokenTask(f"call {call.call[:100]!r} isn't a call of {data.function}")
    if any(keyword.arg is None for keyword in node.keywords):
        raise BrokenTask(f"call {call.call[:100]!r}: `**` isn't a literal argument")
    try:
        named = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
        return [_literal(arg) for arg in node.args], named
    except ValueError as err:
        raise BrokenTask(str(err)) from err


def check_limits(data: Data, args: list[object]) -> None:
    """BrokenTask when a call's arguments are beyond what the prompt allows."""
    for name, value in zip(data.parameters, args, strict=False):
        low, high = data.limits.get(name, (None, None))
        number = isinstance(value, int | float)
        if number and ((low is not None and value < low) or (high is not None and value > high)):  # type: ignore[operator]
            raise BrokenTask(f"a hidden call has {name} = {value}, which the prompt excludes")


def _literal(node: ast.expr) -> object:
    return literal(ast.unparse(node), "argument")


def expected(call: Call) -> object:
    """The value that the call must return. BrokenTask: not a literal."""
    try:
        return literal(call.expect, f"expected value of {call.call}")
    except ValueError as err:
        raise BrokenTask(str(err)) from err
