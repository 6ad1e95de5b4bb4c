"""What a task of kind `javascript_calls` holds."""

from __future__ import annotations

import re

from tiltyard.verifier.kinds.base import Part
from tiltyard.verifier.kinds.calls import Call, Options

__all__ = ["Data", "Options"]
_NAME = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)


class Data(Part, frozen=True):
    """`verification.data`."""

    function: str
    calls: tuple[Call, ...]

    def __post_init__(self) -> None:
        if not self.calls or not _NAME.match(self.function):
            raise ValueError("a function's name and at least one call are needed")
