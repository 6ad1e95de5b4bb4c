"""What a task of kind `terminal` holds."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tiltyard.verifier.kinds.base import Part

Format = Literal["exact", "lines", "words", "set", "number", "json", "yaml", "toml", "ini", "csv", "nginx"]
"""How two texts are compared; 'set': lines in any order; the last ones by what they mean to a parser."""


class Check(Part, frozen=True):
    """One thing that must hold when everything that the session started is dead.

    'file': a regular file with `text`; 'absent': nothing is there; 'mode': permissions, octal in `text`; 'link': a
    symbolic link to `text`; 'folder': a directory, with exactly these `names` if given; 'archive': a tar or zip with
    exactly these `members`; 'git': what git says for `args` in the repository; 'run': what `args` prints for `stdin`,
    run in the directory. 'run' comes after all others, since what it starts may be the policy's.
    """

    check: Literal["file", "absent", "mode", "link", "folder", "archive", "git", "run"]
    path: str = "."
    text: str | None = None
    """Wanted; None: whatever it is."""
    compare: Format = "lines"
    names: tuple[str, ...] | None = None
    members: dict[str, str] = msgspec.field(default_factory=dict)
    args: tuple[str, ...] = ()
    stdin: str = ""
    status: int = 0

    def __post_init__(self) -> None:
        if self.path.startswith("/") or ".." in self.path.split("/") or "\0" in self.path:
            raise ValueError(f"check of {self.path!r}: expected a path inside the workspace")
        if self.check == "mode" and not re.fullmatch("[0-7]{3,4}", self.text or ""):
            raise ValueError(f"check of {self.path!r}: `text` must be the octal mode")
        if self.check in ("git", "run") and not self.args:
            raise ValueError(f"check {self.check!r} of {self.path!r} needs `args`")


class Data(Part, frozen=True):
    """`verification.data`."""

    checks: tuple[Check, ...]
    free: tuple[str, ...] = ()
    """Files of the start that may change or go, besides those that a check names; the others must stay as they are."""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("at least one check is needed")
