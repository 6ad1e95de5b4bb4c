"""What the subjects share: one task, its checks, and names to draw from.

Invariants: the start never meets all checks; what is asked follows from the text and the files; commands need nothing
beyond the profile `shell`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo")
WORDS = ("oak", "pine", "fir", "elm", "ash", "box", "yew", "bay", "fig", "plum", "palm", "rose")
FOLDERS = ("docs", "data", "src", "notes", "work", "media", "input", "store")
Check = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """One task: what to do, what must hold afterwards, and commands that do it."""

    say: str
    checks: Sequence[Check]
    commands: str
    files: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    free: tuple[str, ...] = ()


Template = Callable[[random.Random], Work]
Templates = Mapping[str, Mapping[str, Template]]


def file(path: str, text: str | None = None, compare: str = "lines") -> Check:
    return {"check": "file", "path": path, "text": text, "compare": compare}


def absent(path: str) -> Check:
    return {"check": "absent", "path": path}


def mode(path: str, octal: str) -> Check:
    return {"check": "mode", "path": path, "text": octal}


def link(path: str, target: str) -> Check:
    return {"check": "link", "path": path, "text": target}


def folder(path: str, names: Sequence[str]) -> Check:
    return {"check": "folder", "path": path, "names": sorted(names)}


def archive(path: str, members: Mapping[str, str]) -> Check:
    return {"check": "archive", "path": path, "members": dict(members)}


def git(args: str, text: str, path: str = ".", compare: str = "lines") -> Check:
    return {"check": "git", "path": path, "args": args.split(), "text": text, "compare": compare}


def run(args: Sequence[str], text: str, stdin: str = "", status: int = 0, path: str = ".") -> Check:
    return {"check": "run", "path": path, "args": list(args), "text": text, "stdin": stdin, "status": status}


def lines(rows: Iterable[Any]) -> str:
    """A text with a line for each row."""
    return "".join(f"{row}\n" for row in rows)


def some(rng: random.Random, low: int = 4, high: int = 9, pool: Sequence[str] = WORDS) -> list[str]:
    """Names with repeats."""
    return [rng.choice(pool) for _ in range(rng.randint(low, high))]


def two(rng: random.Random, pool: Sequence[str] = FOLDERS) -> tuple[str, str]:
    """Two different names."""
    first, second = rng.sample(pool, 2)
    return first, second
