"""Runs inside the sandbox as the policy's user: imports the repository's modules and does what the tests ask.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. A request is a literal on standard
input, its answer a JSON object on standard output: a plain value, an error with the names of its classes, or the number
of an object that stays here. What the repository itself reads or prints goes nowhere. It has neither the tests nor the
nonce, and it can't reach the testing process, which belongs to another user.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_ITEMS = 10000


class Objects:
    """What was handed out by number, and the operations on it."""

    def __init__(self, encode: "Callable[[object], str]") -> None:
        self.encode = encode
        self.kept: list[Any] = []

    def __getitem__(self, number: int) -> "Any":
        return self.kept[number]

    def answer(self, value: object) -> str:
        """A value as JSON, or the number under which it is kept."""
        try:
            return f'{{"value": {self.encode(value)}}}'
        except ValueError:
            self.kept.append(value)
        names = self.encode(class_names(value)) if isinstance(value, type) else "[]"
        return f'{{"object": {len(self.kept) - 1}, "classes": {names}}}'

    def do(self, what: str, target: "Any", *rest: "Any") -> object:
        """One request."""
        if what == "import":
            return __import__(target, fromlist=["*"])
        if what == "get":
            return getattr(target, rest[0])
        if what == "set":
            target.__setattr__(rest[0], rest[1])
            return None
        if what == "call":
            return target(*rest[0], **rest[1])
        if what == "item":
            return target[rest[0]]
        if what == "len":
            return len(target)
        if what == "list":
            return [item for item, _ in zip(target, range(MAX_ITEMS), strict=False)]
        if what == "has":
            return bool(rest[0] in target)
        return str(target)


def class_names(kind: type) -> list[str]:
    """Full names of a class and those it is made of."""
    return [f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__][:20]


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Answer until there are no more requests."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    out = os.fdopen(replies, "wb", buffering=0)
    objects = Objects(encode)
    scope = {"__builtins__": {}, "H": objects.__getitem__, "inf": float("inf"), "nan": float("nan"), "set": set}
    for line in os.fdopen(requests, "r", encoding="utf-8"):
        try:
            text = objects.answer(objects.do(*eval(line, scope)))
        except BaseException as error:  # whatever the repository raises is its answer
            try:
                text = f'{{"error": {describe(error)}, "classes": {encode(class_names(type(error)))}}}'
            except BaseException:  # its class may be made to raise, too
                text = '{"error": "an exception that can not be described", "classes": []}'
        out.write(text.encode() + b"\n")
