"""The shape of a function template, and how its arguments and constants are drawn.

A template is a family of tasks: a sentence, a one-line solution and an independent reference implementation, over
drawn constants. Source of the expected values is `f`, never the solution text; a test holds the two against each
other. Left out: choosing tests that tell wrong answers apart is `functions`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Consts = Mapping[str, Any]
LETTERS = "abcdefghilmnoprstu"
SEPARATORS = ",;:-/+"
WORDS = (
    "apple", "river", "stone", "cloud", "tiger", "lemon", "paper", "chair", "music", "bread", "ocean", "plant",
    "tower", "grass", "pilot", "robot", "salad", "table", "uncle", "noon", "level", "Green", "Hello", "Data",
)  # fmt: skip
NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "s", "word", "line", "string"),
    "int": ("x", "n", "number", "value", "num"),
    "nat": ("x", "n", "number", "value", "num"),
    "ints": ("numbers", "values", "items", "nums", "data"),
    "some": ("numbers", "values", "items", "nums", "data"),
    "words": ("words", "names", "parts", "items", "strings"),
}
"""Kinds of argument and the names they get; 'nat' is an int >= 0, 'some' a list of ints that isn't empty."""
SECOND_NAMES: Mapping[str, tuple[str, ...]] = {"text": ("other", "t", "suffix"), "int": ("y", "m", "other")}


@dataclass(frozen=True)
class Template:
    """One family: `say` and `code` are patterns over argument names a, b and constants; `f(constants, *arguments)`."""

    name: str
    takes: tuple[str, ...]
    consts: tuple[str, ...]
    say: str
    code: str
    f: Callable[..., Any]


def t(name: str, takes: str, consts: str, say: str, code: str, f: Callable[..., Any]) -> Template:
    """A template from words: kinds and constants are separated by spaces."""
    return Template(name, tuple(takes.split()), tuple(consts.split()), say, code, f)


def draw_consts(template: Template, rng: random.Random) -> dict[str, Any]:
    """Constants by name: c, e letters (different); n 2 to 9; m 11 to 60; w a word; d a separator."""
    c, e = rng.sample(LETTERS, 2)
    drawn: dict[str, Any] = {
        "c": c,
        "e": e,
        "n": rng.randint(2, 9),
        "m": rng.randint(11, 60),
        "w": rng.choice(WORDS).lower(),
        "d": rng.choice(SEPARATORS),
    }
    return {name: drawn[name] for name in template.consts}


def draw_args(template: Template, k: Consts, rng: random.Random, *, edge: bool) -> tuple[Any, ...]:
    """One argument for each kind; `edge` asks for the small and special ones."""
    return tuple(_DRAW[kind](k, rng, edge) for kind in template.takes)


def _text(k: Consts, rng: random.Random, edge: bool) -> str:
    c, w, d = k.get("c", "a"), k.get("w", "noon"), k.get("d", " ")
    if edge:
        return rng.choice(("", c, c + c, c.upper(), w, d, "level", "AbBa", "  x ", c + d + c))
    parts = [rng.choice(WORDS) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.6:
        at = rng.randrange(len(parts))
        parts[at] = rng.choice((c + parts[at], parts[at] + c, parts[at][:2] + c + parts[at][2:], c + parts[at] + c))
    joined = rng.choice((" ", d)).join(parts)
    return rng.choice((joined, joined, joined, f" {joined} ", joined.upper(), joined + joined[::-1]))


def _int(k: Consts, rng: random.Random, edge: bool) -> int:
    n, m = k.get("n", 3), k.get("m", 20)
    if edge:
        return rng.choice((0, 1, -1, n, n - 1, n + 1, m, m - 1, m + 1, -n))
    return rng.choice((rng.randint(-99, 99), rng.randint(2, 30), n * rng.randint(1, 12)))


def _nat(k: Consts, rng: random.Random, edge: bool) -> int:
    return rng.choice((0, 9, 10, 100)) if edge else rng.randint(1, 10 ** rng.randint(1, 5))


def _ints(k: Consts, rng: random.Random, edge: bool) -> list[int]:
    n = k.get("n", 3)
    if edge:
        return rng.choice(([], [n], [0], [n, n], [-n, n]))
    return _some(k, rng, edge)


def _some(k: Consts, rng: random.Random, edge: bool) -> list[int]:
    n = k.get("n", 3)
    if edge:
        return rng.choice(([n], [0], [-1, -1], [n, n, n]))
    values = [rng.choice((rng.randint(-20, 40), n, n * rng.randint(0, 5), n + 1)) for _ in range(rng.randint(2, 8))]
    return values + values[:1] if rng.random() < 0.3 else values


def _words(k: Consts, rng: random.Random, edge: bool) -> list[str]:
    c = k.get("c", "a")
    if edge:
        return rng.choice(([], [""], [c], ["noon"], [c + "x", "x" + c]))
    words = [rng.choice(WORDS) for _ in range(rng.randint(2, 5))]
    return [c + word if rng.random() < 0.4 else word for word in words]


_DRAW: Mapping[str, Callable[[Consts, random.Random, bool], Any]] = {
    "text": _text,
    "int": _int,
    "nat": _nat,
    "ints": _ints,
    "some": _some,
    "words": _words,
}
