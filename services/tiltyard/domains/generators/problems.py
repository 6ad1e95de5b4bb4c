"""The shape of a programming problem that is solved in several languages, and how its arguments are drawn.

A problem is a sentence over drawn constants, solutions in Python, JavaScript and C, and an independent reference
implementation from which the expected values come. Left out: which calls a task makes is `algorithms`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Consts = Mapping[str, Any]
Type = Literal["int", "ints", "text"]
WORDS = ("level", "banana", "river", "stone", "noon", "apple", "cloud", "tiger", "bookkeeper", "mississippi", "abba")


@dataclass(frozen=True)
class Problem:
    """One problem. `say` and the solutions are patterns: `<n>` is a constant; solutions define the function `solve`."""

    name: str
    takes: tuple[Type, ...]
    returns: Type
    say: str
    python: str
    javascript: str
    c: str
    f: Callable[..., Any]
    """`f(constants, *arguments)`; must not share code with the solutions."""
    draw: Callable[[Consts, random.Random], tuple[Any, ...]] | None = None
    """Arguments, where the usual ones won't do."""


def constants(rng: random.Random) -> dict[str, Any]:
    """n 2 to 7, m 10 to 40, low and high with low < high, c a letter."""
    low = rng.randint(-5, 10)
    return {
        "n": rng.randint(2, 7),
        "m": rng.randint(10, 40),
        "low": low,
        "high": low + rng.randint(5, 20),
        "c": rng.choice("aeilnoprst"),
    }


def filled(pattern: str, k: Consts) -> str:
    """A pattern with its constants."""
    for name, value in k.items():
        pattern = pattern.replace(f"<{name}>", str(value))
    return pattern


def arguments(problem: Problem, k: Consts, rng: random.Random) -> tuple[Any, ...]:
    """One argument for each type."""
    if problem.draw:
        return problem.draw(k, rng)
    return tuple(_DRAW[kind](k, rng) for kind in problem.takes)


def _int(k: Consts, rng: random.Random) -> int:
    return rng.choice((0, 1, k["n"], rng.randint(2, 60), rng.randint(60, 5000), k["n"] * rng.randint(1, 40)))


def _ints(k: Consts, rng: random.Random) -> list[int]:
    n = k["n"]
    pool = (rng.randint(-20, 40), n, n * rng.randint(0, 6), k["low"], k["high"], n + 1)
    values = [rng.choice((*pool, rng.randint(-20, 40))) for _ in range(rng.choice((1, 2, 4, 5, 6, 8)))]
    return values + values[-1:] * rng.choice((0, 0, 1, 2))


def _text(k: Consts, rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        words.append(k["c"] * rng.randint(1, 4))
    return rng.choice((" ", "", "-")).join(words)


_DRAW: Mapping[Type, Callable[[Consts, random.Random], Any]] = {"int": _int, "ints": _ints, "text": _text}
