"""What a task of kind `c_calls` holds."""

from __future__ import annotations

from typing import Literal

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.calls import Call, Options

__all__ = ["Data", "Options", "Type"]
Type = Literal["int", "real", "text", "ints"]
"""long long, double, const char *; 'ints' is two parameters: int *values, int count. As a result it stands for what the
first 'ints' argument holds after the call."""


class Data(Part, frozen=True):
    """`verification.data`."""

    function: str
    takes: tuple[Type, ...]
    returns: Type
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        if not self.calls or not (self.function.isascii() and self.function.isidentifier()):
            raise ValueError("a function's name and at least one call are needed")
        if self.returns == "ints" and "ints" not in self.takes:
            raise ValueError("returns 'ints': it takes none")
        for call in self.calls:
            if len(call.args) != len(self.takes):
                raise ValueError(f"a call has {len(call.args)} arguments, the function takes {len(self.takes)}")
            for value, kind in zip((*call.args, call.expect), (*self.takes, self.returns), strict=True):
                if not _fits(value, kind):
                    raise ValueError(f"{value!r:.60} is no value of type {kind!r}")


def _fits(value: object, kind: Type) -> bool:
    match kind:
        case "int":
            return type(value) is int and -(2**63) < value < 2**63
        case "real":
            return type(value) in (int, float)
        case "text":
            return isinstance(value, str) and value.isascii() and "\0" not in value
    return isinstance(value, list | tuple) and all(type(item) is int and abs(item) < 2**31 for item in value)
